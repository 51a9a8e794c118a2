package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

func TestMain(m *testing.M) {
	grain = 64 // so that tensors of a few hundred elements are cut
	os.Exit(m.Run())
}

// threads is a Pool that runs every part in a goroutine of its own.
type threads int

func (n threads) Workers() int { return int(n) }

func (n threads) Pays(int) bool { return true }
func (n threads) Ended() bool   { return false }

func (n threads) Run(t Task, parts int) {
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() { t.Do(i) })
	}
	wg.Wait()
}

func (n threads) RunRounds(t RoundTask, rounds, items int) {
	for r := range rounds {
		var wg sync.WaitGroup
		for i := range int(n) {
			wg.Go(func() { t.DoRound(r, items*i/int(n), items*(i+1)/int(n)) })
		}
		wg.Wait()
	}
}

// elem is an element for references: f of a float type, else i, which holds
// the bits of a U64 and is sign- or zero-extended for narrower types.
type elem struct {
	f float64
	i int64
}

// aligned returns n zero bytes aligned to 64.
func aligned(n int) []byte {
	b := asBytes(make([]uint64, n/8+16))
	return b[64-int(uintptr(unsafe.Pointer(&b[0]))%64):][:n:n]
}

func load(t graph.DType, b []byte) []elem {
	out := make([]elem, len(b)/t.Size())
	for i := range out {
		e := &out[i]
		switch t {
		case graph.Bool, graph.U8, graph.U4, graph.U2:
			e.i = int64(b[i])
		case graph.I8, graph.I4, graph.I2:
			e.i = int64(int8(b[i]))
		case graph.I16:
			e.i = int64(view[int16](b)[i])
		case graph.U16:
			e.i = int64(view[uint16](b)[i])
		case graph.I32:
			e.i = int64(view[int32](b)[i])
		case graph.U32:
			e.i = int64(view[uint32](b)[i])
		case graph.I64, graph.U64:
			e.i = view[int64](b)[i]
		case graph.F16:
			e.f = float64(view[num.Float16](b)[i].Float32())
		case graph.BF16:
			e.f = float64(view[num.BFloat16](b)[i].Float32())
		case graph.F8E4M3:
			e.f = float64(num.Float8E4M3(b[i]).Float32())
		case graph.F8E5M2:
			e.f = float64(num.Float8E5M2(b[i]).Float32())
		case graph.F32:
			e.f = float64(f32s(b)[i])
		case graph.F64:
			e.f = f64s(b)[i]
		}
	}
	return out
}

func store(t graph.DType, elems []elem) []byte {
	b := aligned(len(elems) * t.Size())
	for i, e := range elems {
		switch t {
		case graph.Bool, graph.U8, graph.I8:
			b[i] = byte(e.i)
		case graph.I4:
			b[i] = byte(int8(e.i<<4) >> 4)
		case graph.I2:
			b[i] = byte(int8(e.i<<6) >> 6)
		case graph.U4:
			b[i] = byte(e.i & 15)
		case graph.U2:
			b[i] = byte(e.i & 3)
		case graph.I16, graph.U16:
			view[int16](b)[i] = int16(e.i)
		case graph.I32, graph.U32:
			view[int32](b)[i] = int32(e.i)
		case graph.I64, graph.U64:
			view[int64](b)[i] = e.i
		case graph.F16:
			view[num.Float16](b)[i] = num.Float16From64(e.f)
		case graph.BF16:
			view[num.BFloat16](b)[i] = num.BFloat16From64(e.f)
		case graph.F8E4M3:
			b[i] = byte(num.Float8E4M3From64(e.f))
		case graph.F8E5M2:
			b[i] = byte(num.Float8E5M2From64(e.f))
		case graph.F32:
			f32s(b)[i] = float32(e.f)
		case graph.F64:
			f64s(b)[i] = e.f
		}
	}
	return b
}

// normal gives e the range of t.
func normal(t graph.DType, e elem) elem { return load(t, store(t, []elem{e}))[0] }

