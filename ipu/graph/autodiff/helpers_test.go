package autodiff_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/ipu/num"
)

func f64(shape ...int64) graph.TensorType {
	return graph.TensorType{DType: graph.F64, Shape: shape}
}

// draw draws one graph, in F64, of which gradients are checked.
type draw struct {
	*rapid.T
	b       *graph.Builder
	main    graph.GraphID
	inputs  []graph.TensorID // whose gradients are wanted
	values  map[graph.TensorID][]byte
	results []graph.TensorID // whose gradients are given; all floats that the nodes give but inputs, if there are none
}

func newDraw(t *rapid.T) *draw {
	d := &draw{T: t, b: graph.NewBuilder("test"), values: map[graph.TensorID][]byte{}}
	d.main = d.b.BeginGraph("main")
	return d
}

func (d *draw) size(label string, low, high int64) int64 {
	return rapid.Int64Range(low, high).Draw(d.T, label)
}
func (d *draw) yes(label string) bool { return rapid.Bool().Draw(d.T, label) }

// shape draws axes of 1 to 3 elements.
func (d *draw) shape(rank int) []int64 {
	s := make([]int64, rank)
	for i := range s {
		s[i] = d.size("axis", 1, 3)
	}
	return s
}

// broadcast draws a shape that broadcasts to another.
func (d *draw) broadcast(to []int64) []int64 {
	s := slices.Clone(to[d.size("axes left out", 0, int64(len(to))):])
	for i := range s {
		if d.size("stretched", 0, 2) == 0 {
			s[i] = 1
		}
	}
	return s
}

func encode(t graph.DType, v []float64) []byte {
	var b []byte
	for _, x := range v {
		switch t {
		case graph.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		case graph.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		case graph.F16:
			b = binary.LittleEndian.AppendUint16(b, uint16(num.Float16From64(x)))
		case graph.BF16:
			b = binary.LittleEndian.AppendUint16(b, uint16(num.BFloat16From64(x)))
		}
	}
	return b
}

func decode(t graph.DType, b []byte) []float64 {
	var v []float64
	for ; len(b) > 0; b = b[t.Size():] {
		v = append(v, graph.Number(t, b))
	}
	return v
}

// numbers draws values that float32 holds exactly, between low and high.
func (d *draw) numbers(n int64, low, high float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(rapid.IntRange(int(math.Ceil(low*64)), int(math.Floor(high*64))).Draw(d.T, "value"))/64 + 0x1p-10
	}
	return v
}

// x adds an input of numbers between low and high, never whole ones or zero.
func (d *draw) x(shape []int64, low, high float64) graph.TensorID {
	return d.input(shape, d.numbers(f64(shape...).Elements(), low, high))
}

// apart adds an input of numbers that are far from each other.
func (d *draw) apart(shape []int64) graph.TensorID {
	v := make([]float64, f64(shape...).Elements())
	for i := range v {
		v[i] = (float64(i)-float64(len(v)/2))/8 + 0x1p-10
	}
	return d.input(shape, rapid.Permutation(v).Draw(d.T, "values"))
}

func (d *draw) input(shape []int64, v []float64) graph.TensorID {
	x := d.b.AddLocal(fmt.Sprintf("x%d", len(d.inputs)), f64(shape...))
	d.inputs = append(d.inputs, x)
	d.values[x] = encode(graph.F64, v)
	return x
}

// fixed adds an operand that has no gradient.
func (d *draw) fixed(t graph.TensorType, data []byte) graph.TensorID {
	x := d.b.AddLocal("fixed", t)
	d.values[x] = data
	return x
}

func (d *draw) bools(shape []int64) graph.TensorID {
	data := make([]byte, f64(shape...).Elements())
	for i := range data {
		if d.yes("bool") {
			data[i] = 1
		}
	}
	return d.fixed(graph.TensorType{DType: graph.Bool, Shape: shape}, data)
}

