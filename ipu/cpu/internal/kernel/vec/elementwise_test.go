package vec

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// unaryReference computes one float.
func unaryReference(o *graph.Unary, x float64) float64 {
	switch o.Fn {
	case graph.Abs:
		return math.Abs(x)
	case graph.Neg:
		return -x
	case graph.Sign:
		if x == 0 || x != x {
			return x
		}
		return math.Copysign(1, x)
	case graph.Reciprocal:
		return 1 / x
	case graph.Floor:
		return math.Floor(x)
	case graph.Ceil:
		return math.Ceil(x)
	case graph.Round:
		return math.RoundToEven(x)
	case graph.Sqrt:
		return math.Sqrt(x)
	case graph.Sigmoid:
		return 1 / (1 + math.Exp(-x))
	case graph.Relu:
		return math.Max(x, 0)
	case graph.LeakyRelu:
		if x < 0 {
			return o.Alpha * x
		}
		return x
	case graph.HardSigmoid:
		return math.Max(0, math.Min(1, o.Alpha*x+o.Beta))
	case graph.Softplus:
		if x > 700 {
			return x
		}
		return math.Log1p(math.Exp(x))
	case graph.Softsign:
		return x / (1 + math.Abs(x))
	case graph.Elu:
		if x < 0 {
			return o.Alpha * math.Expm1(x)
		}
		return x
	}
	return scalar64[o.Fn](x)
}

func TestUnaryFloats(t *testing.T) {
	for _, fn := range kerneltest.UnaryFns {
		t.Run(string(fn), func(t *testing.T) {
			kerneltest.CheckPaths(t, func(t *rapid.T) {
				// Alpha and Beta are exact in every type.
				op := &graph.Unary{Fn: fn, Alpha: 0.25, Beta: 0.5}
				tt := graph.TensorType{DType: rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type"), Shape: kerneltest.DrawShape(t, 0)}
				x := kerneltest.DrawTensor(t, tt)
				out, got := run(t, op, []graph.TensorType{tt}, [][]byte{x})
				want := kerneltest.Load(tt.DType, x)
				for i := range want {
					want[i].F = unaryReference(op, want[i].F)
				}
				tolerance := 1.0
				switch {
				case tt.DType == graph.F64:
					tolerance = 8 // the reference's own error counts too
				case tt.DType == graph.F32 && tensor.Path != tensor.PathGo:
					tolerance = 3
				}
				kerneltest.Compare(t, fn, out[0], got[0], want, tolerance)
			})
		})
	}
}

func TestUnaryIntegers(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.IntTypes).Draw(t, "type")
		fns := []graph.UnaryFn{graph.Abs, graph.Sign}
		if d.IsSigned() {
			fns = append(fns, graph.Neg, graph.Relu)
		}
		op := &graph.Unary{Fn: rapid.SampledFrom(fns).Draw(t, "fn")}
		tt := graph.TensorType{DType: d, Shape: kerneltest.DrawShape(t, 0)}
		x := kerneltest.DrawTensor(t, tt)
		out, got := run(t, op, []graph.TensorType{tt}, [][]byte{x})
		want := kerneltest.Load(d, x)
		for i, e := range want {
			v := kerneltest.Exact(d, e)
			switch op.Fn {
			case graph.Abs:
				v.Abs(v)
			case graph.Neg:
				v.Neg(v)
			case graph.Sign:
				v.SetInt64(int64(v.Sign()))
			case graph.Relu:
				if v.Sign() < 0 {
					v.SetInt64(0)
				}
			}
			want[i] = kerneltest.Wrapped(v)
		}
		kerneltest.Compare(t, op.Fn, out[0], got[0], want, 0)
	})
}

func TestNot(t *testing.T) {
	tt := graph.TensorType{DType: graph.Bool, Shape: []int64{4}}
	_, got := run(t, &graph.Unary{Fn: graph.Not}, []graph.TensorType{tt}, [][]byte{{0, 1, 255, 0}})
	require.Equal(t, []byte{1, 0, 0, 1}, got[0])
}

