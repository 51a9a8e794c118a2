package cpu

import (
	"context"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// interpreter runs an executable step by step as its definition says: every
// tensor has memory of its own, every transfer is copied, every node is
// evaluated by itself. It is what the engine is compared with.
type interpreter struct {
	exe     *graph.Executable
	values  [][]byte
	streams map[string]ipu.Stream
}

func newInterpreter(exe *graph.Executable) *interpreter {
	p := &interpreter{exe: exe, values: make([][]byte, len(exe.Tensors)), streams: map[string]ipu.Stream{}}
	for i, t := range exe.Tensors {
		p.values[i] = alignedBytes(t.Type.Bytes())
		copy(p.values[i], t.Data)
	}
	return p
}

func (p *interpreter) Connect(handle string, s ipu.Stream) error {
	p.streams[handle] = s
	return nil
}

func (p *interpreter) Run(_ context.Context, index int) error {
	i := slices.IndexFunc(p.exe.Programs, func(g graph.Program) bool { return g.Index == index })
	return p.steps(p.exe.Programs[i].Steps)
}

func (p *interpreter) steps(steps []graph.Step) error {
	for _, s := range steps {
		switch s.Kind {
		case graph.CopyIn, graph.CopyOut:
			if err := p.transfer(s); err != nil {
				return err
			}
		case graph.Call:
			for _, n := range p.exe.Graphs[s.Graph].Nodes {
				if err := p.node(n); err != nil {
					return err
				}
			}
		case graph.Repeat:
			for range s.Count {
				if err := p.steps(s.Body); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (p *interpreter) transfer(s graph.Step) error {
	stream, value := p.streams[p.exe.Streams[s.Stream].Handle], p.values[s.Tensor]
	defer stream.Complete()
	d, ok := stream.(ipu.Direct)
	if !ok {
		return stream.Fetch(value)
	}
	m, err := d.Memory()
	if s.Kind == graph.CopyIn {
		copy(value, m)
	} else {
		copy(m, value)
	}
	return err
}

func (p *interpreter) node(n graph.Node) error {
	types, data := make([]graph.TensorType, len(n.Inputs)), make([][]byte, len(n.Inputs))
	for i, t := range n.Inputs {
		if t != graph.None {
			types[i], data[i] = p.exe.Tensors[t].Type, p.values[t]
		}
	}
	_, out, err := Eval(n.Op, types, data)
	if err != nil {
		return err
	}
	for i, t := range n.Outputs {
		if t != graph.None {
			copy(p.values[t], out[i])
		}
	}
	return nil
}
