package kernel

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/work"
)

// TestPartsTouchNothingInCommon computes operators of every kind in one thread and in
// several, on every path. It is what the race detector sees of kernels in make race: the families' own
// tests, which compare results with definitions, run there with POPEFGEN_TESTS=all alone.
func TestPartsTouchNothingInCommon(t *testing.T) {
	const (
		each = 2 // operators of a kind that a try computes
		most = 1 << 16
	)
	draws := map[string][]func(sizes) (graph.Op, []graph.TensorType){}
	for kind, draw := range drawn {
		draws[kind] = append(draws[kind], draw)
	}
	for kind, draw := range packers {
		draws[kind] = append(draws[kind], draw)
	}
	for kind, draw := range draws {
		t.Run(kind, func(t *testing.T) {
			kerneltest.EachPath(t, func(t *testing.T) {
				bound, ran := false, 0
				rapid.Check(t, func(rt *rapid.T) {
					// However few are tried, draws go on until one was small enough.
					for n, now := 0, 0; now < each && n < 20 || bound && ran == 0 && n < 2000; n++ {
						op, in := draw[n%len(draw)](sizes{rt})
						if len(in) < 3 && kind == "NCHWcConv" {
							in = append(in, graph.TensorType{}) // the planner names all operands
						}
						if o, ok := op.(*nhwc.Conv); ok && !nhwc.ConvFits(&o.IntegerConv, o.Channels, in[1].Shape) {
							continue // the planner asks before it takes one
						}
						out, err := op.Infer(in)
						if err != nil {
							continue
						}
						k, err := New(op, in, out)
						if err != nil {
							continue
						}
						bound = true
						if w, known := work.Of(op, in, out); known && w > 16*most || bytesOf(in)+bytesOf(out)+int64(k.Scratch()) > 4*most {
							continue
						}
						data := operands(rt, in)
						if !runs(k, out, data) {
							continue // an index out of range
						}
						runPacked(rt, op, in, data)
						ran++
						now++
					}
				})
				if !bound {
					t.Skip("this path has no kernel of it")
				}
				require.NotZero(t, ran, "nothing that was drawn is small enough")
			})
		})
	}
}

// operands draws finite operands of an operator. Of integers that may be indices few are out of range.
func operands(t *rapid.T, in []graph.TensorType) [][]byte {
	r, data := kerneltest.Seeded(rapid.Uint64().Draw(t, "data")), make([][]byte, len(in))
	most := rapid.Int64Range(1, 2).Draw(t, "indices below")
	for i, tt := range in {
		if !tt.DType.Valid() {
			continue // left out
		}
		elems := make([]kerneltest.Elem, tt.Elements())
		for j := range elems {
			elems[j] = kerneltest.Elem{F: 2*r.Float64() - 1, I: r.Int64N(most)}
			if size := tt.DType.Size(); size == 1 && tt.DType != graph.Bool {
				elems[j].I = r.Int64N(256)
			}
		}
		data[i] = kerneltest.Store(tt.DType, elems)
	}
	return data
}

// bytesOf returns the bytes that tensors of these types take.
func bytesOf(types []graph.TensorType) (n int64) {
	for _, t := range types {
		if t.DType.Valid() {
			n += t.Bytes()
		}
	}
	return n
}

// runs reports whether k computes without an error.
func runs(k tensor.Kernel, out []graph.TensorType, data [][]byte) bool {
	results := make([][]byte, len(out))
	for i, o := range out {
		results[i] = kerneltest.Aligned(int(o.Bytes()))
	}
	return k.Run(tensor.Serial{}, slices.Clone(data), results, kerneltest.Aligned(k.Scratch())) == nil
}
