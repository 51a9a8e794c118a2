// Package need sums up what the tensors of an executable take on a device that has to hold all of them at the same time, as the
// tiles of an IPU do, and says so to people. It counts bytes of row-major tensors, whatever an engine does with them: the
// same on every machine.
package need

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Need is the memory that an executable takes.
type Need struct {
	Weights   int64 // bytes of persistent tensors
	Constants int64 // bytes of constants
	Peak      int64 // bytes of local tensors where they are most, over all programs
	Program   string
	Node      string   // at which they are most; "" if there are none
	Largest   []Tensor // what takes most of the sum, at most [most] of them, largest first
}

// most is how many tensors an error names.
const most = 3

// Tensor is one of the tensors that take the memory.
type Tensor struct {
	Kind, Name string
	Type       graph.TensorType
}

// Total returns the sum in bytes.
func (n *Need) Total() int64 { return n.Weights + n.Constants + n.Peak }

// Of sums up an executable that has been verified.
func Of(e *graph.Executable) Need {
	var n Need
	var all []Tensor
	for i := range e.Tensors {
		t := &e.Tensors[i]
		switch {
		case t.Const:
			n.Constants += t.Type.Bytes()
			all = append(all, Tensor{"constant", t.Name, t.Type})
		case t.Persistent:
			n.Weights += t.Type.Bytes()
			all = append(all, Tensor{"weight", t.Name, t.Type})
		}
	}
	var at []life
	for i := range e.Programs {
		w := walk{e: e, open: map[graph.TensorID]int{}, shows: map[graph.TensorID]graph.TensorID{}}
		w.steps(e.Programs[i].Steps)
		if peak, where := w.peak(); peak > n.Peak {
			n.Peak, n.Program, n.Node = peak, programName(&e.Programs[i]), w.names[where]
			at = w.at(where)
		}
	}
	for _, l := range at {
		t := &e.Tensors[l.tensor]
		all = append(all, Tensor{"activation", t.Name, t.Type})
	}
	slices.SortStableFunc(all, func(a, b Tensor) int { return cmp.Compare(b.Type.Bytes(), a.Type.Bytes()) })
	n.Largest = all[:min(most, len(all))]
	return n
}

func programName(p *graph.Program) string {
	if p.Name == "" {
		return fmt.Sprint(p.Index)
	}
	return fmt.Sprintf("%d %q", p.Index, p.Name)
}

