package rt

import (
	"errors"
	"fmt"
	"time"

	"github.com/popefgen/popefgen/rt/internal/settings"
)

// ErrSequence: a sequence for RunPacked does not fit: its slices differ in
// length, it has no elements, or it is longer than the model's input holds.
var ErrSequence = errors.New("sequence does not fit")

// PackAlgorithm says where a generated RunPacked puts a sequence in the model's
// inputs of several rows.
type PackAlgorithm uint8

const (
	// PackNextFit puts a sequence behind the last one if its row has room, else
	// at the beginning of the next row. It is the default: what came first lies
	// first.
	PackNextFit PackAlgorithm = iota
	// PackFirstFit puts a sequence into the first row that has room. It never
	// fills fewer rows than PackNextFit does.
	PackFirstFit
	// PackEndToEnd puts all sequences behind each other, over the ends of rows:
	// the model has operators that take them apart.
	PackEndToEnd
)

// String returns the algorithm's name, such as "next fit".
func (a PackAlgorithm) String() string {
	switch a {
	case PackNextFit:
		return "next fit"
	case PackFirstFit:
		return "first fit"
	case PackEndToEnd:
		return "end to end"
	}
	return fmt.Sprintf("PackAlgorithm(%d)", uint8(a))
}

// PackPolicy says how sequences of one caller or of several are packed into one
// run. A pack takes sequences in the order in which they come, and runs as soon as
// an engine is free and
//
//   - MaxEntries are in it,
//   - the next one would not fit: it begins another pack, and none that come later
//     overtake it, or
//   - Timeout has passed since its first one came.
type PackPolicy struct {
	Algorithm  PackAlgorithm
	MaxEntries int           // most sequences in a run; 0: as many as fit
	Timeout    time.Duration // more than 0
	Separator  int           // zeros between two sequences of a row, none before the first; 0 for PackEndToEnd
}

func (p PackPolicy) check() error {
	switch {
	case p.Algorithm > PackEndToEnd:
		return fmt.Errorf("%w: %v, want PackNextFit, PackFirstFit or PackEndToEnd", ErrOption, p.Algorithm)
	case p.Timeout <= 0:
		return fmt.Errorf("%w: timeout %v, want more than 0: nobody else may come, and the first would wait for ever", ErrOption, p.Timeout)
	case p.MaxEntries < 0:
		return fmt.Errorf("%w: at most %d entries, want 1 or more, or 0 for as many as fit", ErrOption, p.MaxEntries)
	case p.Separator < 0:
		return fmt.Errorf("%w: a separator of %d zeros, want 0 or more", ErrOption, p.Separator)
	case p.Separator > 0 && p.Algorithm == PackEndToEnd:
		return fmt.Errorf("%w: a separator of %d zeros, and end to end has none: it knows no rows that entries could share", ErrOption, p.Separator)
	}
	return nil
}

// WithPacking says how a generated RunPacked joins sequences of several callers into
// one run. Without it a run takes, by PackNextFit, what has come when an engine is
// free, and waits for nothing else.
func WithPacking(p PackPolicy) RunnerOption {
	return forRunner(func(o *settings.Of[Config]) {
		o.Config.Packing = p
		if err := p.check(); err != nil {
			o.Fail("WithPacking: %w", err)
		}
	})
}
