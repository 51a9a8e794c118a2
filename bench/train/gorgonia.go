package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"

	"gorgonia.org/gorgonia"
	gotensor "gorgonia.org/tensor"

	"github.com/popefgen/popefgen/onnx"
)

// gorgoniaNet trains a network with Gorgonia, which has its own expressions: a network of dense layers, convolutions and pooling is written in them.
type gorgoniaNet struct {
	threads int
	machine gorgonia.VM
	solver  gorgonia.Solver
	model   []gorgonia.ValueGrad
	loss    gorgonia.Value
	batch   int64
}

// openGorgonia opens a network.
func openGorgonia(n *network, threads int) (_ peer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	m, err := n.model()
	if err != nil {
		return nil, err
	}
	b := &gorgoniaBuilder{g: gorgonia.NewGraph(), values: map[string]*gorgonia.Node{}}
	x, labels := n.data(m)
	b.value(m.Graph.Inputs[0].Name, dimensions(m), floats(x))
	for _, w := range m.Graph.Initializers {
		if w.Elem == onnx.Float && len(w.Dims) > 0 {
			b.weight(w)
		}
	}
	for _, node := range m.Graph.Nodes {
		if err := b.node(node); err != nil {
			return nil, fmt.Errorf("%s: %w", node.OpType, err)
		}
	}
	l := &gorgoniaNet{threads: threads, batch: n.batch}
	cost, err := b.crossEntropy(b.values[m.Graph.OutputNames()[0]], int(n.batch), int(n.classes), labels)
	if err != nil {
		return nil, err
	}
	gorgonia.Read(cost, &l.loss)
	if _, err := gorgonia.Grad(cost, b.weights...); err != nil {
		return nil, fmt.Errorf("gradients: %w", err)
	}
	program, places, err := gorgonia.Compile(b.g)
	if err != nil {
		return nil, err
	}
	l.machine = gorgonia.NewTapeMachine(b.g, gorgonia.WithPrecompiled(program, places), gorgonia.BindDualValues(b.weights...))
	l.solver = gorgonia.NewAdamSolver(gorgonia.WithLearnRate(1e-3), gorgonia.WithEps(1e-8))
	l.model = gorgonia.NodesToValueGrads(b.weights)
	return l, nil
}

func (l *gorgoniaNet) step() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(l.threads))
	if err := l.machine.RunAll(); err != nil {
		return err
	}
	if err := l.solver.Step(l.model); err != nil {
		return err
	}
	l.machine.Reset()
	return nil
}

func (l *gorgoniaNet) lossValue() float64 {
	v, ok := l.loss.Data().(float32)
	if !ok {
		return math.NaN()
	}
	return float64(v)
}

func (l *gorgoniaNet) close() error { return l.machine.Close() }

// gorgoniaBuilder writes the nodes of an ONNX model as Gorgonia's.
type gorgoniaBuilder struct {
	g       *gorgonia.ExprGraph
	values  map[string]*gorgonia.Node
	weights gorgonia.Nodes
}

func (b *gorgoniaBuilder) value(name string, shape []int, data []float32) *gorgonia.Node {
	t := gotensor.New(gotensor.WithShape(shape...), gotensor.WithBacking(data))
	b.values[name] = gorgonia.NewTensor(b.g, gotensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(t))
	return b.values[name]
}

// weight adds a weight: of one axis as a row, which is what Gorgonia adds to a batch.
func (b *gorgoniaBuilder) weight(w *onnx.Tensor) {
	var shape []int
	for _, d := range w.Dims {
		shape = append(shape, int(d))
	}
	if len(shape) == 1 {
		shape = []int{1, shape[0]}
	}
	b.weights = append(b.weights, b.value(w.Name, shape, floats(w.Data)))
}

func (b *gorgoniaBuilder) node(n *onnx.Node) (err error) {
	in := make([]*gorgonia.Node, len(n.Inputs))
	for i, name := range n.Inputs {
		if in[i] = b.values[name]; in[i] == nil {
			return fmt.Errorf("no value %q", name)
		}
	}
	var y *gorgonia.Node
	switch n.OpType {
	case "Relu":
		y, err = gorgonia.Rectify(in[0])
	case "MaxPool":
		y, err = gorgonia.MaxPool2D(in[0], gotensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})
	case "Flatten":
		y, err = gorgonia.Reshape(in[0], gotensor.Shape{in[0].Shape()[0], in[0].Shape()[1:].TotalSize()})
	case "Conv":
		if y, err = gorgonia.Conv2d(in[0], in[1], gotensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1}); err != nil {
			return err
		}
		var bias *gorgonia.Node
		if bias, err = gorgonia.Reshape(in[2], gotensor.Shape{1, in[2].Shape()[1], 1, 1}); err != nil {
			return err
		}
		y, err = gorgonia.BroadcastAdd(y, bias, nil, []byte{0, 2, 3})
	case "Gemm":
		var w *gorgonia.Node
		if w, err = gorgonia.Transpose(in[1]); err != nil {
			return err
		}
		if y, err = gorgonia.Mul(in[0], w); err != nil {
			return err
		}
		y, err = gorgonia.BroadcastAdd(y, in[2], nil, []byte{0})
	default:
		return errors.New("not among the operators that are written for it here")
	}
	b.values[n.Outputs[0]] = y
	return err
}

// crossEntropy is the mean over a batch of log(sum(exp(scores))) - scores[label], of scores from which their row's maximum is taken away.
func (b *gorgoniaBuilder) crossEntropy(scores *gorgonia.Node, batch, classes int, labels []byte) (*gorgonia.Node, error) {
	hot := make([]float32, batch*classes)
	for i := range batch {
		hot[i*classes+int(binary.LittleEndian.Uint32(labels[4*i:]))] = -1 / float32(batch)
	}
	probabilities, err := gorgonia.SoftMax(scores)
	if err != nil {
		return nil, err
	}
	logs, err := gorgonia.Log(probabilities)
	if err != nil {
		return nil, err
	}
	weighted, err := gorgonia.HadamardProd(logs, b.value("labels", []int{batch, classes}, hot))
	if err != nil {
		return nil, err
	}
	return gorgonia.Sum(weighted)
}

func dimensions(m *onnx.Model) (dims []int) {
	for _, d := range m.Graph.Inputs[0].Dims {
		dims = append(dims, int(d.Value))
	}
	return dims
}

func floats(data []byte) []float32 {
	all := make([]float32, len(data)/4)
	for i := range all {
		all[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return all
}
