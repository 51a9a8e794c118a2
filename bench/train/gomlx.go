package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"
	gonnx "github.com/gomlx/onnx-gomlx/onnx"
)

// gomlx trains a network with GoMLX's back end in pure Go, which takes the ONNX model itself.
type gomlx struct {
	threads int
	backend backends.Backend
	exec    *context.Exec
	inputs  []any
	loss    float64
}

// openGoMLX opens a network. GoMLX tells that it can't train one by the first step.
func openGoMLX(n *network, threads int) (_ peer, err error) {
	l := &gomlx{threads: threads}
	defer func() {
		if p := recover(); p != nil { // how GoMLX reports errors
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	config := "parallelism=-1" // a bound on its workers makes them wait for each other: GOMAXPROCS bounds its threads
	if threads == 1 {
		config = "parallelism=0,ops_sequential"
	}
	if l.backend, err = silently(func() (backends.Backend, error) { return simplego.New(config) }); err != nil {
		return nil, err
	}
	m, err := n.model()
	if err != nil {
		return nil, err
	}
	parsed, err := gonnx.Parse(n.bytes())
	if err != nil {
		return nil, err
	}
	vars := context.New()
	if err := parsed.VariablesToContext(vars); err != nil {
		return nil, err
	}
	x, labels := n.data(m)
	for _, in := range []struct {
		t    dtypes.DType
		dims []int
		data []byte
	}{{dtypes.Float32, dimensions(m), x}, {dtypes.Int32, []int{int(n.batch), 1}, labels}} {
		t := tensors.FromShape(shapes.Make(in.t, in.dims...))
		if err := t.MutableBytes(func(to []byte) { copy(to, in.data) }); err != nil {
			return nil, err
		}
		l.inputs = append(l.inputs, t)
	}
	adam := optimizers.Adam().LearningRate(1e-3).Epsilon(1e-8).Done()
	l.exec, err = context.NewExecAny(l.backend, vars, func(ctx *context.Context, inputs []*graph.Node) []*graph.Node {
		g := inputs[0].Graph()
		ctx.SetTraining(g, true)
		scores := parsed.CallGraph(ctx, g, map[string]*graph.Node{m.Graph.Inputs[0].Name: inputs[0]}, m.Graph.OutputNames()...)
		loss := graph.ReduceAllMean(losses.SparseCategoricalCrossEntropyLogits([]*graph.Node{inputs[1]}, scores))
		adam.UpdateGraph(ctx, g, loss)
		return []*graph.Node{loss}
	})
	return l, err
}

// silently calls open without the line that GoMLX prints about itself.
func silently[T any](open func() (T, error)) (none T, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return none, err
	}
	out := os.Stdout
	os.Stdout = null
	defer func() { os.Stdout, err = out, errors.Join(err, null.Close()) }()
	return open()
}

func (l *gomlx) step() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(l.threads))
	outputs, err := l.exec.Exec(l.inputs...)
	if err != nil {
		return err
	}
	l.loss = float64(tensors.ToScalar[float32](outputs[0]))
	for _, t := range outputs {
		t.FinalizeAll()
	}
	return nil
}

func (l *gomlx) lossValue() float64 { return l.loss }

func (l *gomlx) close() error {
	if l.exec != nil {
		l.exec.Finalize()
	}
	if l.backend != nil {
		l.backend.Finalize()
	}
	return nil
}