// binaryReference computes one pair. Floats are computed in float64; rounding
// that again to a narrower type is innocuous for these functions.
func binaryReference(fn graph.BinaryFn, t graph.DType, a, b kerneltest.Elem) kerneltest.Elem {
	var order int // of a and b; 2 if there is none
	if t.IsFloat() {
		switch {
		case a.F < b.F:
			order = -1
		case a.F > b.F:
			order = 1
		case a.F != b.F:
			order = 2
		}
	} else {
		order = kerneltest.Exact(t, a).Cmp(kerneltest.Exact(t, b))
	}
	switch fn {
	case graph.Equal:
		return kerneltest.FromTruth(order == 0)
	case graph.Less:
		return kerneltest.FromTruth(order == -1)
	case graph.LessEqual:
		return kerneltest.FromTruth(order == -1 || order == 0)
	case graph.Greater:
		return kerneltest.FromTruth(order == 1)
	case graph.GreaterEqual:
		return kerneltest.FromTruth(order == 1 || order == 0)
	case graph.And:
		return kerneltest.Elem{I: a.I & b.I}
	case graph.Or:
		return kerneltest.Elem{I: a.I | b.I}
	case graph.Xor:
		return kerneltest.Elem{I: a.I ^ b.I}
	}
	if t.IsFloat() {
		switch fn {
		case graph.Add:
			return kerneltest.Elem{F: a.F + b.F}
		case graph.Sub:
			return kerneltest.Elem{F: a.F - b.F}
		case graph.Mul:
			return kerneltest.Elem{F: a.F * b.F}
		case graph.Div:
			return kerneltest.Elem{F: a.F / b.F}
		case graph.Max:
			if order == 2 {
				return kerneltest.Elem{F: math.NaN()}
			}
			return kerneltest.Elem{F: math.Max(a.F, b.F)}
		default:
			if order == 2 {
				return kerneltest.Elem{F: math.NaN()}
			}
			return kerneltest.Elem{F: math.Min(a.F, b.F)}
		}
	}
	x, y := kerneltest.Exact(t, a), kerneltest.Exact(t, b)
	switch fn {
	case graph.Add:
		x.Add(x, y)
	case graph.Sub:
		x.Sub(x, y)
	case graph.Mul:
		x.Mul(x, y)
	case graph.Div:
		if y.Sign() == 0 {
			return kerneltest.Elem{}
		}
		x.Quo(x, y)
	case graph.Max:
		if order < 0 {
			x = y
		}
	default:
		if order > 0 {
			x = y
		}
	}
	return kerneltest.Wrapped(x)
}

// drawOperands draws two shapes that broadcast to shape.
func drawOperands(t *rapid.T) (shape, a, b []int64) {
	shape = kerneltest.DrawShape(t, 0)
	a, b = shape, shape
	switch rapid.IntRange(0, 3).Draw(t, "broadcast") {
	case 0:
		a = kerneltest.DrawBroadcast(t, shape)
	case 1:
		b = kerneltest.DrawBroadcast(t, shape)
	case 2:
		a, b = kerneltest.DrawBroadcast(t, shape), kerneltest.DrawBroadcast(t, shape)
	}
	return shape, a, b
}

