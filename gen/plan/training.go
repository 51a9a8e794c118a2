package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// Training is what a package of a model that trains has besides others.
type Training struct {
	Evaluate  []Field // of type EvaluateOutputs; if empty, there is no Evaluate
	Weights   []Field // of type Weights
	Learnt    []Field // of SaveOutputs: weights and state
	Optimizer []Value // fields of type Optimizer; if empty, there is no such type
}

// Value is a value of the optimizer that can be set.
type Value struct {
	Name   string // Go name of the field
	Anchor string // the anchor's name
	Handle string // stream handle if several values have the name, else ""
	Type   string // Go type
	Bytes  int64
	Doc    string // comment at the end of the line
}

// trained is the feature of packages of models that train.
const trained = "training"

// refuseTraining refuses what a package of a model that trains can't have, and forgets about it: one mistake has one message.
func (b *builder) refuseTraining() {
	if !b.plan.Contract.Trains {
		return
	}
	const only = "a step computes the batches that it is given, and changes the weights by all of them"
	if b.opts.BatchDim != nil {
		b.problem("batch dimension %d: the model trains: %s, so that a batch can't be filled up or shared; generate without a batch dimension, and RunSamples with the inference package", *b.opts.BatchDim, only)
		b.opts.BatchDim = nil
	}
	if b.opts.Pack != nil {
		b.problem("pack: the model trains: %s; generate without it, and RunPacked with the inference package", only)
		b.opts.Pack = nil
	}
	if len(b.opts.State) > 0 || len(b.opts.StateFill) > 0 {
		b.problem("state: the model trains: what its steps keep are weights, which Checkpoint saves; generate without it, and streams with the inference package")
		b.opts.State, b.opts.StateFill = nil, nil
	}
	if b.opts.Serve {
		b.problem("serve: the model trains, and its clients would all train it; serve the inference package, and give it the weights with UpdateWeights")
		b.opts.Serve, b.plan.Serve = false, nil
	}
}

// training decides what Step, Evaluate, SetOptimizer and Weights have.
func (b *builder) training() {
	p := &b.plan
	if !p.Contract.Trains {
		return
	}
	t := &Training{}
	for _, f := range p.Outputs {
		if p.Contract.Fields[f.Anchor].Evaluated {
			t.Evaluate = append(t.Evaluate, f)
		}
	}
	for _, f := range p.SaveOutputs {
		if p.Contract.Fields[f.Anchor].Weight {
			t.Weights = append(t.Weights, f)
		}
		if c := &p.Contract.Fields[f.Anchor]; c.Weight || c.Kept {
			t.Learnt = append(t.Learnt, f)
		}
	}
	taken := map[string]string{} // anchors by name: renames first
	for _, i := range slices.Sorted(maps.Keys(b.renamedValues)) {
		name, anchor := b.renamedValues[i], p.Contract.Fields[i].Name
		if who, ok := taken[name]; ok {
			b.problem("rename %q: the name %s is taken by the rename of %q; choose another", anchor, name, who)
		}
		taken[name] = anchor
	}
	for i := range p.Contract.Fields {
		f := &p.Contract.Fields[i]
		if f.Group != contract.OptimizerValues {
			continue
		}
		v := Value{Name: b.renamedValues[i], Anchor: f.Name, Handle: f.Handle, Type: goType(f.Info), Doc: fmt.Sprintf("%q: %v", f.Name, f.Info)}
		if v.Type == "" || f.Repeats != 1 {
			b.problem("optimizer value %q: %s has no Go type", f.Name, f.Info)
			continue
		}
		v.Bytes, _ = f.Info.SizeInBytes()
		if v.Name == "" {
			base := valueName(f.Name)
			v.Name = base
			for k := 2; taken[v.Name] != ""; k++ {
				v.Name = fmt.Sprint(base, "_", k)
			}
			taken[v.Name] = f.Name
		}
		t.Optimizer = append(t.Optimizer, v)
	}
	p.Training = t
}

// goType returns the Go type of a value, "" if there is none.
func goType(info popef.TensorInfo) string {
	size, err := info.SizeInBytes()
	if e := elem(info.DataType); e != "" && err == nil && size > 0 && size <= maxBytes {
		var b strings.Builder
		for _, n := range info.Shape {
			fmt.Fprintf(&b, "[%d]", n)
		}
		return b.String() + e
	}
	return ""
}

// valueName makes the name of a field of an anchor's name in PopART's form: learningRate___default___FLOAT, which all weights have that none of their own have,
// is LearningRate, learningRate___specific___w is LearningRateW, lossScaling_FLOAT is LossScaling.
func valueName(anchor string) string {
	parts := strings.Split(anchor, "___")
	if n := len(parts); n > 1 && slices.Contains(valueTypes, parts[n-1]) {
		parts = parts[:n-1]
	}
	if n := len(parts); n > 1 && parts[n-1] == "default" {
		parts = parts[:n-1]
	}
	if len(parts) > 2 && parts[1] == "specific" {
		parts = slices.Delete(parts, 1, 2)
	}
	name := goName(cutType(strings.Join(parts, "___")))
	if name == "" {
		return "Value"
	}
	return name
}

// valueTypes are the element types with which PopART ends names.
var valueTypes = []string{"FLOAT", "FLOAT16", "DOUBLE"}

func cutType(name string) string {
	for _, t := range valueTypes {
		if cut, ok := strings.CutSuffix(name, "_"+t); ok {
			return cut
		}
	}
	return name
}
