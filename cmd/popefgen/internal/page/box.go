package page

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
)

// box is one box of a drawing: an operator, an anchor, or a group that can be
// folded into one box.
type box struct {
	ID     int    // in the drawing, before its children's
	Title  string // what it does, such as "Conv" or "Relu"
	Name   string // the node's name, the anchor's, the group's
	Type   string // of its first result
	Family string // decides the colour
	Group  bool   // can be folded
	Kids   []*box // of a group, in an order in which they can be computed
	Detail detail

	lines    []string // below the title: attributes, weights
	path     []string // what names say about where it belongs
	inherits bool     // path is that of the boxes around it
	parent   *box
	depth    int // groups around it
	graph    graph.GraphID
	node     int // index into the graph's nodes; -1 if it is none
	frame    *frame
	folded   bool

	mark   string  // "added", "removed", "changed" or "follows", of a comparison
	peer   *box    // what a comparison pairs it with
	heat   float64 // share of the time, 0 to 1
	tag    float64 // width of the shape on the edges that leave it
	size   struct{ w, h float64 }
	inputs []graph.TensorID
	op     graph.Op
}

// detail is what the page shows of a box that is selected.
type detail struct {
	Kind    string           `json:"kind,omitempty"` // of the operator, where the title says something else
	Attrs   []dump.Attribute `json:"attrs,omitempty"`
	In      []operand        `json:"in,omitempty"`
	Out     []operand        `json:"out,omitempty"`
	Weights int64            `json:"weights,omitempty"` // bytes of operands that are weights
	FLOPs   float64          `json:"flops,omitempty"`
	Nodes   int              `json:"nodes,omitempty"`   // operators in a group
	Time    int64            `json:"time,omitempty"`    // nanoseconds a request
	Share   float64          `json:"share,omitempty"`   // of the time of all steps
	Changes []string         `json:"changes,omitempty"` // what a comparison found
}

// operand is a tensor that a box reads or writes.
type operand struct {
	Name  string `json:"n"`
	Type  string `json:"t"`
	Kind  string `json:"k,omitempty"` // "weight", "constant" or "state"
	Via   string `json:"v,omitempty"` // what is computed of a weight before it is read
	Value string `json:"x,omitempty"` // of a constant that is one number
	Box   int    `json:"b"`           // that it comes from, or -1

	id     graph.TensorID
	tensor graph.TensorType
}

// edge is a tensor on its way from one box to another.
type edge struct {
	from, to      *box
	tensor, shape string
}

// drawing is an executable as boxes and edges.
type drawing struct {
	root     *box
	boxes    []*box // by ID
	edges    []edge
	exe      *graph.Executable
	absorbed map[node]*box // nodes that compute weights alone, by the box they stand in
}

// families of operators, in the order of the legend, with what they are
// called. Whatever is in none of the lists is of family "other".
var families = []struct{ ID, Name, kinds string }{
	{"anchor", "input, output", ""},
	{"conv", "convolution", "Conv NCHWcConv NHWCConv ConvTranspose ConvWeightGradient DeformConv IntegerConv Col2Im"},
	{"matrix", "matrix product, attention", "Gemm MatMul IntegerMatMul Attention ViewedAttention LinearAttention AttentionGradient"},
	{"recurrent", "recurrence", "LSTM GRU RNN RecurrentGradient"},
	{"reduce", "pooling, reduction, search", "AveragePool MaxPool NCHWcPool NHWCMaxPool LpPool MaxUnpool MaxRoiPool RoiAlign RoiAlignGradient Reduce ArgMax TopK Cumulate NonMaxSuppression NonZero Unique"},
	{"norm", "normalisation, softmax", "BatchNorm GroupNorm LayerNorm RMSNorm LRN Softmax Gradient"},
	{"element", "elementwise", "Unary Binary Pointwise NHWCBinary NHWCLookup Clip Where Cast BitCast Bitwise Mod Random Update"},
	{"move", "movement of data", "Concat Expand Gather GatherElements GatherND Pad Reshape Resize NCHWcResize ToNCHWc FromNCHWc ToNHWC FromNHWC NHWCConcat ScatterElements ScatterND Slice Transpose GridSample OneHot"},
	{"quant", "quantisation", "Quantize Dequantize"},
	{"control", "control flow", "If Loop"},
	{"other", "other", ""},
}

var familyOf = func() map[string]string {
	m := map[string]string{}
	for _, f := range families {
		for _, k := range strings.Fields(f.kinds) {
			m[k] = f.ID
		}
	}
	return m
}()

