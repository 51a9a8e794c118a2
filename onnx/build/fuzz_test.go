package build_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
)

// caller calls what the package exports with arguments that bytes choose.
type caller struct {
	data     []byte
	builders []*build.Builder
	tensors  []*build.Tensor
	depth    int
	calls    int
}

func (c *caller) n(most int) int {
	if len(c.data) == 0 || most < 1 {
		return 0
	}
	v := int(c.data[0])
	c.data = c.data[1:]
	return v % most
}

// argument returns a value of a type: mostly one that makes sense.
func (c *caller) argument(typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	switch typ {
	case reflect.TypeFor[*build.Tensor]():
		if i := c.n(len(c.tensors) + 1); i < len(c.tensors) {
			v.Set(reflect.ValueOf(c.tensors[i]))
		}
		return v
	case reflect.TypeFor[build.Body]():
		if c.n(8) > 0 {
			v.Set(reflect.ValueOf(build.Body(c.body)))
		}
		return v
	case reflect.TypeFor[*onnx.Tensor]():
		all := []*onnx.Tensor{nil, build.TensorOf([]float32{1, 2}, 2), build.TensorOf([]int64{1}, 1), build.TensorOf([]int64{3}), build.TensorOf([]bool{true}, 7), {Elem: onnx.Float, Dims: []int64{-1}}, {Elem: 99}}
		v.Set(reflect.ValueOf(all[c.n(len(all))]))
		return v
	case reflect.TypeFor[context.Context]():
		return reflect.ValueOf(context.Background())
	case reflect.TypeFor[onnx.ElemType]():
		v.SetInt(int64([]onnx.ElemType{onnx.Float, onnx.Int64, onnx.Bool, onnx.Int32, onnx.Float16, onnx.String, 77}[c.n(7)]))
		return v
	}
	switch typ.Kind() {
	case reflect.Slice:
		for range c.n(4) {
			v = reflect.Append(v, c.argument(typ.Elem()))
		}
	case reflect.String:
		v.SetString([]string{"", "x", "y", "mean", "NOTSET", "a/b", "\xff", "../w"}[c.n(8)])
	case reflect.Int, reflect.Int64:
		v.SetInt([]int64{0, 1, 2, 3, -1, 17, 1 << 40, -1 << 63}[c.n(8)])
	case reflect.Float32:
		v.SetFloat(float64(c.n(5)) - 2)
	case reflect.Bool:
		v.SetBool(c.n(2) == 0)
	case reflect.Func:
		if typ == reflect.TypeFor[func()]() && c.n(4) > 0 {
			v.Set(reflect.ValueOf(func() { c.some(2) }))
		}
	case reflect.Interface:
		if typ == reflect.TypeFor[any]() {
			if all := []any{nil, 2, int64(3), "N", onnx.Dim{Symbol: "M"}, 1.5}; true {
				if x := all[c.n(len(all))]; x != nil {
					v.Set(reflect.ValueOf(x))
				}
			}
			return v
		}
		return c.option(typ)
	case reflect.Struct:
		if typ == reflect.TypeFor[build.NodeOption]() {
			return reflect.ValueOf(c.nodeOption())
		}
	}
	return v
}

func (c *caller) nodeOption() build.NodeOption {
	switch c.n(5) {
	case 0:
		return build.Name(c.argument(reflect.TypeFor[string]()).String())
	case 1:
		return build.VirtualGraph(int64(c.n(3)))
	case 2:
		return build.Attribute("__a", c.argument(reflect.TypeFor[any]()).Interface())
	case 3:
		return build.Subgraph("__g", c.n(4)-1, c.body)
	}
	return build.NodeOption{}
}

// option returns an option of an operator: of an attribute that it has, a nil one, or one for any node.
func (c *caller) option(typ reflect.Type) reflect.Value {
	var fit []reflect.Value
	for _, name := range optionNames {
		for _, f := range optionFunctions[name] {
			if f := reflect.ValueOf(f); f.Type().Out(0).Implements(typ) {
				fit = append(fit, f)
			}
		}
	}
	switch i := c.n(len(fit) + 3); {
	case i < len(fit):
		v := c.argument(fit[i].Type().In(0))
		if fit[i].Type().IsVariadic() {
			return fit[i].CallSlice([]reflect.Value{v})[0].Convert(typ)
		}
		return fit[i].Call([]reflect.Value{v})[0].Convert(typ)
	case i == len(fit):
		return reflect.Zero(typ)
	}
	return reflect.ValueOf(c.nodeOption()).Convert(typ)
}

var optionNames = func() (names []string) {
	for name := range optionFunctions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}()

func (c *caller) body(in build.Tensors) (out build.Tensors) {
	c.depth++
	defer func() { c.depth-- }()
	c.tensors = append(c.tensors, in...)
	c.some(3)
	for range c.n(4) {
		out = append(out, c.argument(reflect.TypeFor[*build.Tensor]()).Interface().(*build.Tensor))
	}
	return out
}

// some makes some calls.
func (c *caller) some(n int) {
	if c.depth > 4 {
		return
	}
	for ; n > 0 && len(c.data) > 0 && c.calls < 200; n-- {
		c.calls++
		b := c.builders[c.n(16)/8]
		on := []reflect.Value{reflect.ValueOf(b), reflect.ValueOf(b), reflect.ValueOf(b), reflect.ValueOf(b.Graphcore()), reflect.ValueOf(b.Preview()), reflect.ValueOf(b.PreviewTraining())}[c.n(6)]
		typ := on.Type()
		i := c.n(256) * 256
		i = (i + c.n(256)) % typ.NumMethod()
		switch typ.Method(i).Name {
		case "WriteFile", "Info": // of files, and of a lowering each
			continue
		}
		method := on.Method(i)
		var args []reflect.Value
		for k := range method.Type().NumIn() {
			args = append(args, c.argument(method.Type().In(k)))
		}
		var results []reflect.Value
		if method.Type().IsVariadic() {
			results = method.CallSlice(args)
		} else {
			results = method.Call(args)
		}
		for _, r := range results {
			switch x := r.Interface().(type) {
			case *build.Tensor:
				c.tensors = append(c.tensors, x)
			case []*build.Tensor:
				c.tensors = append(c.tensors, x[:min(len(x), 4)]...)
			}
		}
	}
}

// FuzzCalls: whatever is called in whatever order, a Builder returns mistakes or a model that can be written and read again.
func FuzzCalls(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		seed := make([]byte, 600)
		for i := range len(seed) / 8 {
			binary.LittleEndian.PutUint64(seed[8*i:], random.Uint64())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &caller{data: data, builders: []*build.Builder{build.New(), build.New(build.Opset(9))}}
		for _, b := range c.builders {
			c.tensors = append(c.tensors, b.Input("x", onnx.Float, 2, 3), b.Input("k", onnx.Int64, 1), b.Input("c", onnx.Bool))
		}
		c.some(200)
		within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, b := range c.builders {
			m, err := b.Model(within)
			if err != nil {
				continue
			}
			written, err := onnx.Encode(m)
			require.NoError(t, err)
			_, err = onnx.Decode(written, "")
			require.NoError(t, err)
		}
	})
}