// indices adds I64 operands from low to high.
func (d *draw) indices(shape []int64, low, high int64) graph.TensorID {
	var data []byte
	for range f64(shape...).Elements() {
		data = binary.LittleEndian.AppendUint64(data, uint64(d.size("index", low, high)))
	}
	return d.fixed(graph.TensorType{DType: graph.I64, Shape: shape}, data)
}

func (d *draw) i64s(shape []int64, v ...int64) graph.TensorID {
	var data []byte
	for _, x := range v {
		data = binary.LittleEndian.AppendUint64(data, uint64(x))
	}
	return d.fixed(graph.TensorType{DType: graph.I64, Shape: shape}, data)
}

func (d *draw) node(op graph.Op, in ...graph.TensorID) []graph.TensorID {
	out, err := d.b.Node(op, op.Kind(), in...)
	require.NoError(d, err)
	return out
}

func (d *draw) node1(op graph.Op, in ...graph.TensorID) graph.TensorID { return d.node(op, in...)[0] }

// give makes results of a node's floats.
func (d *draw) give(op graph.Op, in ...graph.TensorID) {
	for _, t := range d.node(op, in...) {
		if d.b.Type(t).DType == graph.F64 {
			d.results = append(d.results, t)
		}
	}
}

// interpreter computes graphs node by node, as their definition says.
type interpreter struct {
	e      *graph.Executable
	values [][]byte
}

func newInterpreter(e *graph.Executable, given map[graph.TensorID][]byte) *interpreter {
	p := &interpreter{e, make([][]byte, len(e.Tensors))}
	for i := range e.Tensors {
		p.values[i] = e.Tensors[i].Data
	}
	for t, v := range given {
		p.values[t] = v
	}
	return p
}

func (p *interpreter) run(g graph.GraphID) error {
	for _, n := range p.e.Graphs[g].Nodes {
		if err := p.node(n); err != nil {
			return fmt.Errorf("graph %q, node %q: %w", p.e.Graphs[g].Name, n.Name, err)
		}
	}
	return nil
}

func (p *interpreter) node(n graph.Node) error {
	var out [][]byte
	in, types := make([][]byte, len(n.Inputs)), make([]graph.TensorType, len(n.Inputs))
	for i, t := range n.Inputs {
		if t != graph.None {
			if p.values[t] == nil && p.e.Tensors[t].Type.Elements() > 0 {
				return fmt.Errorf("tensor %d %q has no value", t, p.e.Tensors[t].Name)
			}
			in[i], types[i] = p.values[t], p.e.Tensors[t].Type
		}
	}
	switch op := n.Op.(type) {
	case *graph.If:
		g := op.Else
		if in[0][0] != 0 {
			g = op.Then
		}
		if err := p.run(g); err != nil {
			return err
		}
		for _, t := range p.e.Graphs[g].Results {
			out = append(out, p.values[t])
		}
	case *graph.Loop:
		body := p.e.Graphs[op.Body]
		carried := in[2:]
		collected := make([][]byte, len(body.Results)-len(carried))
		for i := range op.Count {
			p.values[body.Params[0]] = binary.LittleEndian.AppendUint64(nil, uint64(i))
			for k, t := range body.Params[1:] {
				p.values[t] = carried[k]
			}
			if err := p.run(op.Body); err != nil {
				return err
			}
			var next [][]byte
			for _, t := range body.Results {
				next = append(next, p.values[t])
			}
			for k, v := range next[len(carried):] {
				collected[k] = append(collected[k], v...)
			}
			carried = next[:len(carried)]
		}
		out = slices.Concat(carried, collected)
	default:
		var err error
		if _, out, err = cpu.Eval(n.Op, types, in); err != nil {
			return err
		}
	}
	for i, t := range n.Outputs {
		if t != graph.None {
			p.values[t] = out[i]
		}
	}
	return nil
}

