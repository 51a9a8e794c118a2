package kernel

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

// castReference converts one element by exact arithmetic.
func castReference(from, to graph.DType, e elem) elem {
	if from.IsFloat() {
		switch {
		case to == graph.Bool:
			return fromTruth(e.f != 0)
		case to.IsFloat():
			return e // store rounds
		}
		v, _ := new(big.Int), 0
		fits := !math.IsNaN(e.f) && !math.IsInf(e.f, 0)
		if fits {
			new(big.Float).SetFloat64(e.f).Int(v) // truncates
			switch to {
			case graph.I32:
				fits = v.IsInt64() && v.Int64() == int64(int32(v.Int64()))
			case graph.U64:
				fits = v.IsInt64() || v.IsUint64()
			default:
				fits = v.IsInt64()
			}
		}
		switch {
		case fits:
			return wrapped(v)
		case to == graph.I32:
			return elem{i: math.MinInt32}
		}
		return normal(to, elem{i: math.MinInt64})
	}
	switch {
	case to == graph.Bool:
		return fromTruth(e.i != 0)
	case to == graph.F32:
		f, _ := new(big.Float).SetInt(exact(from, e)).Float32()
		return elem{f: float64(f)}
	case to == graph.F64:
		f, _ := new(big.Float).SetInt(exact(from, e)).Float64()
		return elem{f: f}
	case to.IsFloat():
		// Rounding to odd at 40 bits keeps the second rounding honest.
		f := new(big.Float).SetInt(exact(from, e))
		cut := new(big.Float).SetPrec(40).SetMode(big.ToZero).Set(f)
		v, _ := cut.Float64()
		if cut.Acc() != big.Exact {
			v = math.Nextafter(v, v*2)
		}
		return elem{f: v}
	}
	return e // store wraps
}

func TestCast(t *testing.T) {
	checkPaths(t, func(t *rapid.T) {
		from := rapid.SampledFrom(allTypes).Draw(t, "from")
		to := rapid.SampledFrom(allTypes).Draw(t, "to")
		in := graph.TensorType{DType: from, Shape: drawShape(t, 0)}
		x := drawTensor(t, in)
		out, got := run(t, &graph.Cast{To: to}, []graph.TensorType{in}, [][]byte{x})
		want := load(from, x)
		for i, e := range want {
			want[i] = castReference(from, to, e)
		}
		compare(t, "cast from "+from.String(), out[0], got[0], want, 0)
	})
}

// TestCastRoundsOnce converts integers just above a tie that float32 and
// float64 can't tell from it.
func TestCastRoundsOnce(t *testing.T) {
	for _, c := range []struct {
		from graph.DType
		x    int64
	}{
		{graph.I32, 1<<30 + 1<<22 + 1}, {graph.U32, 1<<31 + 1<<23 + 1}, {graph.I64, 1<<62 + 1<<54 + 1}, {graph.U64, -1<<63 + 1<<55 + 1},
		{graph.I64, -(1<<62 + 1<<54 + 1)}, {graph.I64, 1<<62 + 1<<54}, {graph.I64, 1<<62 + 1<<54 - 1},
	} {
		in := graph.TensorType{DType: c.from}
		out, got := run(t, &graph.Cast{To: graph.BF16}, []graph.TensorType{in}, [][]byte{store(c.from, []elem{{i: c.x}})})
		compare(t, c, out[0], got[0], []elem{castReference(c.from, graph.BF16, elem{i: c.x})}, 0)
	}
}
