package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
)

// agreeing is how many steps losses are compared.
const agreeing = 10

// measureSteps compares whole steps.
func measureSteps(o *options) (_ string, err error) {
	table := report.NewTable("network", "threads", "popefgen", "PyTorch", "ratio")
	version := ""
	for _, threads := range o.threads() {
		t, err := startTorch(o.python, threads)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, t.close()) }()
		var ratios []float64
		for _, n := range o.networks() {
			ours, theirs, err := o.compareSteps(n, t, threads)
			if err != nil {
				return "", fmt.Errorf("%s, %d threads: %w", n.name, threads, err)
			}
			ratio := ours.Median() / theirs.Median()
			ratios = append(ratios, ratio)
			table.Row(n.title, fmt.Sprint(threads), milliseconds(ours.Median()), milliseconds(theirs.Median()), report.Ratio(ratio))
		}
		version = t.version
		mean, worst := measure.GeometricMean(ratios), slices.Max(ratios)
		table.Row("geometric mean", fmt.Sprint(threads), "", "", report.Ratio(mean))
		table.Row("worst", fmt.Sprint(threads), "", "", report.Ratio(worst))
	}
	return fmt.Sprintf("%s\nPyTorch %s.\n", table, version), nil
}

// compareSteps trains a network with both, and times their steps in turns.
func (o *options) compareSteps(n *network, t *torch, threads int) (ours, theirs measure.Series, err error) {
	l, err := n.learner(autodiff.RecomputeNone, threads)
	if err != nil {
		return ours, theirs, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := errors.Join(t.threads(threads), t.open(n)); err != nil {
		return ours, theirs, err
	}
	want, times, err := t.steps(agreeing, o.clockName())
	if err != nil {
		return ours, theirs, err
	}
	for i, w := range want {
		if err := l.step(); err != nil {
			return ours, theirs, err
		}
		if got := l.lossValue(); !(math.Abs(got-w) <= 1e-4*max(1, math.Abs(w))) {
			return ours, theirs, fmt.Errorf("the loss of step %d is %v, PyTorch's is %v: what computes something else is not timed", i+1, got, w)
		}
	}
	k := o.perTurn(slices.Min(times))
	ours.Batch, theirs.Batch = 1, 1
	for range o.rounds {
		_, times, err := t.steps(k+1, o.clockName())
		if err != nil {
			return ours, theirs, err
		}
		theirs.Rounds = append(theirs.Rounds, slices.Sorted(slices.Values(times[1:]))) // the first warms up
		mine, err := o.turn(k, l.step)
		if err != nil {
			return ours, theirs, err
		}
		ours.Rounds = append(ours.Rounds, mine)
	}
	return ours, theirs, nil
}

// perTurn returns how many steps a turn has.
func (o *options) perTurn(one time.Duration) int { return max(2, int(o.slice/max(one, 1))) }

// turn runs k steps after one that warms up, and returns their times, sorted.
func (o *options) turn(k int, step func() error) ([]time.Duration, error) {
	if err := step(); err != nil {
		return nil, err
	}
	times := make([]time.Duration, k)
	for i := range times {
		begin := o.clock()
		if err := step(); err != nil {
			return nil, err
		}
		times[i] = o.clock() - begin
	}
	slices.Sort(times)
	return times, nil
}

// learner compiles a network and opens it.
func (n *network) learner(recompute autodiff.Recompute, threads int) (*learner, error) {
	r, err := n.compile(recompute)
	if err != nil {
		return nil, err
	}
	file, err := r.Load(context.Background(), n.name)
	if err != nil {
		return nil, err
	}
	return openLearner(n, file, threads)
}

// milliseconds formats nanoseconds.
func milliseconds(ns float64) string { return report.Ratio(ns / 1e6) }
