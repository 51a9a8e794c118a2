package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/bench"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// drawn begins a value of --sizes that draws them.
const drawn = "draw:"

// maxDrawn is how many sizes may be drawn.
const maxDrawn = 256

// benchSizes measures the sizes of a family.
func benchSizes(c *cli.Context, t *bench.Target, f *family.Family, config bench.Config, r *bench.Report) error {
	for _, flag := range []string{"clients", "in-flight", "replicas", "thread-safe", "samples", "batch-dim", "linger", "input", "compare", "profile", "cpuprofile", "mode"} {
		if c.IsSet(flag) {
			if len(f.Members) == 1 {
				return fmt.Errorf("--%s: data decides sizes of the model's outputs, and its requests are measured one at a time with random inputs; for more, compile the model up to where they are of fixed size, or bind the inputs that decide them (--bind)", flag)
			}
			return fmt.Errorf("--%s: the model has several sizes, of which requests are measured one at a time with random inputs; for more, bench one of them: compile --dim with one number for each dimension", flag)
		}
	}
	sizes, err := benchedSizes(c, f)
	if err != nil {
		return err
	}
	seed := c.Uint64("random")
	r.Sizes, err = bench.MeasureSizes(c.Context, t, sizes, config, func(typ popef.DataType, data []byte) {
		dynamic.FillRandom(typ, data, seed)
		seed++
	})
	r.Memory.ResidentAll = bench.PeakResident()
	return err
}

// benchedSizes returns what --sizes says: every member without it.
func benchedSizes(c *cli.Context, f *family.Family) (all [][]int64, err error) {
	add := func(sizes []int64) {
		if !slices.ContainsFunc(all, func(s []int64) bool { return slices.Equal(s, sizes) }) {
			all = append(all, sizes)
		}
	}
	words := c.StringSlice("sizes")
	if len(words) == 0 {
		words = []string{"all"}
	}
	for _, word := range words {
		text, draws := strings.CutPrefix(word, drawn)
		switch {
		case word == "all":
			for _, m := range f.Members {
				add(m.Sizes)
			}
		case draws:
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > maxDrawn {
				return nil, fmt.Errorf("--sizes %s: want %sN with 1 to %d sizes", word, drawn, maxDrawn)
			}
			rng := rand.New(rand.NewPCG(c.Uint64("random"), 1))
			for range n {
				add(drawSizes(f, rng))
			}
		default:
			sizes, err := namedSizes(f, "sizes", strings.Split(word, ","))
			if err != nil {
				return nil, fmt.Errorf("%w; all and %sN are other values", err, drawn)
			}
			_, exact, err := f.Choose(sizes)
			if err != nil {
				return nil, fmt.Errorf("--sizes %s: %w", word, err)
			}
			add(exact)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("--sizes: no size is left")
	}
	return all, nil
}

// drawSizes draws a member, and smaller sizes where it may be filled up.
func drawSizes(f *family.Family, rng *rand.Rand) []int64 {
	sizes := slices.Clone(f.Members[rng.IntN(len(f.Members))].Sizes)
	for d, n := range sizes {
		smaller := slices.Clone(sizes)
		if n > 1 {
			smaller[d] = 1 + rng.Int64N(n)
			if _, _, err := f.Choose(smaller); err == nil {
				sizes = smaller
			}
		}
	}
	return sizes
}
