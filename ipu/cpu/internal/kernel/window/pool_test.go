package window

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func drawPool(t *rapid.T, d graph.DType) (kerneltest.Slide, graph.TensorType) {
	s := kerneltest.DrawSlide(t, rapid.IntRange(1, 4).Draw(t, "axes"))
	n, c := rapid.SampledFrom([]int64{0, 1, 1, 2}).Draw(t, "batch"), rapid.Int64Range(1, 4).Draw(t, "channels")
	return s, graph.TensorType{DType: d, Shape: append([]int64{n, c}, s.Size...)}
}

func TestMaxPool(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.NumTypes).Draw(t, "type")
		s, tt := drawPool(t, d)
		op := &graph.MaxPool{Kernel: s.Kernel, Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End,
			Ceil: rapid.Bool().Draw(t, "ceil"), ColumnMajor: rapid.Bool().Draw(t, "columns")}
		in := []graph.TensorType{tt}
		x := kerneltest.DrawSource(t).Tensor(tt)
		out, got := run(t, op, in, [][]byte{x})

		elems := kerneltest.Load(d, x)
		plane := tensor.Elements(s.Size)
		want := make([]kerneltest.Elem, tensor.Elements(out[0].Shape))
		indices := make([]int64, len(want))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			base := (int(at[0])*int(tt.Shape[1]) + int(at[1])) * plane
			best := kerneltest.Elem{}
			found := false
			s.Window(at[2:], func(_, inside int, pos []int64) {
				if inside < 0 {
					return
				}
				e := elems[base+inside]
				larger := e.I > best.I || e.F > best.F || e.F != e.F && best.F == best.F
				if d == graph.U64 {
					larger = uint64(e.I) > uint64(best.I)
				}
				if found && !larger {
					return
				}
				best, found = e, true
				index := inside
				if op.ColumnMajor {
					index = 0
					for i := len(pos) - 1; i >= 0; i-- {
						index = index*int(s.Size[i]) + int(pos[i])
					}
				}
				indices[flat] = int64(base + index)
			})
			if !found {
				best = lowest(d)
			}
			want[flat] = best
		})
		kerneltest.Compare(t, op, out[0], got[0], want, 0)
		if diff := cmp.Diff(indices, tensor.View[int64](got[1])); diff != "" && len(indices) > 0 {
			t.Fatalf("%+v of %v: indices: %s", op, tt, diff)
		}

		// Without indices another path is taken.
		k, err := newKernel(op, in, out)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.Threads(4)} {
			alone := kerneltest.Aligned(len(got[0]))
			if err := k.Run(p, [][]byte{x}, [][]byte{alone}, kerneltest.Aligned(k.Scratch())); err != nil {
				t.Fatalf("%v", err)
			}
			kerneltest.Compare(t, op, out[0], alone, want, 0)
		}
	})
}

// lowest is the maximum of nothing.
func lowest(d graph.DType) kerneltest.Elem {
	switch {
	case d.IsFloat():
		return kerneltest.Elem{F: math.Inf(-1)}
	case d.IsSigned():
		return kerneltest.Elem{I: -1 << (8*d.Size() - 1)}
	}
	return kerneltest.Elem{}
}

func TestAveragePool(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		s, tt := drawPool(t, d)
		op := &graph.AveragePool{Kernel: s.Kernel, Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End,
			Ceil: rapid.Bool().Draw(t, "ceil"), CountIncludePad: rapid.Bool().Draw(t, "pads")}
		x := kerneltest.DrawSource(t).Tensor(tt)
		out, got := run(t, op, []graph.TensorType{tt}, [][]byte{x})

		elems := kerneltest.Values(tt, x)
		plane := tensor.Elements(s.Size)
		want := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			base := (int(at[0])*int(tt.Shape[1]) + int(at[1])) * plane
			y, n := &want[flat], 0.0
			s.Window(at[2:], func(_, inside int, _ []int64) {
				if inside >= 0 {
					y.Value += elems[base+inside]
					y.Size += math.Abs(elems[base+inside])
				}
				if inside >= 0 || inside == -1 && op.CountIncludePad {
					n++
				}
			})
			y.Value /= n
			y.Size /= n
		})
		kerneltest.CompareSums(t, op, out[0], got[0], want)
	})
}

// TestGlobalPool takes the path for windows as long as a row.
func TestGlobalPool(t *testing.T) {
	tt := graph.TensorType{DType: graph.F32, Shape: []int64{1, 2, 7, 9}}
	x := make([]kerneltest.Elem, tensor.Elements(tt.Shape))
	for i := range x {
		x[i].F = float64(i)
	}
	ones, zeros := []int64{1, 1}, []int64{0, 0}
	data := [][]byte{kerneltest.Store(graph.F32, x)}
	_, mean := run(t, &graph.AveragePool{Kernel: []int64{7, 9}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros}, []graph.TensorType{tt}, data)
	require.Equal(t, []float32{31, 94}, slices.Clone(tensor.F32s(mean[0])))
	_, most := run(t, &graph.MaxPool{Kernel: []int64{7, 9}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros}, []graph.TensorType{tt}, data)
	require.Equal(t, []float32{62, 125}, slices.Clone(tensor.F32s(most[0])))
	require.Equal(t, []int64{62, 125}, slices.Clone(tensor.View[int64](most[1])))
}

// TestMeansOfBlocks compares means of planes in NCHW with those in NCHWc,
// bit for bit, on each path, and with means by AveragePool.
func TestMeansOfBlocks(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		if tensor.Path == tensor.PathGo {
			return
		}
		lanes := tensor.Path.Lanes()
		r := kerneltest.Seeded(7)
		for _, pixels := range []int{1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 49, 63, 64, 65, 100, 128, 196, 1024, 1025, 2500} {
			planar, blocked := make([]float32, lanes*pixels), make([]float32, lanes*pixels)
			for c := range lanes {
				for p := range pixels {
					v := float32(r.NormFloat64())
					planar[c*pixels+p], blocked[p*lanes+c] = v, v
				}
			}
			n, l := int64(pixels), int64(lanes)
			op := &graph.Reduce{Fn: graph.ReduceMean, Axes: []int64{2, 3}, KeepDims: true}
			_, a := run(t, op, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, l, 1, n}}}, [][]byte{tensor.RawBytes(planar)})
			_, b := run(t, op, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, 1, 1, n, l}}}, [][]byte{tensor.RawBytes(blocked)})
			require.Equal(t, a[0], b[0], "%d pixels", pixels)
			ones, zeros := []int64{1, 1}, []int64{0, 0}
			pool := &graph.AveragePool{Kernel: []int64{1, n}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros}
			_, c := run(t, pool, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, l, 1, n}}}, [][]byte{tensor.RawBytes(planar)})
			require.Equal(t, a[0], c[0], "%d pixels", pixels)
		}
	})
}
