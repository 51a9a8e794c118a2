package samples_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	samples "github.com/popefgen/popefgen/golden/internal/samples/want"
	"github.com/popefgen/popefgen/rt"
)

// TestRunSamples computes fewer, as many and more samples than a batch has,
// by one caller and by several.
func TestRunSamples(t *testing.T) {
	ctx := context.Background()
	r, err := samples.Open(ctx, rt.WithReplicas(2))
	require.NoError(t, err)
	defer r.Close()
	compute := func(n int) {
		x, z := make([]samples.XSample, n), make([]samples.ZSample, n)
		y, twice := make([]samples.YSample, n), make([]samples.TwiceSample, n)
		for i := range n {
			x[i].Data = [3]float32{float32(i), 1, 0}
			z[i].Data = float32(n + i)
		}
		if err := r.RunSamples(ctx, x, z, y, twice); err != nil {
			t.Error(err)
			return
		}
		for i := range n {
			if want := [2]float32{float32(i) + 3, 2*float32(i) + 4}; y[i].Data != want || twice[i].Data != 2*z[i].Data {
				t.Errorf("sample %d of %d: got %v and %v", i, n, y[i].Data, twice[i].Data)
			}
		}
	}
	var all sync.WaitGroup
	for n := range 3*samples.BatchSize + 2 {
		compute(n)
		all.Go(func() { compute(n) })
	}
	all.Wait()
}
