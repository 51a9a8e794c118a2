package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

// wanted is an element as a reference computes it in float64: its value and
// the sum of the magnitudes that were added up to it, to which rounding errors
// are proportional.
type wanted struct {
	value, size float64
	open        bool // the operator does not say
}

// roundoff returns the relative rounding error of a type.
func roundoff(t graph.DType) float64 {
	switch t {
	case graph.F16:
		return 0x1p-11
	case graph.BF16:
		return 0x1p-8
	case graph.F32:
		return 0x1p-24
	}
	return 0x1p-53
}

// compareSums fails where got is off by more than accumulated rounding errors
// explain.
func compareSums(t fataler, what any, tt graph.TensorType, got []byte, want []wanted) {
	t.Helper()
	if len(got) != len(want)*tt.DType.Size() {
		t.Fatalf("%v: %d bytes, want %d elements of %v", what, len(got), len(want), tt)
	}
	inner := min(roundoff(tt.DType), roundoff(graph.F32))
	for i, g := range load(tt.DType, got) {
		w := want[i].value
		if g.f == w || g.f != g.f && w != w || want[i].open {
			continue
		}
		if w != w || math.IsInf(w, 0) {
			t.Fatalf("%+v of %v: element %d is %v, want %v", what, tt, i, g.f, w)
		}
		tolerance := 64*inner*want[i].size + 1.5*roundoff(tt.DType)*math.Abs(w)
		switch tt.DType { // of the smallest numbers
		case graph.F16:
			tolerance += 0x1p-25
		case graph.F32, graph.BF16:
			tolerance += 0x1p-132
		}
		if !(math.Abs(g.f-w) <= tolerance) {
			t.Fatalf("%+v of %v: element %d is %v, want %v ± %v", what, tt, i, g.f, w, tolerance)
		}
	}
}

// source draws tensors of moderate numbers, on demand with some NaN and
// infinities in between.
type source struct {
	r       *rand.Rand
	special bool
}

func drawSource(t *rapid.T) *source {
	return &source{seeded(rapid.Uint64().Draw(t, "data")), rapid.IntRange(0, 4).Draw(t, "special") == 0}
}

// seeded returns a generator of random numbers.
func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func (s *source) tensor(tt graph.TensorType) []byte {
	if tt.DType == graph.Invalid {
		return nil
	}
	elems := make([]elem, elements(tt.Shape))
	for i := range elems {
		if tt.DType.IsFloat() {
			elems[i].f = s.r.Float64()*4 - 2
			if s.special && s.r.IntN(50) == 0 {
				elems[i].f = []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e-40}[s.r.IntN(6)]
			}
		} else {
			elems[i].i = s.r.Int64() >> s.r.IntN(64)
		}
	}
	return store(tt.DType, elems)
}

// values loads a tensor of floats.
func values(tt graph.TensorType, b []byte) []float64 {
	var out []float64
	if tt.DType != graph.Invalid {
		for _, e := range load(tt.DType, b) {
			out = append(out, e.f)
		}
	}
	return out
}

// runPacked is run, and fails if packing the operands that the kernel wants
// packed changes the results.
func runPacked(t fataler, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	out, want := run(t, op, in, data)
	k, err := New(op, in, out)
	if err != nil {
		t.Fatalf("%v", err)
	}
	p, ok := k.(Packer)
	if !ok {
		return out, want
	}
	data = slices.Clone(data)
	for i := range in {
		if n := p.Packed(i); n > 0 && data[i] != nil {
			dst := aligned(n)
			p.Pack(i, dst, data[i])
			data[i] = dst
			p.UsePacked(i)
			if p.Packed(i) != n {
				t.Fatalf("operand %d takes %d bytes packed, %d before", i, p.Packed(i), n)
			}
		}
	}
	for _, pool := range []Pool{Serial{}, threads(5), threads(2), Serial{}} {
		var got [][]byte
		for _, o := range out {
			got = append(got, aligned(elements(o.Shape)*o.DType.Size()))
		}
		if err := k.Run(pool, data, got, aligned(k.Scratch())); err != nil {
			t.Fatalf("%v", err)
		}
		for i := range got {
			if !slices.Equal(got[i], want[i]) {
				t.Fatalf("%s %+v of %v: packed operands give other results", op.Kind(), op, in)
			}
		}
	}
	return out, want
}

var matrixTypes = []graph.DType{graph.F32, graph.F64, graph.F16, graph.BF16, graph.I32, graph.U32, graph.I64, graph.U64}

// size draws the size of an axis: mostly near the borders of blocks.
func size(t *rapid.T, name string) int64 {
	return rapid.SampledFrom([]int64{0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 63, 65, 130, 300}).Draw(t, name)
}

