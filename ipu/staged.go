package ipu

import (
	"context"
	"errors"
)

// ErrNotStaged: a slot of a [Stager] does not hold the inputs of a run, since the engine was
// loaded or stopped meanwhile.
var ErrNotStaged = errors.New("the slot holds no inputs")

// Stager is an [Engine] whose device moves the data of some requests while it computes
// another. It has slots, each with memory for the inputs and outputs of one run. A request
// goes through a slot in three steps: Stage, RunStaged, Unstage. Calls of different steps
// for different slots may overlap with each other, those of one step may not, and those of a
// slot come one after the other.
type Stager interface {
	Engine
	// Slots returns how many requests the device can have in flight; less than 3
	// where it gains nothing by it.
	Slots() int
	// Stage moves the inputs of one run of a program to a slot.
	Stage(ctx context.Context, program, slot int, in []Staged) error
	// RunStaged is Run with the inputs of a slot, which then has the outputs too. Streams
	// whose data was not staged it moves as Run does. It fails with [ErrNotStaged],
	// before anything runs, if the slot's inputs are gone.
	RunStaged(ctx context.Context, program, slot int, out []Staged) error
	// Unstage moves the outputs of a slot's run to out, which is what RunStaged was given.
	// It fails with [ErrNotStaged] if the slot has none.
	Unstage(ctx context.Context, program, slot int, out []Staged) error
}

// Staged is the host memory of all transfers that one run makes over a stream.
type Staged struct {
	Stream int // index in [Engine.Streams]
	Data   []byte
}
