package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
)

// peer trains a network in this process: what PyTorch does in another.
type peer interface {
	step() error
	lossValue() float64
	close() error
}

// peers are the frameworks in Go, each with what opens a network.
var peers = []struct {
	name string
	open func(n *network, threads int) (peer, error)
}{
	{"Gorgonia", openGorgonia},
	{"GoMLX", openGoMLX},
}

// measurePeers compares whole steps with those of other frameworks in Go, on the networks that these can train.
func measurePeers(o *options) (string, error) {
	header := []string{"network", "threads", "popefgen"}
	for _, p := range peers {
		header = append(header, p.name, "ratio")
	}
	table := report.NewTable(header...)
	notes := ""
	for _, threads := range o.threads() {
		for _, n := range o.networks() {
			cells := []string{n.title, fmt.Sprint(threads), ""}
			for _, p := range peers {
				ours, theirs, err := o.comparePeer(n, p.open, threads)
				if err != nil {
					if threads == o.threads()[0] {
						notes += fmt.Sprintf("\n%s and the %s: %s.\n", p.name, n.title, why(err))
					}
					cells = append(cells, "", "")
					continue
				}
				cells[2] = milliseconds(ours.Median())
				cells = append(cells, milliseconds(theirs.Median()), fmt.Sprintf("%.4f", ours.Median()/theirs.Median()))
			}
			table.Row(cells...)
		}
	}
	return fmt.Sprint(table, notes), nil
}

// comparePeer trains a network with both until their losses agree, and times their steps in turns: a step of a slow one at least.
func (o *options) comparePeer(n *network, open func(*network, int) (peer, error), threads int) (ours, theirs measure.Series, err error) {
	p, err := open(n, threads)
	if err != nil {
		return ours, theirs, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	l, err := n.learner(autodiff.RecomputeNone, threads)
	if err != nil {
		return ours, theirs, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	one := time.Duration(math.MaxInt64)
	for i := range agreeing {
		begin := o.clock()
		if err := p.step(); err != nil {
			return ours, theirs, err
		}
		one = min(one, o.clock()-begin)
		if err := l.step(); err != nil {
			return ours, theirs, err
		}
		if got, want := l.lossValue(), p.lossValue(); !(math.Abs(got-want) <= 1e-3*max(1, math.Abs(want))) {
			return ours, theirs, fmt.Errorf("its loss of step %d is %v, ours is %v: what computes something else is not timed", i+1, want, got)
		}
	}
	ours.Batch, theirs.Batch = 1, 1
	for range o.rounds {
		k := o.perTurn(one)
		times, err := o.turn(k, p.step)
		if err != nil {
			return ours, theirs, err
		}
		theirs.Rounds = append(theirs.Rounds, times)
		mine, err := o.turn(max(k, 20), l.step)
		if err != nil {
			return ours, theirs, err
		}
		ours.Rounds = append(ours.Rounds, mine)
	}
	return ours, theirs, nil
}

// why returns what an error says first, without advice and details.
func why(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	line, _, _ = strings.Cut(line, " -- ")
	return line
}