// builder makes a drawing of an executable.
type builder struct {
	*drawing
	weights
	anchors map[string]string       // names of anchors by handle
	writer  map[graph.TensorID]*box // the last box that wrote a tensor
	drawn   map[graph.GraphID]*box  // graphs that are drawn already
	readers map[node]*box           // boxes by node
}

// newDrawing returns the boxes and edges of the programs that compute
// something for a caller. A graph that is used more than once is drawn once;
// what is computed of weights alone stands in the operators that read it.
// Anchors are called what anchors says of their handles. e is verified.
func newDrawing(e *graph.Executable, anchors map[string]string) *drawing {
	b := &builder{drawing: &drawing{root: &box{Group: true, node: -1}, exe: e, absorbed: map[node]*box{}}, anchors: anchors,
		writer: map[graph.TensorID]*box{}, drawn: map[graph.GraphID]*box{}, readers: map[node]*box{}}
	main := mainPrograms(e)
	b.weights = weightsIn(e, main, b.anchor)
	for _, p := range main {
		into := b.root
		if len(main) > 1 {
			into = b.group(b.root, cmp.Or(p.Name, "program"), "")
		}
		b.steps(into, p.Steps)
	}
	for n, reader := range b.weights.into {
		b.absorbed[n] = b.readers[reader]
	}
	inherit(b.drawing)
	gather(b.drawing)
	b.number(b.root, 0)
	for _, x := range b.boxes {
		for k, in := range x.Detail.In {
			x.Detail.In[k].Box = -1
			if in.Box >= 0 { // an index into edges until boxes have numbers
				x.Detail.In[k].Box = b.edges[in.Box].from.ID
			}
		}
	}
	return b.drawing
}

// anchor is what the caller calls a stream.
func (b *builder) anchor(s graph.StreamID) string {
	handle := b.exe.Streams[s].Handle
	return cmp.Or(b.anchors[handle], handle)
}

// number lists the boxes and counts the groups around them.
func (d *drawing) number(b *box, depth int) {
	b.ID, b.depth = len(d.boxes), depth
	d.boxes = append(d.boxes, b)
	for _, k := range b.Kids {
		k.parent = b
		d.number(k, depth+1)
		b.Detail.Nodes += k.Detail.Nodes
		b.Detail.Weights += k.Detail.Weights
		b.Detail.FLOPs += k.Detail.FLOPs
	}
	if b.node >= 0 {
		b.Detail.Nodes++
	}
}

func (b *builder) group(into *box, title, name string) *box {
	g := &box{Title: title, Name: name, Family: "group", Group: true, node: -1, parent: into}
	into.Kids = append(into.Kids, g)
	return g
}

func (b *builder) steps(into *box, steps []graph.Step) {
	for i := range steps {
		s := &steps[i]
		switch s.Kind {
		case graph.CopyIn:
			if b.weights.isWeight(s.Tensor) {
				continue
			}
			x := b.leaf(into, "input", b.anchor(s.Stream), "anchor")
			t := b.exe.Streams[s.Stream].Type
			x.Type = t.String()
			x.Detail.Out = []operand{b.tensor(s.Tensor)}
			b.writer[s.Tensor] = x
		case graph.CopyOut:
			x := b.leaf(into, "output", b.anchor(s.Stream), "anchor")
			t := b.exe.Streams[s.Stream].Type
			x.Type = t.String()
			b.read(x, s.Tensor)
		case graph.Call:
			b.graph(into, s.Graph)
		case graph.Repeat:
			if s.Count == 1 {
				b.steps(into, s.Body)
				continue
			}
			b.steps(b.group(into, plural(int(s.Count), "time", "times"), ""), s.Body)
		}
	}
}

func (b *builder) leaf(into *box, title, name, family string) *box {
	x := &box{Title: title, Name: name, Family: family, node: -1, parent: into}
	into.Kids = append(into.Kids, x)
	return x
}

// graph draws the nodes of a graph into a group, unless they stand elsewhere.
func (b *builder) graph(into *box, id graph.GraphID) {
	g := &b.exe.Graphs[id]
	if b.drawn[id] != nil {
		b.leaf(into, "call", g.Name, "control")
		return
	}
	b.drawn[id] = into
	if len(g.Params) > 0 {
		x := b.leaf(into, "parameters", g.Name, "control")
		for _, p := range g.Params {
			x.Detail.Out = append(x.Detail.Out, b.tensor(p))
			b.writer[p] = x
		}
		x.Type = x.Detail.Out[0].Type
	}
	for i := range g.Nodes {
		if _, inside := b.weights.into[node{id, i}]; !inside {
			b.node(into, id, i)
		}
	}
	if len(g.Results) > 0 {
		x := b.leaf(into, "results", g.Name, "control")
		for _, r := range g.Results {
			b.read(x, r)
		}
	}
}

