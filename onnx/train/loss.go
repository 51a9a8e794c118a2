package train

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// Loss says what is made small.
type Loss struct {
	// Kind is one of [LossKinds]; empty stands for "cross-entropy".
	Kind string
	// Output is the output of the model that the loss is of; it may be empty where there is one output of floats.
	Output string
	// Labels is the name of the input with what the output should be; empty stands for "labels".
	Labels string
	// Axis is the axis of the classes; nil stands for that of the model's Softmax if it ends in one, else 1.
	Axis *int64
	// Ignore is a label that does not count; nil if all do.
	Ignore *int64
	// Reduction is Mean (also if empty) or Sum.
	Reduction optim.Reduction
	// Threshold is that of [optim.LossOptions]; 0 stands for 1.
	Threshold float64
}

// outputLoss is the kind of a loss that an output of the model is.
const outputLoss = "output"

// lossNames are short names of losses.
var lossNames = map[string]string{"": "softmax-cross-entropy", "cross-entropy": "softmax-cross-entropy", "bce": "bce-with-logits"}

// LossKinds returns the kinds of losses: those of [optim.Losses], "cross-entropy" and "bce", which are short for softmax-cross-entropy and bce-with-logits, and
// "output", where an output of the model of one element is the loss. Where the model ends in what a loss begins with, a Softmax or
// LogSoftmax of its classes, or a Sigmoid, the scores before it are taken.
func LossKinds() []string {
	names := []string{"cross-entropy", "bce", outputLoss}
	for _, l := range optim.Losses() {
		names = append(names, l.Name)
	}
	return names
}

// loss appends the loss to the forward graph.
func (t *trainer) loss() error {
	t.labels, t.labelName, t.lossName = graph.None, t.Loss.Labels, "loss"
	kind := t.Loss.Kind
	if long, ok := lossNames[kind]; ok {
		kind = long
	}
	called := cmp.Or(t.Loss.Kind, "cross-entropy")
	l, err := optim.FindLoss(kind)
	if kind != outputLoss && err != nil {
		return refuse("loss %q: there is no such loss, want one of %s%s", called, strings.Join(LossKinds(), ", "), nearest.Like(kind, LossKinds()))
	}
	of, err := t.lossOutput(called)
	if err != nil {
		return err
	}
	if kind == outputLoss {
		return t.readyLoss(of)
	}
	o := optim.NewLossOptions()
	switch t.Loss.Reduction {
	case "":
	case optim.Mean, optim.Sum:
		o.Reduction = t.Loss.Reduction
	default:
		return refuse("loss %q: reduction %q gives no scalar, want mean or sum", called, t.Loss.Reduction)
	}
	t.lossName = t.unused("loss", func(name string) bool {
		return slices.ContainsFunc(t.low.Outputs, func(p onnx.Port) bool { return p.Name == name })
	})
	if t.labelName == "" {
		t.labelName = "labels"
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(t.low.Inputs, func(p onnx.Port) bool { return p.Name == name }) ||
			slices.ContainsFunc(t.low.Weights, func(w onnx.Weight) bool { return w.Name == name })
	}
	if t.Loss.Labels != "" && taken(t.labelName) {
		return refuse("labels %q: the model has an input or a weight of this name, want another name for the labels", t.labelName)
	}
	t.labelName = t.unused(t.labelName, taken)
	scores := t.scores(kind, t.low.Main, of.Tensor, &o)
	if a := t.Loss.Axis; a != nil {
		o.Axis = *a
	}
	if i := t.Loss.Ignore; i != nil {
		o.Ignores, o.Ignore = true, *i
	}
	if t.Loss.Threshold != 0 {
		o.Threshold = t.Loss.Threshold
	}
	t.added = addedLoss{l, kind, o, slices.IndexFunc(t.low.Outputs, func(p onnx.Port) bool { return p.Name == of.Name })}
	labels, err := l.Labels(t.exe.Tensors[scores].Type, o)
	if err != nil {
		return fmt.Errorf("%w: output %q: %w", ErrOptions, of.Name, err)
	}
	b := graph.Continue(t.exe)
	b.SetGraph(t.low.Main)
	t.labels = b.AddLocal(t.labelName, labels)
	if t.lossAt, err = l.Add(b, t.lossName, scores, t.labels, o); err != nil {
		return fmt.Errorf("%w: output %q: %w", ErrOptions, of.Name, err)
	}
	t.exe, err = b.Finish()
	return err
}