// checkProduct compares Y with Σ a(m,k)·b(k,n)·alpha + beta·c.
func checkProduct(t fataler, op any, tt graph.TensorType, got []byte, k int, alpha, beta float64, a, b, c func(flat, k int) elem) {
	t.Helper()
	n := elements(tt.Shape)
	if tt.DType.IsInteger() {
		want := make([]elem, n)
		for i := range want {
			s := int64(0)
			for p := range k {
				s += a(i, p).i * b(i, p).i
			}
			want[i].i = s*int64(alpha) + c(i, 0).i*int64(beta)
		}
		compare(t, op, tt, got, want, 0)
		return
	}
	want := make([]wanted, n)
	for i := range want {
		w := &want[i]
		for p := range k {
			v := alpha * a(i, p).f * b(i, p).f
			w.value += v
			w.size += math.Abs(v)
		}
		if v := beta * c(i, 0).f; beta != 0 {
			w.value += v
			w.size += math.Abs(v)
		}
	}
	compareSums(t, op, tt, got, want)
}

func TestGemm(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		op := &graph.Gemm{TransA: rapid.Bool().Draw(t, "transA"), TransB: rapid.Bool().Draw(t, "transB")}
		op.Alpha = rapid.SampledFrom([]float64{1, 1, 1, 2, -3, 0}).Draw(t, "alpha")
		op.Beta = rapid.SampledFrom([]float64{1, 1, 1, 2, -1, 0}).Draw(t, "beta")
		d := rapid.SampledFrom(matrixTypes).Draw(t, "type")
		m, n, k := size(t, "M"), size(t, "N"), size(t, "K")
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
		s := drawSource(t)
		data := [][]byte{s.tensor(in[0]), s.tensor(in[1]), s.tensor(in[2])}
		out, got := runPacked(t, op, in, data)
		a, b := load(d, data[0]), load(d, data[1])
		var c []elem
		if data[2] != nil {
			c = load(d, data[2])
		}
		checkProduct(t, op, out[0], got[0], int(k), op.Alpha, op.Beta,
			func(i, p int) elem {
				if op.TransA {
					return a[p*int(m)+i/int(n)]
				}
				return a[i/int(n)*int(k)+p]
			},
			func(i, p int) elem {
				if op.TransB {
					return b[i%int(n)*int(k)+p]
				}
				return b[p*int(n)+i%int(n)]
			},
			func(i, _ int) elem {
				if c == nil {
					return elem{}
				}
				return c[flatten(in[2].Shape, []int64{int64(i) / n, int64(i) % n})]
			})
	})
}

func TestMatMul(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(matrixTypes).Draw(t, "type")
		batch := rapid.SliceOfN(rapid.Int64Range(0, 3), 0, 3).Draw(t, "batch")
		m, n, k := size(t, "M"), size(t, "N"), size(t, "K")
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		in := []graph.TensorType{
			of(append(drawBroadcast(t, batch), m, k)...),
			of(append(drawBroadcast(t, batch), k, n)...),
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
		s := drawSource(t)
		data := [][]byte{s.tensor(in[0]), s.tensor(in[1])}
		out, got := runPacked(t, &graph.MatMul{}, in, data)

		lead := out[0].Shape
		if !vectorA {
			lead = slices.Delete(slices.Clone(lead), len(lead)-map[bool]int{false: 2, true: 1}[vectorB], len(lead))
		} else if !vectorB {
			lead = lead[:len(lead)-1]
		}
		var bases [][2]int
		as, bs := in[0].Shape, in[1].Shape
		coords(lead, func(at []int64, _ int) {
			var base [2]int
			if !vectorA {
				base[0] = flatten(as[:len(as)-2], at) * int(m*k)
			}
			if !vectorB {
				base[1] = flatten(bs[:len(bs)-2], at) * int(k*n)
			}
			bases = append(bases, base)
		})
		a, b := load(d, data[0]), load(d, data[1])
		checkProduct(t, "MatMul", out[0], got[0], int(k), 1, 0,
			func(i, p int) elem { return a[bases[i/int(m*n)][0]+i/int(n)%int(m)*int(k)+p] },
			func(i, p int) elem { return b[bases[i/int(m*n)][1]+p*int(n)+i%int(n)] },
			func(int, int) elem { return elem{} })
	})
}

