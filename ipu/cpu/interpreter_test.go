package cpu

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/graph"
)

// interpreter runs an executable step by step as its definition says: every
// tensor has memory of its own, every transfer is copied, every node is
// evaluated by itself. It is what the engine is compared with.
type interpreter struct {
	exe     *graph.Executable
	values  [][]byte
	streams map[string]ipu.Stream
	// noise, if it is there, decides which way results of float32 are changed, by
	// a millionth.
	noise *rand.Rand
}

func newInterpreter(exe *graph.Executable) *interpreter {
	p := &interpreter{exe: exe, values: make([][]byte, len(exe.Tensors)), streams: map[string]ipu.Stream{}}
	for i, t := range exe.Tensors {
		p.values[i] = align.Bytes(t.Type.Bytes())
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
			if err := p.graph(s.Graph); err != nil {
				return err
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
		return stream.Fetch(context.Background(), value)
	}
	m, err := d.Memory(context.Background())
	if s.Kind == graph.CopyIn {
		copy(value, m)
	} else {
		copy(m, value)
	}
	return err
}

func (p *interpreter) graph(g graph.GraphID) error {
	for _, n := range p.exe.Graphs[g].Nodes {
		var err error
		switch op := n.Op.(type) {
		case *graph.If:
			err = p.branch(op, n)
		case *graph.Loop:
			err = p.loop(op, n)
		default:
			err = p.node(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copies returns copies of tensors' values.
func (p *interpreter) copies(ids []graph.TensorID) [][]byte {
	out := make([][]byte, len(ids))
	for i, t := range ids {
		out[i] = slices.Clone(p.values[t])
	}
	return out
}

func (p *interpreter) set(ids []graph.TensorID, values [][]byte) {
	for i, t := range ids {
		if t != graph.None {
			copy(p.values[t], values[i])
		}
	}
}

func (p *interpreter) branch(op *graph.If, n graph.Node) error {
	g := op.Else
	if p.values[n.Inputs[0]][0] != 0 {
		g = op.Then
	}
	err := p.graph(g)
	p.set(n.Outputs, p.copies(p.exe.Graphs[g].Results))
	return err
}

func (p *interpreter) loop(op *graph.Loop, n graph.Node) error {
	body := p.exe.Graphs[op.Body]
	more, count, carried := true, op.Count, p.copies(n.Inputs[2:])
	if t := n.Inputs[0]; t != graph.None {
		count = int64(binary.LittleEndian.Uint64(p.values[t]))
	}
	if t := n.Inputs[1]; t != graph.None {
		more = p.values[t][0] != 0
	}
	collected := make([][]byte, len(body.Results)) // more than needed
	for i := int64(0); more && (count < 0 && n.Inputs[0] == graph.None || i < count); i++ {
		p.set(body.Params, append([][]byte{binary.LittleEndian.AppendUint64(nil, uint64(i))}, carried...))
		if err := p.graph(op.Body); err != nil {
			return err
		}
		got := p.copies(body.Results)
		if op.While {
			more, got = got[0][0] != 0, got[1:]
		}
		for k, v := range got[len(carried):] {
			collected[k] = append(collected[k], v...)
		}
		carried = got[:len(carried)]
	}
	p.set(n.Outputs, append(carried, collected...))
	return nil
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
			if p.noise != nil && p.exe.Tensors[t].Type.DType == graph.F32 {
				near := floats(p.values[t])
				for j := range near {
					near[j] *= 1 + 0x1p-20*float32(p.noise.IntN(2)*2-1)
				}
				copy(p.values[t], bytesOf(near))
			}
		}
	}
	return nil
}