func TestBinary(t *testing.T) {
	numeric := []graph.BinaryFn{graph.Add, graph.Sub, graph.Mul, graph.Div, graph.Max, graph.Min, graph.Equal, graph.Less,
		graph.LessEqual, graph.Greater, graph.GreaterEqual}
	logical := []graph.BinaryFn{graph.And, graph.Or, graph.Xor, graph.Equal}
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		_, sa, sb := drawOperands(t)
		d := rapid.SampledFrom(append(kerneltest.NumTypes, graph.Bool)).Draw(t, "type")
		fns := numeric
		if d == graph.Bool {
			fns = logical
		}
		op := &graph.Binary{Fn: rapid.SampledFrom(fns).Draw(t, "fn")}
		in := []graph.TensorType{{DType: d, Shape: sa}, {DType: d, Shape: sb}}
		data := [][]byte{kerneltest.DrawTensor(t, in[0]), kerneltest.DrawTensor(t, in[1])}
		out, got := run(t, op, in, data)
		a, b := kerneltest.Load(d, data[0]), kerneltest.Load(d, data[1])
		want := make([]kerneltest.Elem, tensor.Elements(out[0].Shape))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			want[flat] = binaryReference(op.Fn, d, a[kerneltest.Flatten(sa, at)], b[kerneltest.Flatten(sb, at)])
		})
		kerneltest.Compare(t, op.Fn, out[0], got[0], want, 0)
	})
}

func TestPow(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		_, sa, sb := drawOperands(t)
		in := []graph.TensorType{{DType: rapid.SampledFrom(kerneltest.NumTypes).Draw(t, "base"), Shape: sa},
			{DType: rapid.SampledFrom(kerneltest.NumTypes).Draw(t, "exponent"), Shape: sb}}
		ta, tb := in[0].DType, in[1].DType
		data := [][]byte{kerneltest.DrawTensor(t, in[0]), kerneltest.DrawTensor(t, in[1])}
		out, got := run(t, &graph.Binary{Fn: graph.Pow}, in, data)
		a, b := kerneltest.Load(ta, data[0]), kerneltest.Load(tb, data[1])
		asFloat := func(t graph.DType, e kerneltest.Elem) float64 {
			if t.IsFloat() {
				return e.F
			}
			f, _ := new(big.Float).SetInt(kerneltest.Exact(t, e)).Float64()
			return f
		}
		want := make([]kerneltest.Elem, tensor.Elements(out[0].Shape))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			x, y := a[kerneltest.Flatten(sa, at)], b[kerneltest.Flatten(sb, at)]
			switch {
			case ta.IsFloat() || tb.IsFloat():
				want[flat] = kerneltest.CastReference(graph.F64, ta, kerneltest.Elem{F: math.Pow(asFloat(ta, x), asFloat(tb, y))})
			case kerneltest.Exact(tb, y).Sign() < 0:
				switch base := kerneltest.Exact(ta, x); {
				case new(big.Int).Abs(base).Cmp(big.NewInt(1)) == 0:
					want[flat] = kerneltest.Wrapped(base.Exp(base, new(big.Int).And(kerneltest.Exact(tb, y), big.NewInt(1)), nil))
				default:
					want[flat] = kerneltest.Elem{}
				}
			default:
				modulus := new(big.Int).Lsh(big.NewInt(1), 64)
				want[flat] = kerneltest.Wrapped(new(big.Int).Exp(kerneltest.Exact(ta, x), kerneltest.Exact(tb, y), modulus))
			}
		})
		kerneltest.Compare(t, "pow", out[0], got[0], want, 1)
	})
}

func TestClip(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.NumTypes).Draw(t, "type")
		in := []graph.TensorType{{DType: d, Shape: kerneltest.DrawShape(t, 0)}, {}, {}}
		data := [][]byte{kerneltest.DrawTensor(t, in[0]), nil, nil}
		for i, name := range []string{"min", "max"} {
			if rapid.Bool().Draw(t, name) {
				in[i+1] = graph.TensorType{DType: d, Shape: make([]int64, rapid.IntRange(0, 2).Draw(t, "rank"))}
				for a := range in[i+1].Shape {
					in[i+1].Shape[a] = 1
				}
				data[i+1] = kerneltest.DrawTensor(t, in[i+1])
			}
		}
		out, got := run(t, &graph.Clip{}, in, data)
		want := kerneltest.Load(d, data[0])
		for i := range want {
			if data[1] != nil {
				want[i] = binaryReference(graph.Max, d, want[i], kerneltest.Load(d, data[1])[0])
			}
			if data[2] != nil {
				want[i] = binaryReference(graph.Min, d, want[i], kerneltest.Load(d, data[2])[0])
			}
		}
		kerneltest.Compare(t, "clip", out[0], got[0], want, 0)
	})
}

