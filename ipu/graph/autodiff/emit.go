package autodiff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

const (
	// maxNodes bounds how many nodes are made: operators that share graphs in several layers
	// would multiply them.
	maxNodes = 1 << 20
	// maxVisits bounds how many references of nodes to tensors are looked at.
	maxVisits = 1 << 27
)

// emitter appends nodes to graphs of its own copy of an executable, and infers their types.
type emitter struct {
	e         *graph.Executable
	cur       graph.GraphID // the graph that nodes go to
	name      string        // of the nodes that are emitted
	bytes     int64         // of all tensors
	nodes     int
	visits    int
	scalars   map[scalarKey]graph.TensorID
	detached  map[graph.TensorID]bool // through these, and their copies, no gradient flows
	summaries map[graph.GraphID]*boundary
	obstacles []Obstacle
	tooBig    error
	plain     bool // rules emit no [graph.Gradient]
}

type scalarKey struct {
	dtype graph.DType
	bits  uint64
}

func newEmitter(e *graph.Executable) *emitter {
	own := &graph.Executable{Name: e.Name, Tensors: slices.Clip(e.Tensors), Graphs: slices.Clip(e.Graphs)}
	b := &emitter{e: own, detached: map[graph.TensorID]bool{}, scalars: map[scalarKey]graph.TensorID{}, summaries: map[graph.GraphID]*boundary{}}
	for i := range e.Tensors {
		b.bytes += e.Tensors[i].Type.Bytes()
	}
	return b
}

// refusal is what rules panic with where an operator has no gradient, and what inference refuses.
type refusal struct{ why error }

// refuse ends a rule.
func refuse(format string, args ...any) { panic(refusal{fmt.Errorf(format, args...)}) }

// overflow ends everything: there is no room for more.
type overflow struct{ err error }

// guard runs f and keeps the error of an overflow in it. A refusal outside of a rule blocks too.
func (b *emitter) guard(f func()) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case overflow:
			b.tooBig = v.err
		case refusal:
			b.block(Obstacle{Why: v.why.Error()})
		default:
			panic(v)
		}
	}()
	f()
}

