package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// TestBoundsOfProducts compares networks whose products apply the limits that
// follow them, also beyond a change of shape, with networks in which they are
// operators: exactly.
func TestBoundsOfProducts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &netDraw{T: t, model: newModel("products")}
		x := d.b.AddLocal("x", f32(2, 20, 6))
		g := d.b.BeginGraph("main")
		y := x
		const products = 2
		for range products {
			y = d.binary(graph.Add, d.node(&graph.MatMul{}, y, d.param(false, 6, 6)), d.param(false, 6))
			switch rapid.SampledFrom([]string{"relu", "clip", "low", "high"}).Draw(t, "limits") {
			case "relu":
				y = d.unary(graph.Relu, y)
			case "clip":
				y = d.node(&graph.Clip{}, y, d.number(-0.5), d.number(0.25))
			case "low":
				y = d.node(&graph.Clip{}, y, d.number(-0.25))
			case "high":
				y = d.node(&graph.Clip{}, y, graph.None, d.number(float32(math.Copysign(0, -1))))
			}
		}
		d.finish(x, d.node(&graph.Reshape{Shape: []int64{240}}, y), g)
		exe := executable(t, d.b)
		var results [][]float32
		for _, disabled := range [][]string{nil, {"bounds"}} {
			image := optimized(t, exe, disabled)
			e, err := New(ipu.EngineConfig{Name: "net", Executable: image, Options: opt("threads", "1")})
			require.NoError(t, err)
			load(t, e)
			_, got := d.start(t, e)
			run(t, e, 1)
			require.NoError(t, e.Close())
			results = append(results, got)

			decoded, err := encoding.Decode(image)
			require.NoError(t, err)
			bounded := 0
			for _, g := range decoded.Graphs {
				for _, n := range g.Nodes {
					if op, ok := n.Op.(*graph.Gemm); ok && op.Bounded {
						bounded++
					}
				}
			}
			require.Equal(t, products*(1-len(disabled)), bounded)
		}
		require.Equal(t, results[1], results[0])
	})
}