func (b *builder) node(into *box, id graph.GraphID, i int) {
	n := &b.exe.Graphs[id].Nodes[i]
	family := cmp.Or(familyOf[n.Op.Kind()], "other")
	x := b.leaf(into, titleOf(n.Op), n.Name, family)
	x.graph, x.node, x.inputs, x.op = id, i, n.Inputs, n.Op
	b.readers[node{id, i}] = x
	if x.Title != n.Op.Kind() {
		x.Detail.Kind = n.Op.Kind()
	}
	in, out := typesOf(b.exe, n.Inputs), typesOf(b.exe, n.Outputs)
	x.Detail.Attrs = dump.Attributes(n.Op, in)
	x.Detail.FLOPs = cpu.FLOPs(n.Op, in, out)
	if s := brief(n.Op, in, x.Detail.Attrs); s != "" {
		x.lines = append(x.lines, s)
	}
	for _, t := range n.Inputs {
		b.read(x, t)
	}
	if s := weightLine(x.Detail.In); s != "" {
		x.lines = append(x.lines, s)
	}
	x.path = b.pathOf(x)
	for _, s := range graphsOf(n.Op) {
		x.Group = true
		b.graph(b.group(x, s.role, b.exe.Graphs[s.id].Name), s.id)
	}
	for _, t := range n.Outputs {
		if t == graph.None {
			continue
		}
		o := b.tensor(t)
		x.Detail.Out = append(x.Detail.Out, o)
		if x.Type == "" {
			x.Type = o.Type
		}
		b.writer[t] = x
	}
}

// weightLine says of which shapes the weights of an operator are.
func weightLine(in []operand) string {
	var shapes []string
	for _, o := range in {
		if o.Box < 0 && (o.Kind == "weight" || o.Kind == "constant") {
			shapes = append(shapes, cmp.Or(o.Value, shapeText(o.tensor)))
		}
	}
	if n := len(shapes); n > 2 && len(slices.Compact(slices.Clone(shapes))) == 1 {
		return fmt.Sprintf("%d times %s", n, shapes[0])
	}
	if len(shapes) > 3 {
		shapes = append(shapes[:3], "…")
	}
	return strings.Join(shapes, " + ")
}

func typesOf(e *graph.Executable, tensors []graph.TensorID) []graph.TensorType {
	out := make([]graph.TensorType, len(tensors))
	for i, t := range tensors {
		if t != graph.None {
			out[i] = e.Tensors[t].Type
		}
	}
	return out
}

// subgraph is a graph that an operator runs.
type subgraph struct {
	role string
	id   graph.GraphID
}

// graphsOf lists the graphs that an operator runs: its attributes of that type.
func graphsOf(op graph.Op) (all []subgraph) {
	v := reflect.ValueOf(op).Elem()
	for i := range v.NumField() {
		if id, ok := v.Field(i).Interface().(graph.GraphID); ok {
			all = append(all, subgraph{strings.ToLower(v.Type().Field(i).Name), id})
		}
	}
	return all
}

func (b *builder) tensor(id graph.TensorID) operand {
	t := &b.exe.Tensors[id]
	o := operand{Name: clip(t.Name), Type: t.Type.String(), Box: -1, id: id, tensor: t.Type}
	switch {
	case b.weights.isWeight(id):
		w := b.weights.of[id]
		o.Kind, o.Via = "weight", strings.Join(w.ops, ", ")
		if t.Const && w.ops == nil {
			o.Kind = "constant"
			if t.Type.Elements() == 1 {
				elements(t.Type.DType, t.Data, func(v float64) { o.Value = fmt.Sprintf("%.7g", v) })
			}
		}
		if len(w.names) > 0 {
			o.Name = clip(strings.Join(w.names, ", "))
		}
	case t.Persistent:
		o.Kind = "state"
	}
	return o
}

// read adds an operand of x and, where a box wrote it, the edge from there.
func (b *builder) read(x *box, id graph.TensorID) {
	if id == graph.None {
		return
	}
	o := b.tensor(id)
	if w := b.writer[id]; w != nil && w != x {
		o.Box = len(b.edges)
		b.edges = append(b.edges, edge{w, x, o.Name + "  " + o.Type, shapeText(o.tensor)})
	} else if o.Kind != "" && !slices.ContainsFunc(x.Detail.In, func(p operand) bool { return p.id == id }) {
		x.Detail.Weights += o.tensor.Bytes()
	}
	x.Detail.In = append(x.Detail.In, o)
}
