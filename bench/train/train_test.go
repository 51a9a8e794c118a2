package main

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/autodiff"
)

// TestNetworksLearn trains each network for some steps, without PyTorch.
func TestNetworksLearn(t *testing.T) {
	for i := range networks {
		n := &networks[i]
		t.Run(n.name, func(t *testing.T) {
			l, err := n.learner(autodiff.RecomputeNone, 1)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.close()) }()
			require.NoError(t, l.evaluate())
			before := l.lossValue()
			for range 6 {
				require.NoError(t, l.step())
			}
			require.NoError(t, l.evaluate())
			require.Less(t, l.lossValue(), before)
			require.NoError(t, l.evaluate())
			require.Zero(t, testing.AllocsPerRun(2, func() { _ = l.step() }))
		})
	}
}

// TestStepsAgree compares the losses of the networks with PyTorch's, and the order in which learn.py takes weights.
func TestStepsAgree(t *testing.T) {
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import torch, numpy").Run(); err != nil {
		t.Skip("no PyTorch here (Debian: python3-torch)")
	}
	p, err := startTorch(python, 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.close()) }()
	o := &options{rounds: 1, slice: time.Microsecond}
	for i := range networks {
		ours, theirs, err := o.compareSteps(&networks[i], p, 1)
		require.NoError(t, err)
		require.Positive(t, ours.Median())
		require.Positive(t, theirs.Median())
	}
	require.NotEmpty(t, p.version)
}

// TestPeersAgree compares the losses of a network that every framework in Go can train.
func TestPeersAgree(t *testing.T) {
	o := &options{rounds: 1, slice: time.Microsecond}
	n := &networks[slices.IndexFunc(networks, func(n network) bool { return n.name == "mlp" })]
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			ours, theirs, err := o.comparePeer(n, p.open, 1)
			require.NoError(t, err)
			require.Positive(t, ours.Median())
			require.Positive(t, theirs.Median())
		})
	}
}

// TestRecomputeKeepsBits trains encoder layers with parts of the forward pass computed again.
func TestRecomputeKeepsBits(t *testing.T) {
	n := network{"small", "", 4, 10, transformer(4, 4, 32)}
	losses := func(way autodiff.Recompute) (all []float64) {
		l, err := n.learner(way, 1)
		require.NoError(t, err)
		defer func() { require.NoError(t, l.close()) }()
		for range agreeing {
			require.NoError(t, l.step())
			all = append(all, l.lossValue())
		}
		return all
	}
	want := losses(autodiff.RecomputeNone)
	for _, way := range []autodiff.Recompute{autodiff.RecomputeStandard, autodiff.RecomputeAll} {
		require.Equal(t, "equal bits", apart(losses(way), want), "%s", way)
	}
}

func TestApart(t *testing.T) {
	require.Equal(t, "equal bits", apart([]float64{1, 2}, []float64{1, 2}))
	require.Equal(t, "0.5", apart([]float64{1, 2.5}, []float64{1, 2}))
}
