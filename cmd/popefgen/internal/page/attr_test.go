package page

import (
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
)

func f32(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }

func TestAttributes(t *testing.T) {
	ones := []int64{1, 1}
	image, weights := f32(1, 16, 32, 32), f32(32, 16, 3, 3)
	for name, c := range map[string]struct {
		op           graph.Op
		in           []graph.TensorType
		title, brief string
		want         string
	}{
		"convolution": {&graph.Conv{Strides: []int64{2, 2}, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1}, []graph.TensorType{image, weights},
			"Conv", "3x3, stride 2", "kernel 3x3, stride 2, pad 1,1,1,1"},
		"unequal strides": {&graph.Conv{Strides: []int64{2, 1}, Dilations: []int64{1, 3}, PadsBegin: []int64{0, 1}, PadsEnd: []int64{0, 2}, Group: 4}, []graph.TensorType{image, f32(32, 4, 1, 5)},
			"Conv", "1x5, 4 groups, stride 2,1, dilation 1,3", "kernel 1x5, stride 2,1, dilation 1,3, pad 0,1,0,2, groups 4"},
		"depthwise": {&graph.Conv{Strides: ones, Dilations: ones, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}, Group: 16, Bounded: true, High: 6}, []graph.TensorType{image, f32(16, 1, 3, 3)},
			"Conv + Relu6", "depthwise 3x3", "kernel 3x3, groups 16, result from 0 to 6"},
		"pool": {&graph.MaxPool{Kernel: []int64{2, 2}, Strides: []int64{2, 2}, Dilations: ones, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}, Ceil: true}, []graph.TensorType{image},
			"MaxPool", "2x2, stride 2", "kernel 2x2, stride 2, ceil yes"},
		"relu":     {&graph.Gemm{Alpha: 1, Beta: 1, TransB: true, Bounded: true, High: math.Inf(1)}, nil, "Gemm + Relu", "", "trans b yes, result at least 0"},
		"softmax":  {&graph.Softmax{}, nil, "Softmax", "", "axis 0"},
		"leaky":    {&graph.Unary{Fn: graph.LeakyRelu, Alpha: 0.1}, nil, "LeakyRelu", "", "fn leaky_relu, alpha 0.1"},
		"mean":     {&graph.Reduce{Fn: graph.ReduceMean, Axes: []int64{2, 3}, KeepDims: true}, nil, "ReduceMean", "axes 2,3", "fn mean, axes 2,3, keep dims yes"},
		"position": {&graph.Transpose{Perm: []int64{0, 2, 3, 1}}, nil, "Transpose", "axes 0,2,3,1", "perm 0,2,3,1"},
		"joined": {&graph.Pointwise{Fns: []string{"mul", "add", "relu"}, Args: []int64{0, 1, 3, 2, 4}, Alpha: make([]float64, 3), Beta: make([]float64, 3)}, make([]graph.TensorType, 3),
			"Mul, Add, Relu", "", "computes relu(((a · b) + c))"},
		"used twice": {&graph.Pointwise{Fns: []string{"sigmoid", "mul", "clip"}, Args: []int64{0, 1, 1, 2, -1, 0}, Alpha: make([]float64, 3), Beta: make([]float64, 3)}, make([]graph.TensorType, 1),
			"Sigmoid, Mul, Clip", "", "computes v1 = sigmoid(a); clip((v1 · v1), -, a)"},
		"branches": {&graph.If{Then: 1, Else: 2}, nil, "If", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := dump.Attributes(c.op, c.in)
			var text []string
			for _, a := range all {
				text = append(text, a.Name+" "+a.Value)
			}
			require.Empty(t, cmp.Diff(c.want, strings.Join(text, ", ")))
			require.Equal(t, c.title, titleOf(c.op))
			require.Equal(t, c.brief, brief(c.op, c.in, all))
		})
	}
}

// Whatever an operator's attributes are, what is shown is neither Go's way to
// print them nor empty.
func TestAttributesAreNoGo(t *testing.T) {
	structure := regexp.MustCompile(`[{}]|\[\d|\w:\w|map\[|0xc0|[A-Z][a-z]+[A-Z]`)
	rapid.Check(t, func(t *rapid.T) {
		op := graph.NewOp(rapid.SampledFrom(graph.Kinds()).Draw(t, "kind"))
		s := reflect.ValueOf(op).Elem()
		for i := range s.NumField() {
			switch f := s.Field(i); f.Interface().(type) {
			case []int64:
				f.Set(reflect.ValueOf(rapid.SliceOfN(rapid.Int64Range(-3, 300), 0, 40).Draw(t, "ints")))
			case []float64:
				f.Set(reflect.ValueOf(rapid.SliceOfN(rapid.Float64(), 0, 40).Draw(t, "floats")))
			case []string:
				f.Set(reflect.ValueOf([]string{"relu", "tanh"}))
			case bool:
				f.SetBool(rapid.Bool().Draw(t, "bool"))
			case graph.DType:
				f.Set(reflect.ValueOf(rapid.SampledFrom([]graph.DType{graph.Invalid, graph.F32, graph.I8}).Draw(t, "type")))
			case int64:
				f.SetInt(rapid.Int64().Draw(t, "int"))
			case float64:
				f.SetFloat(rapid.Float64().Draw(t, "float"))
			}
		}
		require.NotContains(t, titleOf(op), "{")
		for _, a := range dump.Attributes(op, []graph.TensorType{f32(1, 2, 3, 4), f32(2, 2, 3, 3)}) {
			require.NotEmpty(t, a.Value, a.Name)
			require.NotRegexp(t, structure, a.Name+" "+strings.ReplaceAll(a.Value, "NaN", ""))
			require.Less(t, len(a.Value), 2000)
		}
		brief(op, []graph.TensorType{f32(1, 2, 3, 4)}, dump.Attributes(op, nil))
	})
}

func TestShapeText(t *testing.T) {
	for want, typ := range map[string]graph.TensorType{"1×64×56×56": f32(1, 64, 56, 56), "scalar": f32(), "i64 2": {DType: graph.I64, Shape: []int64{2}}, "0×3": f32(0, 3)} {
		require.Equal(t, want, shapeText(typ))
	}
}