// attempt runs f and returns why it was refused.
func attempt(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case refusal:
			err = v.why
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

// block notes an obstacle once.
func (b *emitter) block(o Obstacle) {
	if !slices.Contains(b.obstacles, o) {
		b.obstacles = append(b.obstacles, o)
	}
}

// visit counts references that are looked at.
func (b *emitter) visit(n int) {
	if b.visits += n; b.visits > maxVisits {
		panic(overflow{fmt.Errorf("%w: the graphs refer to each other too often", ErrTooBig)})
	}
}

// begin adds an empty graph, to which nodes go from now on.
func (b *emitter) begin(name string) graph.GraphID {
	b.e.Graphs = append(b.e.Graphs, graph.Graph{Name: name})
	b.cur = graph.GraphID(len(b.e.Graphs) - 1)
	return b.cur
}

// inside emits nodes to a new graph and goes on in the one before.
func (b *emitter) inside(name string, f func()) graph.GraphID {
	around := b.cur
	defer func() { b.cur = around }()
	g := b.begin(name)
	f()
	return g
}

// emitted returns the nodes of the current graph.
func (b *emitter) emitted() []graph.Node { return b.e.Graphs[b.cur].Nodes }

// local adds a tensor.
func (b *emitter) local(name string, t graph.TensorType) graph.TensorID {
	return b.tensor(graph.Tensor{Name: name, Type: t})
}

func (b *emitter) tensor(t graph.Tensor) graph.TensorID {
	if b.bytes += t.Type.Bytes(); b.bytes > graph.MaxTotalBytes {
		panic(overflow{fmt.Errorf("%w: with what is computed for node %q all tensors need %d bytes, want at most 2^42: make the batch or the model smaller", ErrTooBig, b.name, b.bytes)})
	}
	b.e.Tensors = append(b.e.Tensors, t)
	return graph.TensorID(len(b.e.Tensors) - 1)
}

// typ returns a tensor's type, and no type for None.
func (b *emitter) typ(t graph.TensorID) graph.TensorType {
	if t == graph.None {
		return graph.TensorType{}
	}
	return b.e.Tensors[t].Type
}

func (b *emitter) shape(t graph.TensorID) []int64     { return b.typ(t).Shape }
func (b *emitter) dtype(t graph.TensorID) graph.DType { return b.typ(t).DType }

// ops appends a node and returns its results.
func (b *emitter) ops(op graph.Op, in ...graph.TensorID) []graph.TensorID {
	types := make([]graph.TensorType, len(in))
	for i, t := range in {
		types[i] = b.typ(t)
	}
	out, err := b.e.Infer(op, types)
	if err != nil {
		refuse("its gradient can't be computed: %s: %w", op.Kind(), err)
	}
	ids := make([]graph.TensorID, len(out))
	for i, t := range out {
		ids[i] = b.local(b.name, t)
	}
	b.node(graph.Node{Op: op, Name: b.name, Inputs: in, Outputs: ids})
	return ids
}

// node appends a node as it is.
func (b *emitter) node(n graph.Node) {
	if b.nodes++; b.nodes > maxNodes {
		panic(overflow{fmt.Errorf("%w: they take more than %d nodes", ErrTooBig, maxNodes)})
	}
	b.visit(1 + len(n.Inputs) + len(n.Outputs))
	g := &b.e.Graphs[b.cur]
	g.Nodes = append(g.Nodes, n)
	delete(b.summaries, b.cur)
}

// op appends a node and returns its first result.
func (b *emitter) op(op graph.Op, in ...graph.TensorID) graph.TensorID { return b.ops(op, in...)[0] }

func (b *emitter) unary(fn graph.UnaryFn, x graph.TensorID) graph.TensorID {
	return b.op(&graph.Unary{Fn: fn}, x)
}

func (b *emitter) binary(fn graph.BinaryFn, x, y graph.TensorID) graph.TensorID {
	return b.op(&graph.Binary{Fn: fn}, x, y)
}

func (b *emitter) add(x, y graph.TensorID) graph.TensorID { return b.binary(graph.Add, x, y) }
func (b *emitter) sub(x, y graph.TensorID) graph.TensorID { return b.binary(graph.Sub, x, y) }
func (b *emitter) mul(x, y graph.TensorID) graph.TensorID { return b.binary(graph.Mul, x, y) }
func (b *emitter) div(x, y graph.TensorID) graph.TensorID { return b.binary(graph.Div, x, y) }
func (b *emitter) neg(x graph.TensorID) graph.TensorID    { return b.unary(graph.Neg, x) }
func (b *emitter) square(x graph.TensorID) graph.TensorID { return b.mul(x, x) }

// scale multiplies x with a number.
func (b *emitter) scale(x graph.TensorID, by float64) graph.TensorID {
	if by == 1 {
		return x
	}
	return b.mul(x, b.number(by, b.dtype(x)))
}

// plus adds a number to x.
func (b *emitter) plus(x graph.TensorID, n float64) graph.TensorID {
	return b.add(x, b.number(n, b.dtype(x)))
}

// where selects x where cond is true, else y.
func (b *emitter) where(cond, x, y graph.TensorID) graph.TensorID {
	return b.op(&graph.Where{}, cond, x, y)
}

// only is x where cond is true, else 0.
func (b *emitter) only(cond, x graph.TensorID) graph.TensorID {
	return b.where(cond, x, b.number(0, b.dtype(x)))
}

// cast converts x, if it is of another type.
func (b *emitter) cast(x graph.TensorID, to graph.DType) graph.TensorID {
	if b.dtype(x) == to {
		return x
	}
	return b.op(&graph.Cast{To: to}, x)
}

// wide converts half precision to F32; F32 and F64 stay.
func (b *emitter) wide(x graph.TensorID) graph.TensorID {
	if x == graph.None {
		return x
	}
	if d := b.dtype(x); d == graph.F16 || d == graph.BF16 {
		return b.cast(x, graph.F32)
	}
	return x
}

// reshape gives x another shape, if it has not this one.
func (b *emitter) reshape(x graph.TensorID, shape ...int64) graph.TensorID {
	if slices.Equal(b.shape(x), shape) {
		return x
	}
	return b.op(&graph.Reshape{Shape: shape}, x)
}

// expand broadcasts x to a shape, if it has not this one.
func (b *emitter) expand(x graph.TensorID, shape []int64) graph.TensorID {
	if slices.Equal(b.shape(x), shape) {
		return x
	}
	return b.op(&graph.Expand{Shape: shape}, x)
}

// transpose permutes axes: axis i of the result is axis perm[i] of x.
func (b *emitter) transpose(x graph.TensorID, perm ...int64) graph.TensorID {
	for i, p := range perm {
		if int64(i) != p {
			return b.op(&graph.Transpose{Perm: perm}, x)
		}
	}
	return x
}

// sum adds up over axes, which stay as 1.
func (b *emitter) sum(x graph.TensorID, axes ...int64) graph.TensorID {
	return b.reduce(graph.ReduceSum, x, axes)
}

// mean is the mean over axes, which stay as 1.
func (b *emitter) mean(x graph.TensorID, axes ...int64) graph.TensorID {
	return b.reduce(graph.ReduceMean, x, axes)
}

func (b *emitter) reduce(fn graph.ReduceFn, x graph.TensorID, axes []int64) graph.TensorID {
	if len(axes) == 0 {
		return x
	}
	return b.op(&graph.Reduce{Fn: fn, Axes: axes, KeepDims: true}, x)
}

// sumTo adds up what broadcasting to x's shape has repeated, so that a tensor of the given shape is left.
func (b *emitter) sumTo(x graph.TensorID, shape []int64) graph.TensorID {
	from := b.shape(x)
	var axes []int64
	ahead := len(from) - len(shape)
	for i, d := range from {
		if i < ahead || shape[i-ahead] == 1 && d != 1 {
			axes = append(axes, int64(i))
		}
	}
	return b.reshape(b.sum(x, axes...), shape...)
}

// zeros is a tensor of zeros.
func (b *emitter) zeros(t graph.TensorType) graph.TensorID {
	return b.expand(b.number(0, t.DType), t.Shape)
}

// number is a constant scalar.
func (b *emitter) number(v float64, d graph.DType) graph.TensorID {
	key := scalarKey{d, math.Float64bits(v)}
	if id, ok := b.scalars[key]; ok {
		return id
	}
	id := b.constant(fmt.Sprint(v), graph.TensorType{DType: d}, v)
	b.scalars[key] = id
	return id
}

var errNumber = errors.New("constants of this type are not made")

// constant adds a constant of a few numbers.
func (b *emitter) constant(name string, t graph.TensorType, v ...float64) graph.TensorID {
	var data []byte
	le := binary.LittleEndian
	for _, v := range v {
		switch t.DType {
		case graph.F16:
			data = le.AppendUint16(data, uint16(num.Float16From64(v)))
		case graph.BF16:
			data = le.AppendUint16(data, uint16(num.BFloat16From64(v)))
		case graph.F32:
			data = le.AppendUint32(data, math.Float32bits(float32(v)))
		case graph.F64:
			data = le.AppendUint64(data, math.Float64bits(v))
		case graph.I32:
			data = le.AppendUint32(data, uint32(int32(v)))
		case graph.I64:
			data = le.AppendUint64(data, uint64(int64(v)))
		default:
			refuse("%v: %w", t.DType, errNumber)
		}
	}
	return b.tensor(graph.Tensor{Name: name, Type: t, Const: true, Data: data})
}

// iota counts from 0: I64 [n]. It is computed, so that the executable holds no such list.
func (b *emitter) iota(n int64) graph.TensorID {
	ones := b.expand(b.number(1, graph.I64), []int64{n})
	return b.op(&graph.Cumulate{Fn: graph.CumulateSum, Exclusive: true}, ones)
}

// axesFrom lists the axes from first on of a tensor of that rank.
func axesFrom(first, rank int) []int64 {
	var axes []int64
	for i := first; i < rank; i++ {
		axes = append(axes, int64(i))
	}
	return axes
}

// product multiplies dimensions.
func product(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// repeated returns n times v.
func repeated(n int, v int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = v
	}
	return out
}
