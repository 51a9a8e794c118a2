// Package onnxruntime runs cases with ONNX Runtime.
package onnxruntime

import (
	"errors"
	"fmt"
	"slices"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/popefgen/popefgen/bench/peer"
)

// Engine is Microsoft's C++ engine, called through cgo, with all its
// graph optimisations and its inputs and outputs bound once.
type Engine struct{}

// Load loads ONNX Runtime's shared library, once a process.
func Load(path string) error {
	ort.SetSharedLibraryPath(path)
	if err := ort.InitializeEnvironment(ort.WithLogLevelError()); err != nil {
		return fmt.Errorf("loading ONNX Runtime from %s: %w", path, err)
	}
	return nil
}

// Version returns the version of the library that was loaded.
func Version() string { return ort.GetVersion() }

// Name implements [peer.Engine].
func (Engine) Name() string { return "ONNX Runtime" }

// Open implements [peer.Engine].
func (Engine) Open(c *peer.Case, threads int) (peer.Session, error) {
	return open(c, threads, func(o *ort.SessionOptions, names [2][]string, values [2][]ort.Value) (*ort.AdvancedSession, error) {
		return ort.NewAdvancedSessionWithONNXData(c.ONNX, names[0], names[1], values[0], values[1], o)
	})
}

// OpenFile is Open for a model in a file, which the library reads itself.
func (Engine) OpenFile(path string, c *peer.Case, threads int) (peer.Session, error) {
	return open(c, threads, func(o *ort.SessionOptions, names [2][]string, values [2][]ort.Value) (*ort.AdvancedSession, error) {
		return ort.NewAdvancedSession(path, names[0], names[1], values[0], values[1], o)
	})
}

type session struct {
	session *ort.AdvancedSession
	values  []ort.Value
	outputs []value
}

// value is a tensor over memory of ours.
type value struct {
	ort.Value
	bytes func() []byte
}

func open(c *peer.Case, threads int, open func(*ort.SessionOptions, [2][]string, [2][]ort.Value) (*ort.AdvancedSession, error)) (_ peer.Session, err error) {
	s := &session{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: ONNX Runtime: %w", c.Name, err), s.Close())
		}
	}()
	options, err := sessionOptions(threads)
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	var names [2][]string
	var values [2][]ort.Value
	for i, tensors := range [][]peer.Tensor{c.Inputs, c.Outputs} {
		for j := range tensors {
			t := &tensors[j]
			v, err := newValue(t)
			if err != nil {
				return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
			}
			s.values = append(s.values, v.Value)
			names[i], values[i] = append(names[i], t.Name), append(values[i], v.Value)
			if i == 1 {
				s.outputs = append(s.outputs, v)
			}
		}
	}
	if s.session, err = open(options, names, values); err != nil {
		return nil, err
	}
	return s, nil
}

// sessionOptions returns those of every session, which the caller destroys.
func sessionOptions(threads int) (*ort.SessionOptions, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		options.SetIntraOpNumThreads(threads),
		options.SetInterOpNumThreads(1),
		options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelEnableAll),
		options.SetLogSeverityLevel(ort.LoggingLevelError),
	); err != nil {
		return nil, errors.Join(err, options.Destroy())
	}
	return options, nil
}

// newValue makes a tensor of its own memory, with a copy of t's data if it
// has some.
func newValue(t *peer.Tensor) (value, error) {
	if len(t.Dims) == 0 {
		return newScalar(t)
	}
	data := slices.Clone(t.Data)
	if data == nil {
		data = make([]byte, t.Size)
	}
	if len(data) == 0 {
		return value{}, errors.New("it has no elements, which the Go binding can't pass")
	}
	v, err := ort.NewCustomDataTensor(ort.NewShape(t.Dims...), data, ort.TensorElementDataType(t.Elem))
	return value{v, func() []byte { return data }}, err
}

// newScalar makes a tensor without dimensions: the binding has a type of
// its own for them.
func newScalar(t *peer.Tensor) (value, error) {
	switch t.Elem {
	case peer.Float:
		return scalar[float32](t.Data)
	case peer.Double:
		return scalar[float64](t.Data)
	case peer.Int32:
		return scalar[int32](t.Data)
	case peer.Int64:
		return scalar[int64](t.Data)
	case peer.Bool:
		return scalar[bool](t.Data)
	}
	return value{}, fmt.Errorf("a scalar of ONNX's type %d has no form in the Go binding", t.Elem)
}

func (s *session) Run() error { return s.session.Run() }

func (s *session) Outputs() ([][]byte, error) {
	out := make([][]byte, len(s.outputs))
	for i, v := range s.outputs {
		out[i] = v.bytes()
	}
	return out, nil
}

func (s *session) Close() error {
	var err error
	if s.session != nil {
		err = s.session.Destroy()
	}
	for _, v := range s.values {
		err = errors.Join(err, v.Destroy())
	}
	return err
}
