package decoder

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
)

const (
	width, heads = 8, 2
	most         = 16
)

// weight is element i of weight w, as the model was made with.
func weight(w, i int) float64 { return float64(float32(math.Sin(float64(64*w + i)))) }

func times(x []float64, w int) []float64 {
	y := make([]float64, width)
	for c := range y {
		for r := range x {
			y[c] += x[r] * weight(w, r*width+c)
		}
	}
	return y
}

// token is what the stream reads as number i.
func token(i int) [width]float32 {
	var x [width]float32
	draw := rand.New(rand.NewPCG(7, uint64(i)))
	for c := range x {
		x[c] = draw.Float32() - 0.5
	}
	return x
}

// without computes what the model says to the last of n tokens, of all of them anew.
func without(n int) []float64 {
	var keys, values [][]float64
	var query []float64
	for i := range n {
		var x []float64
		for _, v := range token(i) {
			x = append(x, float64(v))
		}
		query = times(x, 0)
		keys, values = append(keys, times(x, 1)), append(values, times(x, 2))
	}
	mixed := make([]float64, width)
	for h := range heads {
		from, to := h*width/heads, (h+1)*width/heads
		p, sum := make([]float64, n), 0.0
		for i := range p {
			for c := from; c < to; c++ {
				p[i] += query[c] * keys[i][c]
			}
			p[i] = math.Exp(p[i])
			sum += p[i]
		}
		for i := range p {
			for c := from; c < to; c++ {
				mixed[c] += p[i] / sum * values[i][c]
			}
		}
	}
	return times(mixed, 3)
}

func TestGrows(t *testing.T) {
	ctx := context.Background()
	r, err := Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	require.Len(t, Sizes(), 8)
	s, err := r.NewStream()
	require.NoError(t, err)
	in, out := NewStreamInputs(), NewStreamOutputs()
	for range 2 {
		for i := range most {
			in.X.At(0)[0] = token(i)
			require.NoError(t, s.Run(ctx, in, out))
			for c, want := range without(i + 1) {
				require.InDelta(t, want, float64(out.Y.At(0)[0][c]), 1e-5, "token %d", i)
			}
			require.Equal(t, i+1, s.Len())
		}
		require.ErrorIs(t, s.Run(ctx, in, out), rt.ErrSize)
		require.ErrorIs(t, s.Reserve(most+1), rt.ErrSize)
		require.NoError(t, s.Reset())
	}
	require.NoError(t, s.Close())

	s, err = r.NewStream()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Reserve(most))
	turn := func() {
		for range most {
			if err := s.Run(ctx, in, out); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	turn()
	require.Zero(t, testing.AllocsPerRun(5, turn))
}

func TestDisagree(t *testing.T) {
	r, err := Open(context.Background())
	require.NoError(t, err)
	defer r.Close()
	in := NewInputs(1, 4)
	require.Equal(t, 5, in.AttentionMask.PastPlus1)
	in.AttentionMask.Resize(1, 6)
	err = r.Run(context.Background(), in, NewOutputs())
	require.ErrorIs(t, err, rt.ErrSize)
	require.ErrorContains(t, err, "Inputs.AttentionMask.PastPlus1 is 6, and Inputs.PastKey.Past is 4, from which it follows as 5: give sizes that agree")
}
