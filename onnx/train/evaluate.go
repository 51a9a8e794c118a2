package train

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
)

// addedLoss is the loss that was appended to the forward graph, to be appended to the graph that evaluates, too.
type addedLoss struct {
	kind    optim.Loss // without a name if the model computes the loss itself
	name    string
	options optim.LossOptions
	of      int // place of the output that it is of
}

// evaluation completes the graph that evaluates the model without what it does in training alone, such as dropping elements: it computes the
// loss of its own outputs.
func (t *trainer) evaluation() error {
	low := t.low
	if low.Evaluate == nil {
		return nil
	}
	evaluated := low.Evaluate.Outputs
	t.layout.Evaluate, t.layout.Evaluated = []graph.GraphID{low.Evaluate.Graph}, map[graph.TensorID]graph.TensorID{}
	for i, p := range low.Outputs {
		t.layout.Evaluated[p.Tensor] = evaluated[i].Tensor
	}
	l := t.added
	if l.kind.Name == "" {
		return nil
	}
	b := graph.Continue(t.exe)
	b.SetGraph(low.Evaluate.Graph)
	o := l.options
	at, err := l.kind.Add(b, t.lossName, t.scores(l.name, low.Evaluate.Graph, evaluated[l.of].Tensor, &o), t.labels, l.options)
	if err != nil {
		return err
	}
	t.layout.Evaluated[t.lossAt] = at
	t.exe, err = b.Finish()
	return err
}
