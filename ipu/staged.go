package ipu

import (
	"context"
	"errors"
)

// ErrNotStaged: a slot of a [Stager] does not hold the inputs of a run, since the engine was
// loaded or stopped meanwhile.
var ErrNotStaged = errors.New("the slot holds no inputs")

// Stager is an [Engine] whose device has several runs in flight: it moves the data of some
// while it computes another, or goes on with the next by itself. It has slots, one for each
// run. A request goes through a slot in three steps: Stage, RunStaged, Unstage. Calls of
// different steps for different slots may overlap with each other, those of one step may not,
// and those of a slot come one after the other.
type Stager interface {
	Engine
	// Slots returns how many requests the device can have in flight; less than 3
	// where it gains nothing by it.
	Slots() int
	// Stage gives a slot the memory of one run of a program, which is the engine's until
	// Unstage returns. The engine may move inputs and compute from now on, in the order in
	// which runs were staged. Where Stage fails, the memory stays the caller's.
	Stage(ctx context.Context, program, slot int, in, out []Staged) error
	// RunStaged is Run with the memory of a slot. Streams whose memory was not given it
	// moves as Run does. It fails with [ErrNotStaged], and has done nothing, if the slot's
	// inputs are gone.
	RunStaged(ctx context.Context, program, slot int) error
	// Unstage ends what Stage began, whether or not RunStaged was called: afterwards the
	// memory is the caller's again, and has the outputs of a run that succeeded. It fails
	// with [ErrNotStaged] if there is none. A run that RunStaged was not called for may have
	// been computed all the same.
	Unstage(ctx context.Context, program, slot int) error
}

// Staged is the host memory of all transfers that one run makes over a stream.
type Staged struct {
	Stream int // index in [Engine.Streams]
	Data   []byte
}