var (
	intTypes   = []graph.DType{graph.I8, graph.U8, graph.I16, graph.U16, graph.I32, graph.U32, graph.I64, graph.U64}
	floatTypes = []graph.DType{graph.F16, graph.BF16, graph.F32, graph.F64}
	numTypes   = slices.Concat(intTypes, floatTypes)
	allTypes   = slices.Concat(numTypes, []graph.DType{graph.Bool, graph.I4, graph.U4, graph.I2, graph.U2, graph.F8E4M3, graph.F8E5M2})
)

// someFloats and someInts are drawn often.
var (
	someFloats = []float64{0, math.Copysign(0, -1), 1, -1, 2, 0.5, -0.5, 1.5, 2.5, -2.5, 3, math.Inf(1), math.Inf(-1), math.NaN(),
		1e-30, -1e-30, 1e30, -1e30, 65504, 255.5, 1e-45, 88, -88, 3e9, -3e9, 1e19}
	someInts = []int64{0, 1, -1, 2, 3, 7, 8, 127, 128, -128, 255, 32767, -32768, 65535, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
)

func drawElem(t *rapid.T, d graph.DType) elem {
	var e elem
	switch {
	case d == graph.Bool:
		e.i = rapid.Int64Range(0, 1).Draw(t, "bool")
	case d.IsFloat():
		if rapid.IntRange(0, 3).Draw(t, "special") == 0 {
			e.f = rapid.SampledFrom(someFloats).Draw(t, "float")
		} else {
			e.f = rapid.Float64Range(-20, 20).Draw(t, "float")
		}
	default:
		if rapid.Bool().Draw(t, "special") {
			e.i = rapid.SampledFrom(someInts).Draw(t, "int")
		} else {
			e.i = rapid.Int64Range(-20, 20).Draw(t, "int")
		}
	}
	return normal(d, e)
}

// drawTensor draws a few elements and repeats them in an order of its own, so
// that tensors big enough to be cut stay cheap to draw.
func drawTensor(t *rapid.T, tt graph.TensorType) []byte {
	pool := make([]elem, rapid.IntRange(1, 12).Draw(t, "distinct"))
	for i := range pool {
		pool[i] = drawElem(t, tt.DType)
	}
	elems := make([]elem, elements(tt.Shape))
	r := rapid.Uint64().Draw(t, "order")
	for i := range elems {
		r = r*6364136223846793005 + 1442695040888963407
		elems[i] = pool[r>>33%uint64(len(pool))]
	}
	return store(tt.DType, elems)
}

// drawShape draws a shape of up to 7 axes and some thousand elements. Its
// dimensions come from a seed: drawn one by one they would nearly all be small.
func drawShape(t *rapid.T, minRank int) []int64 {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shape"), 0))
	shape := make([]int64, minRank+r.IntN(8-minRank))
	left := int64(1) << r.IntN(13)
	for i := range shape {
		shape[i] = 1 + r.Int64N(max(1, min(left, 1<<r.IntN(13))))
		left /= shape[i]
		if r.IntN(60) == 0 {
			shape[i] = 0
			left = 3
		}
	}
	r.Shuffle(len(shape), func(i, j int) { shape[i], shape[j] = shape[j], shape[i] })
	return shape
}

// drawBroadcast draws a shape that broadcasts to shape.
func drawBroadcast(t *rapid.T, shape []int64) []int64 {
	s := slices.Clone(shape[rapid.IntRange(0, len(shape)).Draw(t, "skip"):])
	for i := range s {
		if rapid.Bool().Draw(t, "stretched") {
			s[i] = 1
		}
	}
	return s
}

// fataler is *testing.T or *rapid.T.
type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// run computes op in one thread, in several, and in place where that is
// allowed, and fails if the results differ.
func run(t fataler, op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte) {
	t.Helper()
	out, err := op.Infer(in)
	if err != nil {
		t.Fatalf("%s %+v of %v: %v", op.Kind(), op, in, err)
	}
	k, err := New(op, in, out)
	if err != nil {
		t.Fatalf("%v: %v", in, err)
	}
	scratch := aligned(k.Scratch())
	compute := func(p Pool, data [][]byte, inPlace int) [][]byte {
		for i := range scratch {
			scratch[i] = 0xa5
		}
		results := make([][]byte, len(out))
		for i, o := range out {
			results[i] = aligned(elements(o.Shape) * o.DType.Size())
			for j := range results[i] {
				results[i][j] = 0x5a
			}
		}
		if inPlace >= 0 {
			data = slices.Clone(data)
			copy(results[0], data[inPlace])
			data[inPlace] = results[0]
		}
		if err := k.Run(p, data, results, scratch); err != nil {
			t.Fatalf("%s %+v of %v: %v", op.Kind(), op, in, err)
		}
		return results
	}
	want := compute(Serial{}, data, -1)
	same := func(how string, got [][]byte) {
		t.Helper()
		for i := range want {
			if !slices.Equal(want[i], got[i]) {
				t.Fatalf("%s %+v of %v: %s gives other results", op.Kind(), op, in, how)
			}
		}
	}
	same("another run", compute(Serial{}, data, -1))
	same("a pool of 4", compute(threads(4), data, -1))
	if p, ok := k.(InPlacer); ok {
		for i := range in {
			if p.InPlace(i) {
				same(fmt.Sprintf("in place of operand %d", i), compute(threads(3), data, i))
			}
		}
	}
	return out, want
}

// coords calls fn for every coordinate of shape in row-major order.
func coords(shape []int64, fn func(at []int64, flat int)) {
	at := make([]int64, len(shape))
	for flat := range elements(shape) {
		fn(at, flat)
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < shape[i] {
				break
			}
			at[i] = 0
		}
	}
}

