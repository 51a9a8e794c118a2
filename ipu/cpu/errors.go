package cpu

import (
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/cpu/internal/weights"
)

// failed ends a program with an error of the instruction at, which it
// describes. An error that came of stopping the engine is [ipu.ErrStopped].
func (e *Engine) failed(p *program, at int, err error) error {
	p.abandon()
	e.fault = weights.Failure{At: at, Err: err}
	where := fmt.Sprintf("run program %d %q", p.plan.Index, p.plan.Name)
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
	case plan.CopyIn, plan.CopyOut:
		return fmt.Errorf("%s: stream %q: %w: %w", where, s.Name, ipu.ErrCallback, err)
	case plan.Compute:
		var assertion *ipu.AssertionError
		if errors.As(err, &assertion) { // of the values, not of the device
			return fmt.Errorf("%s: node %q: %w", where, s.Name, err)
		}
		return &ipu.Error{Kind: ipu.KindApplication, Op: fmt.Sprintf("%s: node %q (%s)", where, s.Name, s.Op), Err: err}
	}
	return fmt.Errorf("%s: %w", where, err)
}