// Check returns an error, with the arithmetic, if a device of tiles has not the memory.
func (n *Need) Check(d ipu.DeviceInfo) error {
	have := int64(d.NumIPUs) * int64(d.TilesPerIPU) * d.BytesPerTile
	if have == 0 || n.Total() <= have {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the program needs %d bytes (%d of weights, %d of constants, %d of activations", n.Total(), n.Weights, n.Constants, n.Peak)
	if n.Peak > 0 {
		fmt.Fprintf(&b, " where they are most, in program %s at %s", n.Program, n.Node)
	}
	fmt.Fprintf(&b, "), and the device has %d: IPUs %d × tiles %d × bytes %d; the largest: ", have, d.NumIPUs, d.TilesPerIPU, d.BytesPerTile)
	for i, t := range n.Largest {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %q (%v, %d bytes)", t.Kind, t.Name, t.Type, t.Type.Bytes())
	}
	b.WriteString("; take a device of more IPUs or tiles, or compile the model for a smaller batch")
	return &ipu.Error{Kind: ipu.KindMemory, Message: b.String()}
}

// life is one value of a local tensor: from the place where it is written to that of its last read.
type life struct {
	tensor      graph.TensorID
	first, last int
}

// walk goes through one program, with its calls inlined.
type walk struct {
	e     *graph.Executable
	names []string // of places: nodes and transfers
	lives []life
	open  map[graph.TensorID]int            // the present value of each tensor, an index into lives
	shows map[graph.TensorID]graph.TensorID // tensors that are views of others
	loops []loop                            // that the walk is in, outermost first
}

// loop is a loop that the walk is in.
type loop struct {
	start int
	outer map[graph.TensorID]bool // local tensors that it reads before it writes them
}

func (w *walk) local(t graph.TensorID) bool {
	return t != graph.None && !w.e.Tensors[t].Const && !w.e.Tensors[t].Persistent
}

// place begins a place of the program.
func (w *walk) place(name string) { w.names = append(w.names, name) }

func (w *walk) read(t graph.TensorID) {
	if of, ok := w.shows[t]; ok {
		t = of
	}
	if !w.local(t) {
		return
	}
	i, ok := w.open[t]
	if !ok {
		return
	}
	now := len(w.names) - 1
	w.lives[i].last = now
	for k := range w.loops {
		if w.lives[i].first < w.loops[k].start {
			w.loops[k].outer[t] = true
		}
	}
}

func (w *walk) write(t graph.TensorID) {
	if !w.local(t) {
		return
	}
	delete(w.shows, t)
	now := len(w.names) - 1
	w.open[t] = len(w.lives)
	w.lives = append(w.lives, life{t, now, now})
}

// begin and end are around a loop. What it reads from before it, the next iteration reads too: it is kept until the end.
func (w *walk) begin() {
	w.loops = append(w.loops, loop{len(w.names), map[graph.TensorID]bool{}})
}

func (w *walk) end(name string) {
	w.place(name)
	l := w.loops[len(w.loops)-1]
	w.loops = w.loops[:len(w.loops)-1]
	for t := range l.outer {
		w.read(t)
	}
}

func (w *walk) steps(steps []graph.Step) {
	for i := range steps {
		switch s := &steps[i]; s.Kind {
		case graph.CopyIn:
			w.place(fmt.Sprintf("stream %q", w.e.Streams[s.Stream].Handle))
			w.write(s.Tensor)
		case graph.CopyOut:
			w.place(fmt.Sprintf("stream %q", w.e.Streams[s.Stream].Handle))
			w.read(s.Tensor)
		case graph.Call:
			w.graph(s.Graph)
		case graph.Repeat:
			w.begin()
			w.steps(s.Body)
			w.end("the end of a loop")
		}
	}
}

func (w *walk) graph(id graph.GraphID) {
	g := &w.e.Graphs[id]
	for i := range g.Nodes {
		n := &g.Nodes[i]
		name := fmt.Sprintf("node %q (%s)", n.Name, n.Op.Kind())
		if _, ok := n.Op.(*graph.Reshape); ok && w.local(n.Outputs[0]) && w.local(n.Inputs[0]) { // a view
			of := n.Inputs[0]
			if root, ok := w.shows[of]; ok {
				of = root
			}
			w.shows[n.Outputs[0]] = of
			continue
		}
		w.place(name)
		for _, t := range n.Inputs {
			w.read(t)
		}
		if subs := graph.Subgraphs(n.Op); len(subs) > 0 {
			w.nested(n, subs, name)
		}
		for _, t := range n.Outputs {
			w.write(t)
		}
	}
}

// nested walks the graphs that an operator runs.
func (w *walk) nested(n *graph.Node, subs []graph.GraphID, name string) {
	_, loops := n.Op.(*graph.Loop)
	for _, sub := range subs {
		if loops {
			w.begin()
		}
		for _, t := range w.e.Graphs[sub].Params {
			w.write(t)
		}
		w.graph(sub)
		if loops {
			w.end(name)
		} else {
			w.place(name)
		}
		for _, t := range w.e.Graphs[sub].Results {
			w.read(t)
		}
	}
}

// peak returns the most bytes that are kept at one place, and the first such place.
func (w *walk) peak() (bytes int64, place int) {
	change := make([]int64, len(w.names)+1)
	for _, l := range w.lives {
		size := w.e.Tensors[l.tensor].Type.Bytes()
		change[l.first] += size
		change[l.last+1] -= size
	}
	now := int64(0)
	for i := range w.names {
		if now += change[i]; now > bytes {
			bytes, place = now, i
		}
	}
	return bytes, place
}

// at returns the values that are kept at a place.
func (w *walk) at(place int) []life {
	return slices.DeleteFunc(slices.Clone(w.lives), func(l life) bool { return place < l.first || place > l.last })
}