// flatten returns the row-major index of the coordinates, broadcast to shape.
func flatten(shape, at []int64) int {
	n := int64(0)
	at = at[len(at)-len(shape):]
	for i, d := range shape {
		c := at[i]
		if d == 1 {
			c = 0
		}
		n = n*d + c
	}
	return int(n)
}

func TestSpanCoversAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5000).Draw(t, "n")
		parts := rapid.IntRange(1, maxParts).Draw(t, "parts")
		unit := rapid.IntRange(1, 512).Draw(t, "unit")
		end := 0
		for part := range parts {
			lo, hi := span(n, parts, part, unit)
			if lo != end || hi < lo || hi != n && hi%unit != 0 {
				t.Fatalf("part %d of %d is %d to %d after %d", part, parts, lo, hi, end)
			}
			end = hi
		}
		if end != n {
			t.Fatalf("the parts end at %d, want %d", end, n)
		}
	})
}

func TestLoopVisitsEveryRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := drawShape(t, 0)
		operands := [][]int64{drawBroadcast(t, shape), drawBroadcast(t, shape)}
		l, err := broadcast(shape, operands...)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if l.rows*l.inner != elements(shape) {
			t.Fatalf("%d rows of %d for %v", l.rows, l.inner, shape)
		}
		if l.rows == 0 {
			return
		}
		var c, s cursor
		l.seek(&c, 0)
		coords(shape, func(at []int64, flat int) {
			row, col := flat/l.inner, flat%l.inner
			if col == 0 && row > 0 {
				l.next(&c)
			}
			l.seek(&s, row)
			for k, o := range operands {
				if got, want := c.off[k]+col*l.stride(k), flatten(o, at); got != want || c.off[k] != s.off[k] {
					t.Fatalf("operand %d at %v is %d, after a seek %d, want %d", k, at, got, s.off[k]+col*l.stride(k), want)
				}
			}
		})
	})
}

func TestCut(t *testing.T) {
	require.Equal(t, 0, cut(threads(8), 0, 1))
	require.Equal(t, 1, cut(threads(8), grain, 1))
	require.Equal(t, 2, cut(threads(8), 2*grain, 1))
	require.Equal(t, 1, cut(Serial{}, 100*grain, 1))
	require.Equal(t, 32, cut(threads(8), 100*grain, 1))
	require.Equal(t, maxParts, cut(threads(1000), 100*grain, 1))
}
