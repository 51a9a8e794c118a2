package rt_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// rawRunner is a runner over bytes, as tools make it.
type rawRunner struct {
	core genrt.Core
	x    *genrt.RawInput
	y    *genrt.RawOutput
}

func openRaw(t testing.TB, v variant, b, xBytes int) (*rawRunner, error) {
	r := &rawRunner{}
	load := genrt.NewRawInput(b)
	require.NoError(t, load.Bind(make([]byte, b)))
	bindings := func() []genrt.Binding {
		r.x, r.y = genrt.NewRawInput(xBytes), genrt.NewRawOutput(16)
		return []genrt.Binding{{Anchor: 3, Stream: load}, {Anchor: 1, Stream: r.x}, {Anchor: 2, Stream: r.y}}
	}
	err := r.core.Open(context.Background(), affineSpec(t), genrt.Source{Name: "affine.popef", Bytes: v.model}, bindings, nil, rt.WithBackend(v.backend))
	if err == nil {
		t.Cleanup(func() { require.NoError(t, r.core.Close()) })
	}
	return r, err
}

func TestRaw(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			r, err := openRaw(t, v, 8, 16)
			require.NoError(t, err)
			x, y := floats(1, 2, 3, 4), make([]byte, 16)
			for range 2 {
				replica, err := r.core.Begin(ctx, rt.LeastBusy)
				require.NoError(t, err)
				require.ErrorIs(t, r.x.Bind(x[:8]), rt.ErrLength)
				require.ErrorIs(t, r.y.Bind(make([]byte, 17)), rt.ErrLength)
				require.NoError(t, r.x.Bind(x))
				require.NoError(t, r.y.Bind(y))
				require.NoError(t, r.core.Main(ctx, replica))
				require.Equal(t, floats(2, 6, 6, 12), y)
			}
			clear(y)
			in, err := genrt.RawSamples(x[:12], 3)
			require.NoError(t, err)
			out, err := genrt.RawSamples(y[:12], 3)
			require.NoError(t, err)
			require.NoError(t, r.core.RunSamples(ctx, rt.LeastBusy, in, out))
			require.Equal(t, floats(2, 6, 6, 0), y)
		})
	}
}

func TestRawSizes(t *testing.T) {
	for _, v := range variants(t) {
		_, err := openRaw(t, v, 12, 16)
		require.ErrorIs(t, err, rt.ErrGenerated)
		_, err = openRaw(t, v, 8, 8)
		require.ErrorIs(t, err, rt.ErrGenerated)
	}
	for _, c := range []struct{ bytes, n int }{{7, 2}, {1, 0}, {4, -1}} {
		_, err := genrt.RawSamples(make([]byte, c.bytes), c.n)
		require.ErrorIs(t, err, rt.ErrLength, "%+v", c)
	}
	s, err := genrt.RawSamples(nil, 0)
	require.NoError(t, err)
	require.Equal(t, genrt.Samples{}, s)
}
