package gemm

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

var matrixTypes = []graph.DType{graph.F32, graph.F64, graph.F16, graph.BF16, graph.I32, graph.U32, graph.I64, graph.U64}

// checkProduct compares Y with Σ a(m,k)·b(k,n)·alpha + beta·c.
func checkProduct(t kerneltest.Fataler, op any, tt graph.TensorType, got []byte, k int, alpha, beta float64, a, b, c func(flat, k int) kerneltest.Elem) {
	t.Helper()
	n := tensor.Elements(tt.Shape)
	if tt.DType.IsInteger() {
		want := make([]kerneltest.Elem, n)
		for i := range want {
			s := int64(0)
			for p := range k {
				s += a(i, p).I * b(i, p).I
			}
			want[i].I = s*int64(alpha) + c(i, 0).I*int64(beta)
		}
		kerneltest.Compare(t, op, tt, got, want, 0)
		return
	}
	want := make([]kerneltest.Wanted, n)
	for i := range want {
		w := &want[i]
		for p := range k {
			v := alpha * a(i, p).F * b(i, p).F
			w.Value += v
			w.Size += math.Abs(v)
		}
		if v := beta * c(i, 0).F; beta != 0 {
			w.Value += v
			w.Size += math.Abs(v)
		}
	}
	kerneltest.CompareSums(t, op, tt, got, want)
}

func TestGemm(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		op := &graph.Gemm{TransA: rapid.Bool().Draw(t, "transA"), TransB: rapid.Bool().Draw(t, "transB")}
		op.Alpha = rapid.SampledFrom([]float64{1, 1, 1, 2, -3, 0}).Draw(t, "alpha")
		op.Beta = rapid.SampledFrom([]float64{1, 1, 1, 2, -1, 0}).Draw(t, "beta")
		d := rapid.SampledFrom(matrixTypes).Draw(t, "type")
		m, n, k := kerneltest.Size(t, "M"), kerneltest.Size(t, "N"), kerneltest.Size(t, "K")
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		in := []graph.TensorType{of(m, k), of(k, n), {}}
		if op.TransA {
			in[0] = of(k, m)
		}
		if op.TransB {
			in[1] = of(n, k)
		}
		if rapid.Bool().Draw(t, "c") {
			in[2] = of(rapid.SampledFrom([][]int64{{}, {n}, {1}, {1, n}, {m, 1}, {m, n}}).Draw(t, "C")...)
		}
		s := kerneltest.DrawSource(t)
		data := [][]byte{s.Tensor(in[0]), s.Tensor(in[1]), s.Tensor(in[2])}
		out, got := runPacked(t, op, in, data)
		a, b := kerneltest.Load(d, data[0]), kerneltest.Load(d, data[1])
		var c []kerneltest.Elem
		if data[2] != nil {
			c = kerneltest.Load(d, data[2])
		}
		checkProduct(t, op, out[0], got[0], int(k), op.Alpha, op.Beta,
			func(i, p int) kerneltest.Elem {
				if op.TransA {
					return a[p*int(m)+i/int(n)]
				}
				return a[i/int(n)*int(k)+p]
			},
			func(i, p int) kerneltest.Elem {
				if op.TransB {
					return b[i%int(n)*int(k)+p]
				}
				return b[p*int(n)+i%int(n)]
			},
			func(i, _ int) kerneltest.Elem {
				if c == nil {
					return kerneltest.Elem{}
				}
				return c[kerneltest.Flatten(in[2].Shape, []int64{int64(i) / n, int64(i) % n})]
			})
	})
}

