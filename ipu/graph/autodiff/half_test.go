package autodiff_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// wideOnly are operators that do not take half precision: what is lowered converts it before.
var wideOnly = []string{"Cumulate", "TopK"}

// TestGradientsInHalf compares the gradients of every rule in float16 and bfloat16, on the engine and optimised, with those in float64 of the same numbers.
func TestGradientsInHalf(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		if kind, _, _ := strings.Cut(name, "/"); slices.Contains(wideOnly, kind) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, 8, func(r *rapid.T) {
				d := newDraw(r)
				cases[name](d)
				d.half(name)
			})
		})
	}
}

func (d *draw) half(name string) {
	wide, err := d.b.Finish()
	require.NoError(d, err)
	for _, half := range []struct {
		t      graph.DType
		within float64
	}{{graph.F16, 0x1p-7}, {graph.BF16, 0x1p-4}} {
		e, ref := narrow(d, wide, half.t), narrow(d, wide, graph.F64)
		o := autodiff.Options{Provided: d.results, Required: d.inputs}
		info, err := autodiff.Backward(e, d.main, o)
		require.NoError(d, err, name)
		exact, err := autodiff.Backward(ref, d.main, o)
		require.NoError(d, err, name)
		given, exactly, handles := map[graph.TensorID][]byte{}, map[graph.TensorID][]byte{}, map[string][]byte{}
		give := func(x, y graph.TensorID, v []byte) { // x of e and y of ref
			given[x], exactly[y] = v, v
			if ref.Tensors[y].Type.DType == graph.F64 {
				given[x] = encode(half.t, decode(graph.F64, v))
				exactly[y] = encode(graph.F64, decode(half.t, given[x]))
			}
			handles[fmt.Sprint("in", x)] = given[x]
		}
		for x, v := range d.values {
			give(x, x, v)
		}
		for i, y := range d.results {
			v := make([]float64, wide.Tensors[y].Type.Elements())
			for k := range v {
				v[k] = 2 * math.Sin(float64(3*i+k+1))
			}
			give(info.Inputs[i].Tensor, exact.Inputs[i].Tensor, encode(graph.F64, v))
		}
		p := newInterpreter(ref, exactly)
		require.NoError(d, p.run(d.main))
		require.NoError(d, p.run(exact.Graph))
		var wanted []graph.TensorID
		for _, l := range info.Outputs {
			require.Equal(d, half.t, e.Tensors[l.Tensor].Type.DType)
			wanted = append(wanted, l.Tensor)
		}
		addProgram(e, given, wanted, d.main, info.Graph)
		require.NoError(d, pass.Optimize(e, pass.OptimizeOptions{Evaluate: cpu.Eval}))
		got := runEngine(d, e, handles)
		for i, l := range exact.Outputs {
			want, greatest := decode(graph.F64, p.values[l.Tensor]), 1.0
			for _, v := range want {
				greatest = max(greatest, math.Abs(v))
			}
			for k, v := range decode(half.t, got[fmt.Sprint("out", i)]) {
				if !(math.Abs(v-want[k]) <= half.within*greatest) {
					d.Fatalf("%s: element %d of the gradient of input %d in %s is %v, want %v\n%s", name, k, i, half.t, v, want[k], dump.String(e))
				}
			}
		}
	}
}
