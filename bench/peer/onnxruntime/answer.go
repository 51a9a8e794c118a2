package onnxruntime

import (
	"errors"
	"fmt"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/popefgen/popefgen/bench/peer"
)

// Answer runs a case once, with one thread and without graph optimisations, and
// returns its outputs with the shapes that ONNX Runtime gives them, whatever the
// case says.
func Answer(c *peer.Case) (out []peer.Tensor, err error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	if err := errors.Join(options.SetIntraOpNumThreads(1), options.SetLogSeverityLevel(ort.LoggingLevelFatal),
		options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelDisableAll)); err != nil {
		return nil, err
	}
	var names [2][]string
	var values [2][]ort.Value
	for i := range c.Inputs {
		v, err := newValue(&c.Inputs[i])
		if err != nil {
			return nil, err
		}
		defer v.Destroy()
		names[0], values[0] = append(names[0], c.Inputs[i].Name), append(values[0], v.Value)
	}
	for _, o := range c.Outputs {
		names[1], values[1] = append(names[1], o.Name), append(values[1], nil)
	}
	s, err := ort.NewDynamicAdvancedSessionWithONNXData(c.ONNX, names[0], names[1], options)
	if err != nil {
		return nil, err
	}
	defer s.Destroy()
	if err := s.Run(values[0], values[1]); err != nil {
		return nil, err
	}
	for i, v := range values[1] {
		defer v.Destroy()
		data, err := bytesOf(v)
		if err != nil {
			return nil, err
		}
		out = append(out, peer.Tensor{Name: names[1][i], Elem: c.Outputs[i].Elem, Dims: v.GetShape(), Size: len(data), Data: data})
	}
	return out, nil
}

// bytesOf returns a copy of a tensor's elements.
func bytesOf(v ort.Value) ([]byte, error) {
	switch t := v.(type) {
	case *ort.Tensor[float32]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[float64]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[int8]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[uint8]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[int16]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[uint16]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[int32]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[uint32]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[int64]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[uint64]:
		return copyOf(t.GetData()), nil
	case *ort.Tensor[bool]:
		return copyOf(t.GetData()), nil
	case *ort.CustomDataTensor:
		return copyOf(t.GetData()), nil
	}
	return nil, fmt.Errorf("an output is a %T, which has no form here", v)
}

func copyOf[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))...)
}
