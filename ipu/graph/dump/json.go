package dump

import (
	"reflect"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Executable is an executable as plain data, as [Describe] returns it, without the values of constants.
type Executable struct {
	Name     string             `json:"name"`
	Producer string             `json:"producer,omitempty"`
	Streams  []Stream           `json:"streams"`
	Programs []Program          `json:"programs"`
	Tensors  []Tensor           `json:"tensors"` // constants and persistent tensors; local ones stand where they are written
	Graphs   []Graph            `json:"graphs"`
	Passes   []graph.PassReport `json:"passes,omitempty"`
}

// Stream is a transfer between host and device.
type Stream struct {
	Handle    string `json:"handle"`
	Direction string `json:"direction"`
	Type      string `json:"type"` // with the shape, as in "f32[2,3]"
}

// Program is what the host runs by an index.
type Program struct {
	Index int    `json:"index"`
	Name  string `json:"name"`
	Steps []Step `json:"steps"`
}

// Step is a step of a program: Do is "copy in", "copy out", "call" or "repeat".
type Step struct {
	Do     string  `json:"do"`
	Stream string  `json:"stream,omitempty"` // handle
	Tensor *Tensor `json:"tensor,omitempty"`
	Graph  *int    `json:"graph,omitempty"` // index
	Count  int64   `json:"count,omitempty"`
	Body   []Step  `json:"body,omitempty"`
}

// Tensor names a tensor and has its type. Kind is "constant" or "persistent", empty for a local one.
type Tensor struct {
	ID   graph.TensorID `json:"id"`
	Name string         `json:"name"`
	Kind string         `json:"kind,omitempty"`
	Type string         `json:"type"` // with the shape, as in "f32[2,3]"
}

// Graph is a list of nodes in the order of their execution.
type Graph struct {
	Name    string    `json:"name"`
	Phase   Phase     `json:"phase"`
	Params  []*Tensor `json:"params,omitempty"`
	Results []*Tensor `json:"results,omitempty"`
	Nodes   []Node    `json:"nodes"`
}

// Node is an operator with its operands; one that is left out is null.
type Node struct {
	Op         string         `json:"type"`
	Name       string         `json:"name"`
	Attributes []Attribute    `json:"attributes,omitempty"`
	Graphs     map[string]int `json:"graphs,omitempty"` // indices of the graphs that it runs, by attribute
	Inputs     []*Tensor      `json:"inputs"`
	Outputs    []*Tensor      `json:"outputs"`
}

// Describe returns e as plain data, for JSON. It need not be verified: what an unfinished compilation left can be looked at too.
func Describe(e *graph.Executable) *Executable {
	d := describer{e}
	out := &Executable{Name: e.Name, Producer: e.Producer, Streams: []Stream{}, Programs: []Program{}, Tensors: []Tensor{}, Graphs: []Graph{}, Passes: e.Passes}
	for i := range e.Streams {
		s := &e.Streams[i]
		out.Streams = append(out.Streams, Stream{s.Handle, s.Direction.String(), s.Type.String()})
	}
	for i := range e.Programs {
		p := &e.Programs[i]
		out.Programs = append(out.Programs, Program{p.Index, p.Name, d.steps(p.Steps)})
	}
	for i := range e.Tensors {
		if t := &e.Tensors[i]; t.Const || t.Persistent {
			out.Tensors = append(out.Tensors, *d.tensor(graph.TensorID(i)))
		}
	}
	phases := Phases(e)
	for i := range e.Graphs {
		g := &e.Graphs[i]
		described := Graph{Name: g.Name, Phase: phases[i], Params: d.tensors(g.Params), Results: d.tensors(g.Results), Nodes: []Node{}}
		for k := range g.Nodes {
			described.Nodes = append(described.Nodes, d.node(&g.Nodes[k]))
		}
		out.Graphs = append(out.Graphs, described)
	}
	return out
}

type describer struct{ e *graph.Executable }

func (d describer) steps(steps []graph.Step) []Step {
	all := make([]Step, 0, len(steps))
	for i := range steps {
		s := &steps[i]
		switch s.Kind {
		case graph.CopyIn:
			all = append(all, Step{Do: "copy in", Stream: d.e.Streams[s.Stream].Handle, Tensor: d.tensor(s.Tensor)})
		case graph.CopyOut:
			all = append(all, Step{Do: "copy out", Stream: d.e.Streams[s.Stream].Handle, Tensor: d.tensor(s.Tensor)})
		case graph.Call:
			g := int(s.Graph)
			all = append(all, Step{Do: "call", Graph: &g})
		case graph.Repeat:
			all = append(all, Step{Do: "repeat", Count: s.Count, Body: d.steps(s.Body)})
		}
	}
	return all
}

func (d describer) tensors(ids []graph.TensorID) []*Tensor {
	all := make([]*Tensor, len(ids))
	for i, id := range ids {
		all[i] = d.tensor(id)
	}
	return all
}

// tensor describes a tensor; nil stands for one that is left out, or, in an unfinished executable, not there.
func (d describer) tensor(id graph.TensorID) *Tensor {
	if id < 0 || int(id) >= len(d.e.Tensors) {
		return nil
	}
	t := &d.e.Tensors[id]
	out := &Tensor{ID: id, Name: t.Name, Type: t.Type.String()}
	switch {
	case t.Const:
		out.Kind = "constant"
	case t.Persistent:
		out.Kind = "persistent"
	}
	return out
}

func (d describer) node(n *graph.Node) Node {
	in := make([]graph.TensorType, len(n.Inputs))
	for i, t := range n.Inputs {
		if t >= 0 && int(t) < len(d.e.Tensors) {
			in[i] = d.e.Tensors[t].Type
		}
	}
	out := Node{Op: n.Op.Kind(), Name: n.Name, Attributes: Attributes(n.Op, in), Inputs: d.tensors(n.Inputs), Outputs: d.tensors(n.Outputs)}
	s := reflect.ValueOf(n.Op).Elem()
	for i := range s.NumField() {
		if g, ok := s.Field(i).Interface().(graph.GraphID); ok {
			if out.Graphs == nil {
				out.Graphs = map[string]int{}
			}
			out.Graphs[words(s.Type().Field(i).Name)] = int(g)
		}
	}
	return out
}
