package verify

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
)

// TestNoise judges a model one element of whose output jumps, as it does with
// another engine: what inputs changed by rounding bring about passes, and
// nothing else.
func TestNoise(t *testing.T) {
	cases, err := Find([]string{filepath.Join("testdata", "torch")}, true)
	require.NoError(t, err)
	c := cases[0]
	// jumping changes element 0 of each output by as much as jump says.
	jumping := func(jump func(run int) float32) (Executor, *int) {
		runs := new(int)
		var first map[string][]byte
		return func(ctx context.Context, m *popef.Model, inputs map[string][]byte) (map[string][]byte, error) {
			outs, err := execute(ctx, m, inputs)
			if first == nil {
				first = maps.Clone(inputs)
			} else {
				require.False(t, maps.EqualFunc(first, inputs, slices.Equal[[]byte]), "inputs are changed")
			}
			for _, b := range outs {
				v := math.Float32frombits(binary.LittleEndian.Uint32(b)) + jump(*runs)
				binary.LittleEndian.PutUint32(b, math.Float32bits(v))
			}
			*runs++
			return outs, err
		}, runs
	}
	judge := func(noise int, jump func(run int) float32) (Result, int) {
		f, runs := jumping(jump)
		results, err := Run(context.Background(), Case{c.Dir, c.Sets[:1]}, Options{Tolerance: Tolerance{Rel: 1e-3, Abs: 1e-4}, Execute: f, Noise: noise})
		require.NoError(t, err)
		return results[0], *runs
	}
	flips := func(run int) float32 { return float32((run + 1) % 2) }

	r, runs := judge(0, flips)
	require.Equal(t, Fail, r.Verdict)
	require.Equal(t, 1, runs)
	r, runs = judge(3, flips)
	require.Equal(t, Pass, r.Verdict, r.Reason)
	require.Positive(t, r.Noise)
	require.Less(t, r.Worst, 1e-3, "what rounding decides is no error")
	require.Equal(t, 4, runs)
	r, _ = judge(3, func(int) float32 { return 1 })
	require.Equal(t, Fail, r.Verdict, "it is wrong in every run")
	require.Zero(t, r.Noise)
	r, _ = judge(3, func(run int) float32 { return float32(1 + run) })
	require.Equal(t, Fail, r.Verdict, "it moves, but never to the reference")
	_, runs = judge(3, func(int) float32 { return 0 })
	require.Equal(t, 1, runs, "what passes is not run again")
}

// Inputs change by one unit in the last place, either way; what is no finite
// number, 0, and what is no float stay.
func TestRounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	inf := float32(math.Inf(1))
	var up, down bool
	for range 50 {
		got := rounded(graph.F32, f32(1, -2, 0, inf, float32(math.NaN()), math.MaxFloat32, math.SmallestNonzeroFloat32), random)
		v := make([]float32, 7)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:]))
		}
		up, down = up || v[0] > 1, down || v[0] < 1
		require.Contains(t, []float32{math.Nextafter32(1, 0), math.Nextafter32(1, 2)}, v[0])
		require.Contains(t, []float32{math.Nextafter32(-2, 0), math.Nextafter32(-2, -3)}, v[1])
		require.Zero(t, v[2])
		require.Equal(t, inf, v[3])
		require.True(t, v[4] != v[4])
		require.False(t, math.IsInf(float64(v[5]), 0))
		require.NotZero(t, v[6])
	}
	require.True(t, up && down)
	require.Contains(t, [][]byte{{1, 0x3c}, {0xff, 0x3b}}, rounded(graph.F16, []byte{0, 0x3c}, random))
	require.Equal(t, []byte{7, 0, 0, 0}, rounded(graph.I32, []byte{7, 0, 0, 0}, random))
	one := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1))
	require.NotEqual(t, one, rounded(graph.F64, one, random))
}