// scores returns the tensor of a graph that a loss of that kind begins with: the one before the operator that the loss has itself.
func (t *trainer) scores(kind string, g graph.GraphID, out graph.TensorID, o *optim.LossOptions) graph.TensorID {
	n := t.writer(g, out)
	if n == nil {
		return out
	}
	switch op := n.Op.(type) {
	case *graph.Softmax:
		if kind == "softmax-cross-entropy" {
			o.Axis = op.Axis
			return n.Inputs[0]
		}
		if kind == "nll" && op.Log {
			o.Axis = op.Axis
		}
	case *graph.Unary:
		if kind == "bce-with-logits" && op.Fn == graph.Sigmoid {
			return n.Inputs[0]
		}
	}
	return out
}

// unused returns a name that is not taken.
func (t *trainer) unused(name string, taken func(string) bool) string {
	for taken(name) {
		name += "_"
	}
	return name
}

// lossOutput returns the output that the loss is of.
func (t *trainer) lossOutput(kind string) (onnx.Port, error) {
	var floats, all []string
	for _, p := range t.low.Outputs {
		all = append(all, p.Name)
		if t.exe.Tensors[p.Tensor].Type.DType.IsFloat() {
			floats = append(floats, p.Name)
		}
	}
	name := t.Loss.Output
	switch {
	case name == "" && len(floats) == 1:
		name = floats[0]
	case name == "" && len(floats) == 0:
		return onnx.Port{}, refuse("loss %q: the model has no output of floats (its outputs are %s): there is nothing to differentiate", kind, list(all))
	case name == "":
		return onnx.Port{}, refuse("loss %q: which output? say one of %s, as in %s=%s", kind, list(floats), kind, floats[0])
	}
	i := slices.Index(all, name)
	if i < 0 {
		return onnx.Port{}, refuse("loss %q of output %q: the model has no such output%s", kind, name, nearest.DidYouMean(name, all))
	}
	if !slices.Contains(floats, name) {
		return onnx.Port{}, refuse("loss %q of output %q: it is %v, want floats%s", kind, name, t.exe.Tensors[t.low.Outputs[i].Tensor].Type, nearest.DidYouMean(name, floats))
	}
	return t.low.Outputs[i], nil
}

// readyLoss takes an output as the loss.
func (t *trainer) readyLoss(of onnx.Port) error {
	typ := t.exe.Tensors[of.Tensor].Type
	if typ.Elements() != 1 {
		return refuse("loss of output %q: it is %v, want one element: have the model average it (ReduceMean), or compare it with labels (%s)", of.Name, typ, strings.Join(LossKinds(), ", "))
	}
	t.lossAt, t.lossName = of.Tensor, of.Name
	return nil
}

// writer returns the node of a graph that writes a tensor, nil if none does.
func (t *trainer) writer(g graph.GraphID, id graph.TensorID) *graph.Node {
	nodes := t.exe.Graphs[g].Nodes
	for i := range nodes {
		if slices.Contains(nodes[i].Outputs, id) {
			return &nodes[i]
		}
	}
	return nil
}

// outputs lays out what runs return: the loss, then the outputs of the model.
func (t *trainer) outputs() error {
	ports := []onnx.Port{{Name: t.lossName, Tensor: t.lossAt, Elem: onnx.ElemTypeOf(t.exe.Tensors[t.lossAt].Type.DType)}}
	names := []string{t.lossName}
	for _, p := range t.low.Outputs {
		if p.Name != t.lossName {
			ports, names = append(ports, p), append(names, p.Name)
		}
	}
	if t.skipped != graph.None {
		name := t.unused("skipped", func(name string) bool { return slices.Contains(names, name) })
		ports, names = append(ports, onnx.Port{Name: name, Tensor: t.skipped, Elem: onnx.Int32}), append(names, name)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Returns)) {
		if !slices.Contains(names, name) {
			return refuse("return type of output %q: there is no such output%s", name, nearest.DidYouMean(name, names))
		}
	}
	for _, p := range ports {
		how := t.Returns[p.Name]
		if how.None {
			continue
		}
		t.layout.Outputs = append(t.layout.Outputs, export.Output{Port: export.Port{Name: p.Name, Tensor: p.Tensor}, Return: how.Type, N: how.N})
		t.result.Outputs = append(t.result.Outputs, compile.Port{Name: p.Name, Elem: p.Elem, Type: t.exe.Tensors[p.Tensor].Type})
	}
	t.result.Loss = t.lossName
	return nil
}
