package page

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// box is one box of a drawing: an operator, an anchor, or a group that can be
// folded into one box.
type box struct {
	ID     int    // in the drawing, before its children's
	Title  string // what it does, such as "Conv" or "Unary relu"
	Name   string // the node's name, the anchor's, the group's
	Type   string // of its first result
	Family string // decides the colour
	Group  bool   // can be folded
	Kids   []*box // of a group, in an order in which they can be computed
	Detail detail

	path   []string // what the name says about where it belongs
	parent *box
	depth  int // groups around it
	graph  graph.GraphID
	node   int // index into the graph's nodes; -1 if it is none
	frame  *frame
	folded bool

	mark string  // "added", "removed" or "changed", of a comparison
	peer *box    // what a comparison pairs it with
	heat float64 // share of the time, 0 to 1
}

// detail is what the page shows of a box that is selected.
type detail struct {
	Op      string    `json:"op,omitempty"` // with its attributes
	In      []operand `json:"in,omitempty"`
	Out     []operand `json:"out,omitempty"`
	Weights int64     `json:"weights,omitempty"` // bytes of operands that are constant or persistent
	Nodes   int       `json:"nodes,omitempty"`   // operators in a group
	Time    int64     `json:"time,omitempty"`    // nanoseconds a request
	Share   float64   `json:"share,omitempty"`   // of the time of all steps
	Changes []string  `json:"changes,omitempty"` // what a comparison found
}

// operand is a tensor that a box reads or writes.
type operand struct {
	Name string `json:"n"`
	Type string `json:"t"`
	Kind string `json:"k,omitempty"` // "constant" or "persistent"
	Box  int    `json:"b"`           // that it comes from, or -1
}

// edge is a tensor on its way from one box to another.
type edge struct {
	from, to *box
	tensor   string
}

// drawing is an executable as boxes and edges.
type drawing struct {
	root  *box
	boxes []*box // by ID
	edges []edge
	exe   *graph.Executable
}

// families of operators, in the order of the legend, with what they are
// called. Whatever is in none of the lists is of family "other".
var families = []struct{ ID, Name, kinds string }{
	{"anchor", "anchor", ""},
	{"conv", "convolution", "Conv BlockedConv PixelsConv ConvTranspose DeformConv IntegerConv Col2Im"},
	{"matrix", "matrix product, attention", "Gemm MatMul IntegerMatMul Attention ViewedAttention LinearAttention"},
	{"recurrent", "recurrence", "LSTM GRU RNN"},
	{"reduce", "pooling, reduction, search", "AveragePool MaxPool BlockedPool PixelsMaxPool LpPool MaxUnpool MaxRoiPool RoiAlign Reduce ArgMax TopK Cumulate"},
	{"norm", "normalisation, softmax", "BatchNorm GroupNorm LayerNorm RMSNorm LRN Softmax"},
	{"element", "elementwise", "Unary Binary PixelsBinary PixelsMap Clip Where Cast BitCast Bitwise Mod"},
	{"move", "movement of data", "Concat Expand Gather GatherElements GatherND Pad Reshape Resize BlockedResize ToBlocks FromBlocks ToPixels FromPixels PixelsConcat ScatterElements ScatterND Slice Transpose GridSample OneHot"},
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

// titleOf says what an operator does: its kind, and its function if the kind
// does not say it.
func titleOf(op graph.Op) string {
	if f := reflect.ValueOf(op).Elem().FieldByName("Fn"); f.IsValid() && f.Kind() == reflect.String && f.String() != "" {
		return op.Kind() + " " + f.String()
	}
	return op.Kind()
}

// builder makes a drawing of an executable.
type builder struct {
	*drawing
	writer map[graph.TensorID]*box // the last box that wrote a tensor
	drawn  map[graph.GraphID]*box  // graphs that are drawn already
}

// newDrawing returns the boxes and edges of every program that calls a graph.
// A graph that is used more than once is drawn once. e is verified.
func newDrawing(e *graph.Executable) *drawing {
	b := &builder{drawing: &drawing{root: &box{Group: true, node: -1}, exe: e}, writer: map[graph.TensorID]*box{}, drawn: map[graph.GraphID]*box{}}
	calling := 0
	for i := range e.Programs {
		if calls(e.Programs[i].Steps) {
			calling++
		}
	}
	for i := range e.Programs {
		p := &e.Programs[i]
		if !calls(p.Steps) {
			continue // it only moves weights, which the page lists elsewhere
		}
		into := b.root
		if calling > 1 {
			into = b.group(b.root, fmt.Sprintf("program %d", p.Index), p.Name)
		}
		b.steps(into, p.Steps)
	}
	gather(b.drawing)
	b.number(b.root, 0)
	for i, x := range b.boxes {
		for k, in := range x.Detail.In {
			x.Detail.In[k].Box = -1
			if in.Box >= 0 { // an index into edges until boxes have numbers
				x.Detail.In[k].Box = b.edges[in.Box].from.ID
			}
		}
		x.ID = i
	}
	return b.drawing
}

func calls(steps []graph.Step) bool {
	for i := range steps {
		if steps[i].Kind == graph.Call || calls(steps[i].Body) {
			return true
		}
	}
	return false
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
	}
	if b.node >= 0 {
		b.Detail.Nodes++
	}
}