// narrow makes an executable in a narrower type of one in F64.
func narrow(t require.TestingT, e *graph.Executable, to graph.DType) *graph.Executable {
	var file bytes.Buffer
	require.NoError(t, encoding.Encode(&file, e))
	e, err := encoding.Decode(file.Bytes())
	require.NoError(t, err)
	for i := range e.Tensors {
		if x := &e.Tensors[i]; x.Type.DType == graph.F64 {
			x.Type.DType = to
			if x.Const {
				x.Data = encode(to, decode(graph.F64, x.Data))
			}
		}
	}
	for i := range e.Streams {
		if s := &e.Streams[i]; s.Type.DType == graph.F64 {
			s.Type.DType = to
		}
	}
	for _, g := range e.Graphs {
		for _, n := range g.Nodes {
			if c, ok := n.Op.(*graph.Cast); ok && c.To == graph.F64 {
				c.To = to
			}
		}
	}
	require.NoError(t, graph.Verify(e))
	return e
}

// addProgram adds the program that copies given tensors in, calls graphs, and copies others out.
func addProgram(e *graph.Executable, given map[graph.TensorID][]byte, wanted []graph.TensorID, graphs ...graph.GraphID) {
	var steps []graph.Step
	stream := func(handle string, dir graph.Direction, x graph.TensorID) graph.Step {
		e.Streams = append(e.Streams, graph.Stream{Handle: handle, Direction: dir, Type: e.Tensors[x].Type})
		kind := graph.CopyIn
		if dir == graph.DeviceToHost {
			kind = graph.CopyOut
		}
		return graph.Step{Kind: kind, Stream: graph.StreamID(len(e.Streams) - 1), Tensor: x}
	}
	for x := range e.Tensors {
		if _, ok := given[graph.TensorID(x)]; ok {
			steps = append(steps, stream(fmt.Sprint("in", x), graph.HostToDevice, graph.TensorID(x)))
		}
	}
	for _, g := range graphs {
		steps = append(steps, graph.Step{Kind: graph.Call, Graph: g})
	}
	for i, x := range wanted {
		steps = append(steps, stream(fmt.Sprint("out", i), graph.DeviceToHost, x))
	}
	e.Programs = append(e.Programs, graph.Program{Index: 5, Name: "Program", Steps: steps})
}

// memory is a stream of one transfer.
type memory struct {
	data []byte
	out  bool
}

func (m memory) Fetch(_ context.Context, buf []byte) error {
	if m.out {
		copy(m.data, buf)
	} else {
		copy(buf, m.data)
	}
	return nil
}

func (m memory) Memory(context.Context) ([]byte, error) { return m.data, nil }
func (memory) Prefetch([]byte) bool                     { return false }
func (memory) Complete()                                {}
func (memory) InvalidatePrefetched()                    {}

// runEngine runs program 5 of an executable in F32 on the engine, with values of F64 or of other types, and returns what is copied out.
func runEngine(t require.TestingT, e *graph.Executable, given map[string][]byte, options ...ipu.Option) map[string][]byte {
	var file bytes.Buffer
	require.NoError(t, encoding.Encode(&file, e))
	engine, err := cpu.New(ipu.EngineConfig{Executable: file.Bytes(), Options: options})
	require.NoError(t, err)
	defer engine.Close()
	out := map[string][]byte{}
	for _, s := range engine.Streams() {
		data, ok := given[s.Handle]
		if !ok {
			data = make([]byte, s.Bytes)
			out[s.Handle] = data
		}
		require.NoError(t, engine.Connect(s.Handle, memory{data, !ok}))
	}
	b, err := ipu.Lookup("cpu")
	require.NoError(t, err)
	devices, err := b.Devices(context.Background())
	require.NoError(t, err)
	_, err = devices[0].Attach()
	require.NoError(t, err)
	require.NoError(t, engine.Load(context.Background(), devices[0]))
	require.NoError(t, engine.Run(context.Background(), 5))
	return out
}