// TestFewRowsThereAndBack multiplies few rows with matrices that are too large
// for the caches, again and again: every other run goes over them backwards.
func TestFewRowsThereAndBack(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for _, size := range [][2]int64{{300, 1017}, {600, 700}, {1500, 1500}} {
			if testing.Short() && size[0] > 300 {
				break
			}
			for m := int64(1); m <= 7; m++ {
				k, n := size[0], size[1]
				in := []graph.TensorType{{DType: graph.F32, Shape: []int64{m, k}}, {DType: graph.F32, Shape: []int64{k, n}}}
				s := &source{r: seeded(uint64(m))}
				data := [][]byte{s.tensor(in[0]), s.tensor(in[1])}
				for _, transposed := range []bool{false, true} {
					op, row, col := &graph.Gemm{Alpha: 1, TransB: transposed}, n, int64(1)
					if transposed {
						in[1].Shape, row, col = []int64{n, k}, 1, k
					}
					_, got := runPacked(t, op, in, data)
					x, w, y := f32s(data[0]), f32s(data[1]), f32s(got[0])
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
	_, err := New(&graph.Gemm{Alpha: 0.5}, []graph.TensorType{mat, mat}, []graph.TensorType{mat})
	require.ErrorContains(t, err, "alpha 0.5")
}

// TestHeavyRunsAllocateNothing runs every kernel of matrices, convolutions,
// pools, norms and recurrences with a pool that cuts the work.
func TestHeavyRunsAllocateNothing(t *testing.T) { eachPath(t, heavyRunsAllocateNothing) }

func heavyRunsAllocateNothing(t *testing.T) {
	for _, d := range []graph.DType{graph.F32, graph.F64, graph.F16} {
		for _, c := range heavyCases(d) {
			out, err := c.op.Infer(c.in)
			require.NoError(t, err)
			k, err := New(c.op, c.in, out)
			require.NoError(t, err)
			s := &source{r: seeded(1)}
			var data, results [][]byte
			for _, tt := range c.in {
				data = append(data, s.tensor(tt))
			}
			for _, tt := range out {
				results = append(results, aligned(elements(tt.Shape)*tt.DType.Size()))
			}
			scratch := aligned(k.Scratch())
			for _, p := range []Pool{Serial{}, inTurn(4)} {
				n := testing.AllocsPerRun(2, func() {
					if err := k.Run(p, data, results, scratch); err != nil {
						t.Fatal(err)
					}
				})
				require.Zero(t, n, "%s of %v with %d workers", c.op.Kind(), c.in, p.Workers())
			}
		}
	}
}

type heavyCase struct {
	op graph.Op
	in []graph.TensorType
}

func heavyCases(d graph.DType) []heavyCase {
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	ones, zeros := []int64{1, 1}, []int64{0, 0}
	lstm := &graph.LSTM{
		Hidden: 40, Direction: "bidirectional", Activations: []string{"Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Elu", "Softplus"},
		ActAlpha: []float64{0, 0, 0, 0.2, 1, 0}, ActBeta: []float64{0, 0, 0, 0.5, 0, 0},
	}
	return []heavyCase{
		{&graph.MatMul{}, []graph.TensorType{of(3, 40, 50), of(3, 50, 60)}},
		{&graph.MatMul{}, []graph.TensorType{of(50), of(50, 60)}},
		{&graph.Gemm{Alpha: 1, Beta: 1, TransB: true}, []graph.TensorType{of(40, 50), of(60, 50), of(60)}},
		{&graph.Gemm{Alpha: 1, Bounded: d != graph.F64}, []graph.TensorType{of(40, 50), of(50, 60)}},
		{&graph.Gemm{Alpha: 1, Beta: 1, TransB: true}, []graph.TensorType{of(1, 50), of(60, 50), of(60)}},
		{&graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1},
			[]graph.TensorType{of(1, 8, 12, 12), of(16, 8, 3, 3), of(16)}},
		{&graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 8},
			[]graph.TensorType{of(1, 8, 12, 12), of(8, 1, 3, 3)}},
		{&graph.MaxPool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: ones},
			[]graph.TensorType{of(1, 8, 12, 12)}},
		{&graph.AveragePool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: ones},
			[]graph.TensorType{of(1, 8, 12, 12)}},
		{&graph.BatchNorm{Epsilon: 1e-5}, []graph.TensorType{of(2, 8, 50), of(8), of(8), of(8), of(8)}},
		{&graph.Softmax{Axis: 2}, []graph.TensorType{of(2, 8, 50)}},
		{&graph.Softmax{Axis: 1, Log: true}, []graph.TensorType{of(2, 8, 50)}},
		{&graph.LayerNorm{Axis: 2, Epsilon: 1e-5}, []graph.TensorType{of(2, 8, 50), of(50), of(50)}},
		{&graph.RMSNorm{Axis: 2, Epsilon: 1e-5}, []graph.TensorType{of(2, 8, 50), of(50)}},
		{&graph.Attention{Heads: 4, KVHeads: 2, Scale: 0.2, Softcap: 3, Causal: true, Scores: graph.ScoresBiased},
			[]graph.TensorType{of(2, 40, 4*16), of(2, 2, 50, 16), of(2, 2, 50, 8), of(50)}},
		{&graph.LinearAttention{Heads: 4, KVHeads: 2, Scale: 0.2, Gated: true, Delta: true},
			[]graph.TensorType{of(2, 9, 4*16), of(2, 9, 2*16), of(2, 9, 2*8), of(2, 2, 16, 8), of(2, 9, 2), of(2, 9, 2)}},
		{&graph.DFT{Axis: 1, Length: 74, OneSided: true}, []graph.TensorType{of(8, 64, 2)}},
		{&graph.GRU{Hidden: 40, Direction: "reverse", Activations: []string{"Sigmoid", "Tanh"}, ActAlpha: make([]float64, 2), ActBeta: make([]float64, 2)},
			[]graph.TensorType{of(7, 2, 30), of(1, 120, 30), of(1, 120, 40)}},
		{lstm, []graph.TensorType{of(7, 2, 30), of(2, 160, 30), of(2, 160, 40), of(2, 320)}},
	}
}
