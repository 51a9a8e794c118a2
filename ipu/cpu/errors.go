package cpu

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/popefgen/popefgen/ipu"
)

// PanicError is what a panic in a kernel or in a stream's callback is turned
// into.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

// Error returns the value without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error, such as a runtime error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// newPanicError describes a recovered panic.
func newPanicError(v any) *PanicError {
	if p, ok := v.(*PanicError); ok {
		return p
	}
	return &PanicError{v, debug.Stack()}
}

// failed ends a program with an error of the instruction at, which it
// describes. An error that came of stopping the engine is [ipu.ErrStopped].
func (e *Engine) failed(p *program, at int, err error) error {
	p.abandon()
	e.fault = failure{at: at, err: err}
	where := fmt.Sprintf("run program %d %q of %q", p.plan.Index, p.plan.Name, e.name)
	if e.state.Load() != loaded {
		if errors.Is(err, ipu.ErrStopped) {
			return fmt.Errorf("%s: %w", where, ipu.ErrStopped)
		}
		return fmt.Errorf("%s: %w: %w", where, ipu.ErrStopped, err)
	}
	if at >= len(p.code) {
		return fmt.Errorf("%s: %w", where, err)
	}
	s := &p.plan.Steps[p.code[at].step]
	switch s.Kind {
	case CopyIn, CopyOut:
		return fmt.Errorf("%s: stream %q: %w: %w", where, s.Name, ipu.ErrCallback, err)
	case Compute:
		var assertion *ipu.AssertionError
		if errors.As(err, &assertion) { // of the values, not of the device
			return fmt.Errorf("%s: node %q: %w", where, s.Name, err)
		}
		return &ipu.Error{Kind: ipu.KindApplication, Op: fmt.Sprintf("%s: node %q (%s)", where, s.Name, s.Op), Err: err}
	}
	return fmt.Errorf("%s: %w", where, err)
}
