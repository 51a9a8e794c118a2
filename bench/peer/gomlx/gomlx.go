// Package gomlx runs cases with GoMLX.
package gomlx

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/context"
	gonnx "github.com/gomlx/onnx-gomlx/onnx"

	"github.com/popefgen/popefgen/bench/peer"
)

// Engine is the machine-learning framework of that name with its back end in
// pure Go, fed with ONNX models by onnx-gomlx.
type Engine struct{}

// Name implements [peer.Engine].
func (Engine) Name() string { return "GoMLX" }

var types = map[peer.Elem]dtypes.DType{
	peer.Float: dtypes.Float32, peer.Double: dtypes.Float64, peer.Float16: dtypes.Float16, peer.BFloat16: dtypes.BFloat16,
	peer.Int8: dtypes.Int8, peer.Int16: dtypes.Int16, peer.Int32: dtypes.Int32, peer.Int64: dtypes.Int64,
	peer.Uint8: dtypes.Uint8, peer.Uint16: dtypes.Uint16, peer.Uint32: dtypes.Uint32, peer.Uint64: dtypes.Uint64, peer.Bool: dtypes.Bool,
}

type session struct {
	threads int
	lost    bool // a run was given up and may go on still
	backend backends.Backend
	exec    *context.Exec
	inputs  []any
	outputs []*tensors.Tensor
}

// Open implements [peer.Engine]. It runs the model once: GoMLX tells only then
// whether it can.
func (Engine) Open(c *peer.Case, threads int) (_ peer.Session, err error) {
	s := &session{threads: threads}
	defer func() {
		if p := recover(); p != nil { // how GoMLX reports errors while it builds a graph
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	// Without a bound on its workers, which are goroutines: with one, workers that
	// run operators wait for workers to run parts of them, and none is left. What
	// bounds its threads is how many run Go code.
	config := "parallelism=-1"
	if threads == 1 {
		config = "parallelism=0,ops_sequential"
	}
	if s.backend, err = newBackend(config); err != nil {
		return nil, err
	}
	m, err := gonnx.Parse(c.ONNX)
	if err != nil {
		return nil, err
	}
	vars := context.New()
	if err := m.VariablesToContext(vars); err != nil {
		return nil, err
	}
	var names []string
	for i := range c.Inputs {
		in := &c.Inputs[i]
		t, err := newTensor(in)
		if err != nil {
			return nil, err
		}
		s.inputs, names = append(s.inputs, t), append(names, in.Name)
	}
	var results []string
	for _, o := range c.Outputs {
		results = append(results, o.Name)
	}
	s.exec, err = context.NewExecAny(s.backend, vars, func(ctx *context.Context, inputs []*graph.Node) []*graph.Node {
		named := map[string]*graph.Node{}
		for i, n := range inputs {
			named[names[i]] = n
		}
		return m.CallGraph(ctx, inputs[0].Graph(), named, results...)
	})
	if err != nil {
		return nil, err
	}
	return s, s.Run()
}

// newBackend makes a back end without the line that it prints about itself.
func newBackend(config string) (backends.Backend, error) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	out := os.Stdout
	os.Stdout = null
	defer func() { os.Stdout = out }()
	return simplego.New(config)
}

func newTensor(in *peer.Tensor) (*tensors.Tensor, error) {
	dt, ok := types[in.Elem]
	if !ok {
		return nil, fmt.Errorf("input %q: no type for ONNX's %d", in.Name, in.Elem)
	}
	dims := make([]int, len(in.Dims))
	for i, d := range in.Dims {
		dims[i] = int(d)
	}
	t := tensors.FromShape(shapes.Make(dt, dims...))
	return t, t.MutableBytes(func(data []byte) { copy(data, in.Data) })
}

// patience is how long a run may take; the slowest model takes a second.
const patience = 10 * time.Second

// Run implements [peer.Session]. A session whose run was given up does not run
// again.
func (s *session) Run() error {
	if s.lost {
		return peer.ErrNoAnswer
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(s.threads))
	done := make(chan error, 1)
	go func() { done <- s.run() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		s.lost = true
		return fmt.Errorf("%w within %v", peer.ErrNoAnswer, patience)
	}
}

func (s *session) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	s.free()
	s.outputs, err = s.exec.Exec(s.inputs...)
	return err
}

func (s *session) free() {
	for _, t := range s.outputs {
		t.FinalizeAll()
	}
	s.outputs = nil
}

func (s *session) Outputs() ([][]byte, error) {
	var out [][]byte
	for _, t := range s.outputs {
		if err := t.ConstBytes(func(data []byte) { out = append(out, slices.Clone(data)) }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *session) Close() error {
	if s.lost {
		return nil
	}
	s.free()
	if s.exec != nil {
		s.exec.Finalize()
	}
	if s.backend != nil {
		s.backend.Finalize()
	}
	return nil
}