func (b *builder) group(into *box, title, name string) *box {
	g := &box{Title: title, Name: name, Family: "control", Group: true, node: -1, parent: into}
	into.Kids = append(into.Kids, g)
	return g
}

func (b *builder) steps(into *box, steps []graph.Step) {
	for i := range steps {
		s := &steps[i]
		switch s.Kind {
		case graph.CopyIn:
			x := b.leaf(into, "input", b.exe.Streams[s.Stream].Handle, "anchor")
			x.Type = b.exe.Streams[s.Stream].Type.String()
			x.Detail.Out = []operand{b.tensor(s.Tensor)}
			b.writer[s.Tensor] = x
		case graph.CopyOut:
			x := b.leaf(into, "output", b.exe.Streams[s.Stream].Handle, "anchor")
			x.Type = b.exe.Streams[s.Stream].Type.String()
			b.read(x, s.Tensor)
		case graph.Call:
			b.graph(into, s.Graph)
		case graph.Repeat:
			b.steps(b.group(into, fmt.Sprintf("repeat %d times", s.Count), ""), s.Body)
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
		b.node(into, id, i)
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
	family := familyOf[n.Op.Kind()]
	if family == "" {
		family = "other"
	}
	x := b.leaf(into, titleOf(n.Op), n.Name, family)
	x.graph, x.node = id, i
	x.path = pathOf(n.Name)
	x.Detail.Op = graph.OpString(n.Op)
	for _, in := range n.Inputs {
		b.read(x, in)
	}
	for _, s := range graphsOf(n.Op) {
		x.Group = true
		b.graph(b.group(x, s.role, b.exe.Graphs[s.id].Name), s.id)
	}
	for _, out := range n.Outputs {
		if out == graph.None {
			continue
		}
		o := b.tensor(out)
		x.Detail.Out = append(x.Detail.Out, o)
		if x.Type == "" {
			x.Type = o.Type
		}
		b.writer[out] = x
	}
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
	o := operand{Name: clip(t.Name), Type: t.Type.String(), Box: -1}
	switch {
	case t.Const:
		o.Kind = "constant"
	case t.Persistent:
		o.Kind = "persistent"
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
		b.edges = append(b.edges, edge{w, x, o.Name + "  " + o.Type})
	} else if o.Kind != "" {
		x.Detail.Weights += b.exe.Tensors[id].Type.Bytes()
	}
	x.Detail.In = append(x.Detail.In, o)
}

// maxNesting bounds how many levels of groups a name can make.
const maxNesting = 32

// pathOf splits a node's name where frameworks join the names of modules.
func pathOf(name string) []string {
	sep := "/"
	if !strings.Contains(name, sep) {
		sep = "."
	}
	parts := strings.SplitN(strings.Trim(name, sep), sep, maxNesting+1)
	return parts[:len(parts)-1]
}
