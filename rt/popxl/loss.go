package popxl

import (
	"errors"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/num"
)

// Scores is a constraint: the types of scores whose losses are float32.
type Scores interface {
	float32 | num.Float16 | num.BFloat16
}

// Loss adds a loss of package optim: what the loss functions of package ops are made of. call stands in errors; o.Weights has to be [graph.None]. Shapes and labels are those of
// [optim.Loss.Labels]; a label that is no class ends the run with an error.
func Loss[T Scores, L Element](call string, loss optim.Loss, scores Tensor[T], labels Tensor[L], o optim.LossOptions) Tensor[float32] {
	ir, ids, err := resolve([]Operand{scores, labels})
	switch {
	case ir == nil:
		return Tensor[float32]{}
	case err == nil && ids == nil:
		return Tensor[float32]{ir, graph.None}
	case err == nil && ir.taken:
		err = ErrTaken
	case err == nil && o.Weights != graph.None:
		err = errors.New("weights of classes are not supported: multiply the losses of single places")
	}
	if err != nil {
		return Fail[float32](ir, call, err)
	}
	added, err := ir.loss(call, loss, ids, o)
	if err != nil {
		return Fail[float32](ir, call, err)
	}
	return Tensor[float32]{ir, added}
}

// loss adds a loss. The zero [optim.Loss] has nothing to add, and panics.
func (ir *Ir) loss(call string, loss optim.Loss, ids []graph.TensorID, o optim.LossOptions) (added graph.TensorID, err error) {
	defer ipu.Guard(&err)
	return loss.Add(ir.b, ir.scoped(call), ids[0], ids[1], o)
}
