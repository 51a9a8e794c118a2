package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

// TestBoundedConv compares convolutions that limit their result with a Clip of
// what they give without limits.
func TestBoundedConv(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		pick := func(name string, of ...int64) int64 { return rapid.SampledFrom(of).Draw(t, name) }
		group, c, m := int64(1), pick("channels", 1, 3, 20), pick("maps", 1, 2, 17)
		if rapid.Bool().Draw(t, "depthwise") {
			group, c, m = pick("group", 1, 5, 16), 1, 1
		}
		k, stride := pick("window", 1, 3, 5), pick("stride", 1, 2)
		op := &graph.Conv{Strides: []int64{stride, stride}, Dilations: []int64{1, 1}, PadsBegin: []int64{k / 2, k / 2}, PadsEnd: []int64{k / 2, k / 2}, Group: group}
		d := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F16}).Draw(t, "type")
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		in := []graph.TensorType{of(2, group*c, pick("height", 5, 12), pick("width", 7, 40)), of(group*m, c, k, k), of(group * m)}
		src := drawSource(t)
		data := [][]byte{src.tensor(in[0]), src.tensor(in[1]), src.tensor(in[2])}
		out, plain := runPacked(t, op, in, data)
		limits := rapid.SampledFrom([][2]float64{{0, math.Inf(1)}, {0, 6}, {math.Inf(-1), 0.5}, {-1, -2}}).Draw(t, "limits")
		bounded := *op
		bounded.Bounded, bounded.Low, bounded.High = true, limits[0], limits[1]
		_, got := runPacked(t, &bounded, in, data)
		want := values(out[0], plain[0])
		for i, v := range values(out[0], got[0]) {
			w := min(max(want[i], limits[0]), limits[1])
			require.True(t, v == w || v != v && w != w, "element %d is %v, want %v", i, v, w)
		}
	})
}