func TestMatMul(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(matrixTypes).Draw(t, "type")
		batch := rapid.SliceOfN(rapid.Int64Range(0, 3), 0, 3).Draw(t, "batch")
		m, n, k := kerneltest.Size(t, "M"), kerneltest.Size(t, "N"), kerneltest.Size(t, "K")
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		in := []graph.TensorType{
			of(append(kerneltest.DrawBroadcast(t, batch), m, k)...),
			of(append(kerneltest.DrawBroadcast(t, batch), k, n)...),
		}
		vectorA, vectorB := false, false
		switch rapid.IntRange(0, 5).Draw(t, "vector") {
		case 0:
			in[0], vectorA, m = of(k), true, 1
		case 1:
			in[1], vectorB, n = of(k), true, 1
		case 2:
			in[0], in[1], vectorA, vectorB, m, n = of(k), of(k), true, true, 1, 1
		}
		s := kerneltest.DrawSource(t)
		data := [][]byte{s.Tensor(in[0]), s.Tensor(in[1])}
		out, got := runPacked(t, &graph.MatMul{}, in, data)

		lead := out[0].Shape
		if !vectorA {
			lead = slices.Delete(slices.Clone(lead), len(lead)-map[bool]int{false: 2, true: 1}[vectorB], len(lead))
		} else if !vectorB {
			lead = lead[:len(lead)-1]
		}
		var bases [][2]int
		as, bs := in[0].Shape, in[1].Shape
		kerneltest.Coords(lead, func(at []int64, _ int) {
			var base [2]int
			if !vectorA {
				base[0] = kerneltest.Flatten(as[:len(as)-2], at) * int(m*k)
			}
			if !vectorB {
				base[1] = kerneltest.Flatten(bs[:len(bs)-2], at) * int(k*n)
			}
			bases = append(bases, base)
		})
		a, b := kerneltest.Load(d, data[0]), kerneltest.Load(d, data[1])
		checkProduct(t, "MatMul", out[0], got[0], int(k), 1, 0,
			func(i, p int) kerneltest.Elem { return a[bases[i/int(m*n)][0]+i/int(n)%int(m)*int(k)+p] },
			func(i, p int) kerneltest.Elem { return b[bases[i/int(m*n)][1]+p*int(n)+i%int(n)] },
			func(int, int) kerneltest.Elem { return kerneltest.Elem{} })
	})
}

// TestFewRowsThereAndBack multiplies few rows with matrices that are too large
// for the caches, again and again: every other run goes over them backwards.
func TestFewRowsThereAndBack(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		for _, size := range [][2]int64{{300, 1017}, {600, 700}, {1500, 1500}} {
			if testing.Short() && size[0] > 300 {
				break
			}
			for m := int64(1); m <= 7; m++ {
				k, n := size[0], size[1]
				in := []graph.TensorType{{DType: graph.F32, Shape: []int64{m, k}}, {DType: graph.F32, Shape: []int64{k, n}}}
				s := &kerneltest.Source{R: kerneltest.Seeded(uint64(m))}
				data := [][]byte{s.Tensor(in[0]), s.Tensor(in[1])}
				for _, transposed := range []bool{false, true} {
					op, row, col := &graph.Gemm{Alpha: 1, TransB: transposed}, n, int64(1)
					if transposed {
						in[1].Shape, row, col = []int64{n, k}, 1, k
					}
					_, got := runPacked(t, op, in, data)
					x, w, y := tensor.F32s(data[0]), tensor.F32s(data[1]), tensor.F32s(got[0])
					for _, at := range [][2]int64{{0, 0}, {0, n - 1}, {m - 1, 31}, {m - 1, n / 2}, {m - 1, n - 2}} {
						sum := 0.0
						for p := range k {
							sum += float64(x[at[0]*k+p]) * float64(w[p*row+at[1]*col])
						}
						require.InDelta(t, sum, y[at[0]*n+at[1]], 1e-2)
					}
				}
			}
		}
	})
}

func TestGemmRefusesFractionsForIntegers(t *testing.T) {
	mat := graph.TensorType{DType: graph.I32, Shape: []int64{2, 2}}
	_, err := newKernel(&graph.Gemm{Alpha: 0.5}, []graph.TensorType{mat, mat}, []graph.TensorType{mat})
	require.ErrorContains(t, err, "alpha 0.5")
}