// check differentiates what was drawn and compares the gradients with central differences in float64, and those of the optimised executable on
// the engine with these in float32.
func (d *draw) check(o autodiff.Options) {
	e, err := d.b.Finish()
	require.NoError(d, err)
	o.Provided, o.Required = d.results, d.inputs
	info, err := autodiff.Backward(e, d.main, o)
	require.NoError(d, err)
	require.NoError(d, graph.Verify(e))
	given := map[graph.TensorID][]byte{}
	for t, v := range d.values {
		given[t] = v
	}
	weights := map[graph.TensorID][]float64{}
	for i, y := range d.results {
		link := info.Inputs[i]
		require.Equal(d, autodiff.Link{Kind: autodiff.FwdGrad, Forward: y, Tensor: link.Tensor}, link)
		w := d.numbers(e.Tensors[y].Type.Elements(), -2, 2)
		weights[y] = w
		given[link.Tensor] = encode(graph.F64, w)
	}
	p := newInterpreter(e, given)
	require.NoError(d, p.run(d.main))
	require.NoError(d, p.run(info.Graph), dump.String(e))
	var wanted []graph.TensorID
	grads := make([][]float64, len(d.inputs))
	greatest := 0.0
	for i, l := range info.Outputs {
		require.Equal(d, d.inputs[i], l.Forward)
		require.True(d, e.Tensors[l.Tensor].Type.Equal(e.Tensors[l.Forward].Type))
		grads[i] = decode(graph.F64, p.values[l.Tensor])
		wanted = append(wanted, l.Tensor)
		for _, v := range grads[i] {
			greatest = max(greatest, math.Abs(v))
		}
	}
	for i, x := range d.inputs {
		want := d.differences(e, x, weights, d.main)
		for k, v := range want {
			if math.Abs(v-grads[i][k]) > 1e-6*max(1, greatest) || math.IsNaN(grads[i][k]) {
				d.Fatalf("element %d of the gradient of input %d is %v, central differences give %v\n%v\n%v\n%v", k, i, grads[i][k], v, grads[i], want, dump.String(e))
			}
		}
	}
	d.engine(e, info, given, wanted, grads, greatest)
}

// differences are central differences of fourth order of what graphs compute.
func (d *draw) differences(e *graph.Executable, x graph.TensorID, weights map[graph.TensorID][]float64, graphs ...graph.GraphID) []float64 {
	at := decode(graph.F64, d.values[x])
	loss := func() float64 {
		p := newInterpreter(e, d.values)
		p.values[x] = encode(graph.F64, at)
		for _, g := range graphs {
			require.NoError(d, p.run(g))
		}
		total := 0.0
		for _, y := range d.results {
			for k, v := range decode(graph.F64, p.values[y]) {
				total += v * weights[y][k]
			}
		}
		return total
	}
	const h = 0x1p-11
	out := make([]float64, len(at))
	for i, v := range at {
		f := func(n float64) float64 { at[i] = v + n*h; return loss() }
		out[i] = (8*(f(1)-f(-1)) - (f(2) - f(-2))) / (12 * h)
		at[i] = v
	}
	return out
}

// engine runs forward and backward graph on the engine, optimised and as they are, with one and two threads.
func (d *draw) engine(e *graph.Executable, info *autodiff.Info, given map[graph.TensorID][]byte, wanted []graph.TensorID, want [][]float64, greatest float64) {
	addProgram(e, given, wanted, d.main, info.Graph)
	handles := map[string][]byte{}
	for x, v := range given {
		if e.Tensors[x].Type.DType == graph.F64 {
			v = encode(graph.F32, decode(graph.F64, v))
		}
		handles[fmt.Sprint("in", x)] = v
	}
	plain := narrow(d, e, graph.F32)
	require.NoError(d, pass.Optimize(plain, pass.OptimizeOptions{Evaluate: cpu.Eval}))
	one := runEngine(d, plain, handles, ipu.Option{Name: "threads", Value: "1"})
	two := runEngine(d, plain, handles, ipu.Option{Name: "threads", Value: "2"})
	for i := range wanted {
		handle := fmt.Sprint("out", i)
		require.Equal(d, one[handle], two[handle], "bits of one and two threads")
		for k, v := range decode(graph.F32, one[handle]) {
			if math.Abs(v-want[i][k]) > 2e-4*max(1, greatest) || math.IsNaN(v) {
				d.Fatalf("element %d of the gradient of input %d is %v on the engine, want %v\n%v", k, i, v, want[i][k], dump.String(plain))
			}
		}
	}
}
