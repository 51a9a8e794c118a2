package kernel

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawPool(t *rapid.T, d graph.DType) (slide, graph.TensorType) {
	s := drawSlide(t, rapid.IntRange(1, 4).Draw(t, "axes"))
	n, c := rapid.SampledFrom([]int64{0, 1, 1, 2}).Draw(t, "batch"), rapid.Int64Range(1, 4).Draw(t, "channels")
	return s, graph.TensorType{DType: d, Shape: append([]int64{n, c}, s.size...)}
}

func TestMaxPool(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(numTypes).Draw(t, "type")
		s, tt := drawPool(t, d)
		op := &graph.MaxPool{Kernel: s.kernel, Strides: s.strides, Dilations: s.dilations, PadsBegin: s.begin, PadsEnd: s.end,
			Ceil: rapid.Bool().Draw(t, "ceil"), ColumnMajor: rapid.Bool().Draw(t, "columns")}
		in := []graph.TensorType{tt}
		x := drawSource(t).tensor(tt)
		out, got := run(t, op, in, [][]byte{x})

		elems := load(d, x)
		plane := elements(s.size)
		want := make([]elem, elements(out[0].Shape))
		indices := make([]int64, len(want))
		coords(out[0].Shape, func(at []int64, flat int) {
			base := (int(at[0])*int(tt.Shape[1]) + int(at[1])) * plane
			best := elem{}
			found := false
			s.window(at[2:], func(_, inside int, pos []int64) {
				if inside < 0 {
					return
				}
				e := elems[base+inside]
				larger := e.i > best.i || e.f > best.f || e.f != e.f && best.f == best.f
				if d == graph.U64 {
					larger = uint64(e.i) > uint64(best.i)
				}
				if found && !larger {
					return
				}
				best, found = e, true
				index := inside
				if op.ColumnMajor {
					index = 0
					for i := len(pos) - 1; i >= 0; i-- {
						index = index*int(s.size[i]) + int(pos[i])
					}
				}
				indices[flat] = int64(base + index)
			})
			if !found {
				best = lowest(d)
			}
			want[flat] = best
		})
		compare(t, op, out[0], got[0], want, 0)
		if diff := cmp.Diff(indices, view[int64](got[1])); diff != "" && len(indices) > 0 {
			t.Fatalf("%+v of %v: indices: %s", op, tt, diff)
		}

		// Without indices another path is taken.
		k, err := newKernel(op, in, out)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, p := range []Pool{Serial{}, threads(4)} {
			alone := aligned(len(got[0]))
			if err := k.Run(p, [][]byte{x}, [][]byte{alone}, aligned(k.Scratch())); err != nil {
				t.Fatalf("%v", err)
			}
			compare(t, op, out[0], alone, want, 0)
		}
	})
}

// lowest is the maximum of nothing.
func lowest(d graph.DType) elem {
	switch {
	case d.IsFloat():
		return elem{f: math.Inf(-1)}
	case d.IsSigned():
		return elem{i: -1 << (8*d.Size() - 1)}
	}
	return elem{}
}

func TestAveragePool(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(floatTypes).Draw(t, "type")
		s, tt := drawPool(t, d)
		op := &graph.AveragePool{Kernel: s.kernel, Strides: s.strides, Dilations: s.dilations, PadsBegin: s.begin, PadsEnd: s.end,
			Ceil: rapid.Bool().Draw(t, "ceil"), CountIncludePad: rapid.Bool().Draw(t, "pads")}
		x := drawSource(t).tensor(tt)
		out, got := run(t, op, []graph.TensorType{tt}, [][]byte{x})

		elems := values(tt, x)
		plane := elements(s.size)
		want := make([]wanted, elements(out[0].Shape))
		coords(out[0].Shape, func(at []int64, flat int) {
			base := (int(at[0])*int(tt.Shape[1]) + int(at[1])) * plane
			y, n := &want[flat], 0.0
			s.window(at[2:], func(_, inside int, _ []int64) {
				if inside >= 0 {
					y.value += elems[base+inside]
					y.size += math.Abs(elems[base+inside])
				}
				if inside >= 0 || inside == -1 && op.CountIncludePad {
					n++
				}
			})
			y.value /= n
			y.size /= n
		})
		compareSums(t, op, out[0], got[0], want)
	})
}

// TestGlobalPool takes the path for windows as long as a row.
func TestGlobalPool(t *testing.T) {
	tt := graph.TensorType{DType: graph.F32, Shape: []int64{1, 2, 7, 9}}
	x := make([]elem, elements(tt.Shape))
	for i := range x {
		x[i].f = float64(i)
	}
	ones, zeros := []int64{1, 1}, []int64{0, 0}
	data := [][]byte{store(graph.F32, x)}
	_, mean := run(t, &graph.AveragePool{Kernel: []int64{7, 9}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros}, []graph.TensorType{tt}, data)
	require.Equal(t, []float32{31, 94}, slices.Clone(f32s(mean[0])))
	_, most := run(t, &graph.MaxPool{Kernel: []int64{7, 9}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros}, []graph.TensorType{tt}, data)
	require.Equal(t, []float32{62, 125}, slices.Clone(f32s(most[0])))
	require.Equal(t, []int64{62, 125}, slices.Clone(view[int64](most[1])))
}

// TestMeansOfBlocks compares means of planes with those of blocks of channels,
// bit for bit, on each path, and with means by AveragePool.
func TestMeansOfBlocks(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		if path == pathGo {
			return
		}
		lanes := path.lanes()
		r := seeded(7)
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
			_, a := run(t, op, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, l, 1, n}}}, [][]byte{rawBytes(planar)})
			_, b := run(t, op, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, 1, 1, n, l}}}, [][]byte{rawBytes(blocked)})
			require.Equal(t, a[0], b[0], "%d pixels", pixels)
			ones, zeros := []int64{1, 1}, []int64{0, 0}
			pool := &graph.AveragePool{Kernel: []int64{1, n}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros}
			_, c := run(t, pool, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, l, 1, n}}}, [][]byte{rawBytes(planar)})
			require.Equal(t, a[0], c[0], "%d pixels", pixels)
		}
	})
}
