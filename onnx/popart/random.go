package popart

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/popefgen/popefgen/ipu/export"
)

// random returns the host's copy of what that program brings: the seed of random numbers, or their state.
func (s *session) random(program int) (*held, error) {
	for _, h := range s.host {
		if h.program == program {
			return h, nil
		}
	}
	return nil, wrong(ErrOption, "the model draws no random numbers that follow from the session: no Dropout that trains, and no operator of random numbers without a seed of its own")
}

// SetRandomSeed sets the seed of random numbers and begins with their first ones: from then on, sessions of the same model with the same seed draw the same. Before PrepareDevice and
// WeightsFromHost it waits for them. The error wraps ErrOption if the model draws no random numbers.
func (s *session) SetRandomSeed(ctx context.Context, seed uint64) error {
	return s.locked("set the random seed", func() error {
		h, err := s.random(export.SeedProgram)
		if err != nil {
			return err
		}
		state, err := s.random(export.RandomProgram)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(h.data, seed)
		clear(state.data)
		if !s.loaded {
			return nil
		}
		return fail(ClassRuntime, "set the random seed", s.give(ctx, export.SeedProgram, export.RandomProgram))
	})
}

// RandomSeed fetches the seed of random numbers from the device.
func (s *session) RandomSeed(ctx context.Context) (seed uint64, err error) {
	data, err := s.drawn(ctx, "random seed", export.SeedProgram, export.SaveSeedProgram)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(data), nil
}

// RNGState fetches the state of random numbers from the device: which of those that follow from the seed come next. It is for SetRNGState.
func (s *session) RNGState(ctx context.Context) ([]byte, error) {
	return s.drawn(ctx, "state of random numbers", export.RandomProgram, export.SaveRandomProgram)
}

// SetRNGState sets the state of random numbers to one that RNGState returned, of a session of the same model: with the same seed, the numbers that came then come again. Before
// PrepareDevice and WeightsFromHost it waits for them.
func (s *session) SetRNGState(ctx context.Context, state []byte) error {
	return s.locked("set the state of random numbers", func() error {
		h, err := s.random(export.RandomProgram)
		if err != nil {
			return err
		}
		if len(state) != len(h.data) {
			return wrong(ErrSize, "the state has %d bytes, want %d, as RNGState returns them", len(state), len(h.data))
		}
		copy(h.data, state)
		if !s.loaded {
			return nil
		}
		return fail(ClassRuntime, "set the state of random numbers", s.give(ctx, export.RandomProgram))
	})
}

// drawn fetches what the program loads by the program that saves it, and returns a copy.
func (s *session) drawn(ctx context.Context, what string, loads, saves int) (data []byte, err error) {
	err = s.locked(what, func() error {
		h, err := s.random(loads)
		switch {
		case err != nil:
			return err
		case s.run == nil:
			return fail(ClassRuntime, what, ErrNotPrepared)
		case !s.loaded:
			return fail(ClassRuntime, what, ErrWeightsNotLoaded)
		}
		if err := s.take(ctx, saves); err != nil {
			return fail(ClassRuntime, what, err)
		}
		data = slices.Clone(h.data)
		return nil
	})
	return data, err
}
