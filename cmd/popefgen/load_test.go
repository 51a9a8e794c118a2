package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/tensorfile"
)

// TestBindings gives inputs values that are written down; the shape is the
// model's as far as it says one.
func TestBindings(t *testing.T) {
	dims := func(sizes ...int64) (d []onnx.Dim) {
		for _, n := range sizes {
			d = append(d, onnx.Dim{Known: n >= 0, Value: n})
		}
		return d
	}
	m := &onnx.Model{Graph: &onnx.Graph{Inputs: []onnx.ValueInfo{
		{Name: "sr", Elem: onnx.Int64, HasShape: true},
		{Name: "pads", Elem: onnx.Int64, HasShape: true, Dims: dims(4)},
		{Name: "axes", Elem: onnx.Int32, HasShape: true, Dims: dims(-1)},
		{Name: "mask", Elem: onnx.Bool, HasShape: true, Dims: dims(2, 2)},
		{Name: "image", Elem: onnx.Float, HasShape: true, Dims: dims(1, -1)},
		{Name: "any", Elem: onnx.Float},
		{Name: "brain", Elem: onnx.BFloat16, HasShape: true},
		{Name: "huge", Elem: onnx.Float, HasShape: true, Dims: dims(1<<40, 1<<40)},
	}}}
	for _, c := range []struct {
		input, value string
		dims         []int64
		data         []byte
		err          string
	}{
		{"sr", "16000", []int64{}, []byte{0x80, 0x3e, 0, 0, 0, 0, 0, 0}, ""},
		{"pads", "0", []int64{4}, make([]byte, 32), ""},
		{"axes", "1,2", []int64{2}, []byte{1, 0, 0, 0, 2, 0, 0, 0}, ""},
		{"axes", "1", []int64{1}, []byte{1, 0, 0, 0}, ""},
		{"axes", "[]", []int64{0}, []byte{}, ""},
		{"mask", "true,false,false,true", []int64{2, 2}, []byte{1, 0, 0, 1}, ""},
		{"any", "0.5", []int64{}, []byte{0, 0, 0, 0x3f}, ""},
		{"any", "[0.5]", []int64{1}, []byte{0, 0, 0, 0x3f}, ""},
		{"sr", "[16000]", nil, nil, "a scalar; found a list"},
		{"pads", "1,2", nil, nil, "found a list of 2 elements, want 4"},
		{"image", "0", nil, nil, `input "image" is float[1,?]: what is written down has no shape for it`},
		{"brain", "1", nil, nil, "can't be written down"},
		{"huge", "1", nil, nil, "too large"},
		{"axis", "1", nil, nil, `--bind axis=1: the model has no such input; did you mean "axes"?`},
		{"sr", "@16000", nil, nil, "--bind sr: 16000: extension"},
		{"sr", "sr.npy", nil, nil, "--bind sr: open sr.npy: no such file"},
	} {
		values, err := bindings([][2]string{{c.input, c.value}}, m)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.value)
			if _, file := tensorfile.Path(c.value); !file { // which is named once
				require.ErrorContains(t, err, "--bind "+c.input+"="+c.value)
			}
			continue
		}
		require.NoError(t, err, c.value)
		require.Equal(t, c.dims, values[c.input].Dims, c.value)
		require.Equal(t, c.data, values[c.input].Data, c.value)
	}
}
