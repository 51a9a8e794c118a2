package tensor

import (
	"strconv"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Kernel computes one node. A Kernel belongs to one engine, which runs it at
// most once at a time, so it may keep state of the current run in its fields.
type Kernel interface {
	// Run computes the outputs from the inputs. Every slice has exactly the
	// bytes of its tensor and is aligned to its element size; a left-out
	// operand or result is nil. scratch has [Kernel.Scratch] bytes, is aligned
	// to 64 and holds junk. Run does not retain any of them. It allocates
	// nothing unless it returns an error, which it does only for data that
	// the operator forbids (an index out of range) or checks ([graph.Assert]).
	Run(p Pool, in, out [][]byte, scratch []byte) error
	// Scratch returns the bytes of scratch memory that Run wants.
	Scratch() int
}

// Packer is a Kernel that wants operands that seldom change (weights) in a
// layout of its own. The engine packs such an operand when its value is set
// and passes the packed memory to Run in its place.
type Packer interface {
	Kernel
	// Packed returns the bytes of operand i in the kernel's layout, or 0 if it
	// is used as it is.
	Packed(i int) int
	// Pack writes operand i, given as ordinary row-major data, to dst, which
	// has Packed(i) bytes and is aligned to 64. It keeps nothing: kernels of
	// the same node in other engines use what this one packed, and several
	// operands may be packed at the same time.
	Pack(i int, dst, src []byte)
	// Packing describes the layout of a packed operand i: where two kernels
	// have equal packings of operands of the same bytes, Pack of either writes
	// the same bytes, so that one packed copy serves both.
	Packing(i int) Packing
	// UsePacked tells, before the first Run, that operand i will come packed.
	UsePacked(i int)
}

// Taker is a Packer that reads an operand otherwise than in the layout of other kernels,
// where it has a choice, but as quickly in that if a copy is there for them already: the
// engine then keeps no other.
type Taker interface {
	Packer
	// Takes returns that layout of operand i, "" if there is none.
	Takes(i int) Packing
	// Take tells, before the first Run and in place of UsePacked, that operand i will
	// come in that layout. Results are the same.
	Take(i int)
}

// Packing is a description of a layout in which a kernel wants an operand, with all
// that the bytes depend on besides the operand's own: equal descriptions are of
// equal layouts.
type Packing string

// PackingOf returns the description of a layout that has a name, which only kernels
// that pack in the same way use, and depends on some numbers.
func PackingOf(name string, numbers ...int) Packing {
	b := make([]byte, 0, len(name)+8*len(numbers))
	b = append(b, name...)
	for _, n := range numbers {
		b = strconv.AppendInt(append(b, ' '), int64(n), 10)
	}
	return Packing(b)
}

// InPlacer is a Kernel that may compute in place: write result 0 over the memory of
// an operand.
type InPlacer interface {
	// InPlace reports whether operand i may share memory with result 0.
	InPlace(i int) bool
}

// Overwriter is a Kernel of which every result may be written over the memory of the operand
// that it replaces, whatever else reads it: an optimizer's step.
type Overwriter interface {
	InPlacer
	// Overwrites reports whether a result may share memory with an operand.
	Overwrites(result, operand int) bool
}

// Task is work that can be cut into parts which run concurrently.
type Task interface {
	// Do computes one part.
	Do(part int)
}

// RoundTask is work in rounds, each of which needs all of the one before. The
// items of a round can be divided between workers in any way.
type RoundTask interface {
	// DoRound computes the items [lo, hi) of a round.
	DoRound(round, lo, hi int)
}

// Pool runs the parts of a task, on several cores where it has them.
type Pool interface {
	// Workers returns how many parts can run at the same time, at least 1.
	Workers() int
	// Pays reports whether work that takes one worker that many simple element
	// operations, a quarter of a nanosecond each, is worth sharing.
	Pays(cost int) bool
	// Ended reports whether what comes of the task at hand does not matter any
	// more: whoever wanted it has given up. A part that finds so may return at
	// once; [Pool.Run] then does not return, but panics with a value that the
	// pool's owner knows.
	Ended() bool
	// Run calls t.Do(0) … t.Do(parts-1), in any order and concurrently, and
	// returns when all are done. The caller computes parts itself; nothing is
	// allocated.
	Run(t Task, parts int)
	// RunRounds computes so many rounds of so many items each, one round after
	// the other, and returns when all are done. Rounds may be as short as a
	// microsecond: a worker goes over the same items in all of them, and knows
	// when a round ends from what the others write to memory. The caller
	// computes what nobody else does; nothing is allocated.
	RunRounds(t RoundTask, rounds, items int)
}

// Serial is a Pool of one worker: everything runs in the caller.
type Serial struct{}

// Workers returns 1.
func (Serial) Workers() int { return 1 }

// Pays returns false.
func (Serial) Pays(int) bool { return false }

// Ended returns false.
func (Serial) Ended() bool { return false }

// Run calls t.Do for every part in order.
func (Serial) Run(t Task, parts int) {
	for i := range parts {
		t.Do(i)
	}
}

// RunRounds computes all items of every round in order.
func (Serial) RunRounds(t RoundTask, rounds, items int) {
	for r := range rounds {
		t.DoRound(r, 0, items)
	}
}

// Binder is a function that returns the kernel of an operator for given operand and result types.
// A left-out operand or result has the zero TensorType.
type Binder func(op graph.Op, in, out []graph.TensorType) (Kernel, error)
