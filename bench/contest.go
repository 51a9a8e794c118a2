package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/verify"
)

// entrant is an engine in a contest.
type entrant struct {
	peer.Engine
	optional bool // it may be unable to run a case, from the start or at some time
	slow     bool // it gets few runs
}

// outcome is what a contest found of one entrant.
type outcome struct {
	measure.Series
	refused error // why it does not run the case
}

// contest runs a case with all engines in turns. The first engine's outputs
// must be the others' within the tolerance: how fast something wrong is
// computed is of no interest.
func contest(cfg measure.Config, c *peer.Case, tol verify.Tolerance, threads int, engines []entrant) (out []outcome, err error) {
	sessions := make([]peer.Session, len(engines))
	defer func() {
		for _, s := range sessions {
			if s != nil {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	out = make([]outcome, len(engines))
	runners := make([]measure.Runner, len(engines))
	for i, e := range engines {
		s, err := e.Open(c, threads)
		if err == nil {
			sessions[i] = s
			if err = s.Run(); err == nil && i > 0 {
				if err = compare(c, sessions[0], s, tol); err != nil {
					err = fmt.Errorf("its outputs are not those of %s: %w", engines[0].Name(), err)
				}
			}
		}
		if err != nil {
			if !e.optional {
				return nil, fmt.Errorf("%s, %d threads: %s: %w", c.Name, threads, e.Name(), err)
			}
			out[i].refused = fmt.Errorf("%s: %s: %w", c.Name, e.Name(), err)
			continue
		}
		runners[i] = measure.Runner{Run: s.Run, Slow: e.slow, Optional: e.optional}
	}
	cfg.Pause = rest(threads)
	series, err := measure.Interleave(cfg, runners...)
	if err != nil {
		return nil, fmt.Errorf("%s, %d threads: %w", c.Name, threads, err)
	}
	for i := range series {
		if out[i].Series = series[i]; series[i].Err != nil {
			out[i].refused = fmt.Errorf("%s: %s: %w", c.Name, engines[i].Name(), series[i].Err)
		}
	}
	return out, nil
}

// latency is the cell of a table for an outcome's median.
func (o *outcome) latency() string {
	if errors.Is(o.refused, peer.ErrNoAnswer) {
		return "did not answer"
	}
	return report.Time(o.Median())
}

// rest is how long an engine's turn waits for the last one's threads to fall
// asleep. ONNX Runtime's poll for work for 30 ms after a run, in which they
// keep a processor busy that the next contestant is to have.
func rest(threads int) time.Duration {
	if threads == 1 {
		return 5 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// agree returns why two engines do not compute the same: nil if they do.
func agree(c *peer.Case, a, b peer.Engine) error {
	_, err := contest(measure.Config{}, c, rounding, 1, []entrant{{Engine: a}, {Engine: b}})
	return err
}

// rounding is how far apart outputs may be that are computed in float32.
var rounding = verify.Tolerance{Rel: 1e-3, Abs: 1e-3}

// compare returns why the outputs of two sessions, which have run, differ.
func compare(c *peer.Case, got, want peer.Session, tol verify.Tolerance) error {
	g, err := got.Outputs()
	if err != nil {
		return err
	}
	w, err := want.Outputs()
	if err != nil {
		return err
	}
	for i, o := range c.Outputs {
		t := graph.TensorType{DType: onnx.ElemType(o.Elem).DType(), Shape: slices.Clone(o.Dims)}
		d, err := verify.Compare(t, g[i], w[i], tol)
		if err != nil {
			return fmt.Errorf("output %q: %w", o.Name, err)
		}
		if d.Bad > 0 {
			return fmt.Errorf("output %q: %s", o.Name, d)
		}
	}
	return nil
}