func TestWhere(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		shape, sa, sb := drawOperands(t)
		d := rapid.SampledFrom(kerneltest.AllTypes).Draw(t, "type")
		in := []graph.TensorType{{DType: graph.Bool, Shape: kerneltest.DrawBroadcast(t, shape)}, {DType: d, Shape: sa}, {DType: d, Shape: sb}}
		var data [][]byte
		for _, tt := range in {
			data = append(data, kerneltest.DrawTensor(t, tt))
		}
		out, got := run(t, &graph.Where{}, in, data)
		cond, a, b := kerneltest.Load(graph.Bool, data[0]), kerneltest.Load(d, data[1]), kerneltest.Load(d, data[2])
		want := make([]kerneltest.Elem, tensor.Elements(out[0].Shape))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			if cond[kerneltest.Flatten(in[0].Shape, at)].I != 0 {
				want[flat] = a[kerneltest.Flatten(sa, at)]
			} else {
				want[flat] = b[kerneltest.Flatten(sb, at)]
			}
		})
		kerneltest.Compare(t, "where", out[0], got[0], want, 0)
	})
}

func TestBindRefusesTypes(t *testing.T) {
	i4 := []graph.TensorType{{DType: graph.I4, Shape: []int64{2}}, {DType: graph.I4, Shape: []int64{2}}, {}}
	for _, op := range []graph.Op{&graph.Unary{Fn: graph.Abs}, &graph.Unary{Fn: "no such"}, &graph.Binary{Fn: graph.Add},
		&graph.Binary{Fn: graph.Pow}, &graph.Clip{}} {
		in := i4
		if o, ok := op.(*graph.Binary); ok && o.Fn == graph.Pow {
			in = []graph.TensorType{{DType: graph.Bool}, {DType: graph.F32}}
		}
		_, err := newKernel(op, in, in[:1])
		require.ErrorContains(t, err, "has no CPU kernel")
	}
}

// TestOuterRows compares functions of a column and a row, in either order, with
// those of the numbers one by one.
func TestOuterRows(t *testing.T) {
	const rows, columns = 5, 100
	column, row := make([]float32, rows), make([]float32, columns)
	for i := range column {
		column[i] = float32(i)*1.5 - 2
	}
	for i := range row {
		row[i] = float32(i)*0.25 - 7
	}
	f32 := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	kerneltest.EachPath(t, func(t *testing.T) {
		for fn, f := range map[graph.BinaryFn]func(x, y float32) float32{
			graph.Add: func(x, y float32) float32 { return x + y }, graph.Sub: func(x, y float32) float32 { return x - y },
			graph.Max: func(x, y float32) float32 { return max(x, y) }, graph.Div: func(x, y float32) float32 { return x / y },
		} {
			_, got := run(t, &graph.Binary{Fn: fn}, []graph.TensorType{f32(rows, 1), f32(1, columns)}, [][]byte{tensor.RawBytes(column), tensor.RawBytes(row)})
			_, swapped := run(t, &graph.Binary{Fn: fn}, []graph.TensorType{f32(1, columns), f32(rows, 1)}, [][]byte{tensor.RawBytes(row), tensor.RawBytes(column)})
			for i, x := range column {
				for j, y := range row {
					require.Equal(t, f(x, y), tensor.F32s(got[0])[i*columns+j], "%s(%v, %v)", fn, x, y)
					require.Equal(t, f(y, x), tensor.F32s(swapped[0])[i*columns+j], "%s(%v, %v)", fn, y, x)
				}
			}
		}
	})
}
