package popxl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// frame is a graph that is being made: the main one, the body of a loop, a branch of a choice, or a [Graph]. It counts what the graph loads and stores, once for each time that it is computed.
type frame struct {
	id        graph.GraphID
	parent    *frame         // around a loop or a branch; nil of the others
	iteration graph.TensorID // of a loop, the number of the iteration; graph.None of the others
	called    bool           // a Graph, which is computed wherever it is called

	loads  map[int]int64    // by input: how often it is loaded
	begins map[int]position // by input: which of its tensors is the first that is loaded here
	each   map[int][]byte   // of a loop, by input: the constant that says how many an iteration loads
	stores map[int][]stored // by output
}

// position is the number of a tensor of a stream: that of a tensor, which may be graph.None for 0, and an offset.
type position struct {
	tensor graph.TensorID
	offset int64
}

// stored is tensors of an output one behind the other: rows has an axis for them before all others.
type stored struct {
	output int
	rows   graph.TensorID
	n      int64
	stage  stage
}

func newFrame(id graph.GraphID, parent *frame) *frame {
	return &frame{id: id, parent: parent, iteration: graph.None, loads: map[int]int64{}, begins: map[int]position{}, each: map[int][]byte{}, stores: map[int][]stored{}}
}

// frame returns the innermost graph that is being made.
func (ir *Ir) frame() *frame {
	if n := len(ir.nest); n > 0 {
		return ir.nest[n-1]
	}
	return ir.main
}

// inside calls build with nodes going to a graph of its own.
func (ir *Ir) inside(f *frame, build func()) {
	outside := ir.b.CurrentGraph()
	ir.b.SetGraph(f.id)
	ir.nest = append(ir.nest, f)
	defer func() {
		ir.nest = ir.nest[:len(ir.nest)-1]
		ir.b.SetGraph(outside)
	}()
	build()
}

// at calls build with nodes going to a graph that has been begun.
func (ir *Ir) at(g graph.GraphID, build func() error) error {
	outside := ir.b.CurrentGraph()
	ir.b.SetGraph(g)
	defer ir.b.SetGraph(outside)
	return build()
}

// constant adds a number, whose bytes may be changed later.
func (ir *Ir) constant(v int64, shape ...int64) (graph.TensorID, []byte) {
	data := binary.LittleEndian.AppendUint64(nil, uint64(v))
	return ir.b.AddConst("constant", graph.TensorType{DType: graph.I64, Shape: shape}, data), data
}

// one appends a node with one result.
func (ir *Ir) one(op graph.Op, name string, operands ...graph.TensorID) (graph.TensorID, error) {
	made, err := ir.node(op, name, operands)
	if err != nil {
		return graph.None, err
	}
	return made[0], nil
}

// begin returns which tensor of an input is the first that f loads.
func (ir *Ir) first(f *frame, input int) (position, error) {
	if f == ir.main {
		return position{graph.None, 0}, nil
	}
	if p, ok := f.begins[input]; ok {
		return p, nil
	}
	name := ir.inputs[input].Name
	if f.called {
		p := position{ir.b.AddLocal(name, graph.TensorType{DType: graph.I64}), 0}
		f.begins[input] = p
		return p, nil
	}
	p, err := ir.first(f.parent, input)
	if err != nil {
		return p, err
	}
	p.offset += f.parent.loads[input]
	if f.iteration != graph.None {
		var count graph.TensorID
		count, f.each[input] = ir.constant(0) // how many these are, the end of the body says
		err = ir.at(f.id, func() error {
			so, err := ir.one(&graph.Binary{Fn: graph.Mul}, name, f.iteration, count)
			if err == nil && p.tensor != graph.None {
				so, err = ir.one(&graph.Binary{Fn: graph.Add}, name, so, p.tensor)
			}
			p.tensor = so
			return err
		})
	}
	f.begins[input] = p
	return p, err
}

// load appends what picks the next tensor of an input from those that a run gets.
func (ir *Ir) load(input int) (graph.TensorID, error) {
	f := ir.frame()
	p, err := ir.first(f, input)
	if err != nil {
		return graph.None, err
	}
	at, err := ir.number(p, f.loads[input])
	if err != nil {
		return graph.None, err
	}
	f.loads[input]++
	return ir.one(&graph.Gather{}, ir.scoped(ir.inputs[input].Name), ir.rows(input), at)
}

// number appends a position and so many more as a tensor.
func (ir *Ir) number(p position, more int64) (graph.TensorID, error) {
	at, _ := ir.constant(p.offset + more)
	if p.tensor == graph.None {
		return at, nil
	}
	return ir.one(&graph.Binary{Fn: graph.Add}, "position", p.tensor, at)
}

// rows returns the tensor with all that a run gets of an input; how many these are, the end says.
func (ir *Ir) rows(input int) graph.TensorID {
	l := &ir.loaded[input]
	if l.rows == graph.None {
		p := ir.inputs[input]
		t := ir.b.Type(p.Tensor)
		l.rows = ir.b.AddPersistent(p.Name+" (loaded)", graph.TensorType{DType: t.DType, Shape: slices.Concat([]int64{1}, t.Shape)})
	}
	return l.rows
}

// store notes that a tensor goes to an output.
func (ir *Ir) store(output int, id graph.TensorID) error {
	shape := slices.Concat([]int64{1}, ir.b.Type(id).Shape)
	row, err := ir.one(&graph.Reshape{Shape: shape}, ir.scoped(ir.outputs[output].Name), id)
	if err != nil {
		return err
	}
	ir.keepRows(stored{output, row, 1, ir.stage})
	return nil
}

func (ir *Ir) keepRows(s stored) {
	f := ir.frame()
	s.stage = ir.stage
	f.stores[s.output] = append(f.stores[s.output], s)
}

// gathered appends to f what puts all that it stores of each output into one tensor, and returns these in the order of the outputs.
func (ir *Ir) gathered(f *frame) ([]stored, error) {
	var all []stored
	for _, o := range slices.Sorted(maps.Keys(f.stores)) {
		err := ir.at(f.id, func() error {
			s, err := ir.joined(f.stores[o])
			all = append(all, s)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// joined appends what puts tensors of one output one behind the other.
func (ir *Ir) joined(parts []stored) (stored, error) {
	s := parts[0]
	rows := make([]graph.TensorID, len(parts))
	s.n = 0
	for i, p := range parts {
		rows[i] = p.rows
		s.n, s.stage = saturated(s.n, p.n, 1), max(s.stage, p.stage)
	}
	var err error
	if len(rows) > 1 {
		s.rows, err = ir.one(&graph.Concat{}, ir.outputs[s.output].Name, rows...)
	}
	return s, err
}

// endLoop adds what a loop has loaded and stored to the graph around it; results are the tensors of the loop that stand for what it stored.
func (ir *Ir) endLoop(body *frame, count int64, all []stored, results []graph.TensorID) error {
	f := ir.frame()
	for input, n := range body.loads {
		if at := body.each[input]; at != nil {
			binary.LittleEndian.PutUint64(at, uint64(n))
		}
		f.loads[input] = saturated(f.loads[input], count, n)
	}
	for i, s := range all {
		n := saturated(0, count, s.n)
		if n == 0 {
			continue
		}
		shape := slices.Concat([]int64{n}, ir.b.Type(s.rows).Shape[1:])
		rows, err := ir.one(&graph.Reshape{Shape: shape}, ir.outputs[s.output].Name, results[i])
		if err != nil {
			return err
		}
		ir.keepRows(stored{output: s.output, rows: rows, n: n})
	}
	return nil
}

// sameStreams refuses branches of which one loads or stores more often than the other: how often a run does would depend on its data.
func (ir *Ir) sameStreams(then, otherwise *frame) error {
	for i, p := range ir.inputs {
		if a, b := then.loads[i], otherwise.loads[i]; a != b {
			return fmt.Errorf("one branch loads input %q %d times and the other %d times: how often a run loads it must not depend on data; load it before the choice", p.Name, a, b)
		}
	}
	for i, p := range ir.outputs {
		if a, b := total(then.stores[i]), total(otherwise.stores[i]); a != b {
			return fmt.Errorf("one branch stores output %q %d times and the other %d times: how often a run stores it must not depend on data; store it behind the choice", p.Name, a, b)
		}
	}
	return nil
}

func total(parts []stored) (n int64) {
	for _, p := range parts {
		n = saturated(n, p.n, 1)
	}
	return n
}

// saturated returns a + b·c, none of which is negative, and for what is larger the largest number.
func saturated(a, b, c int64) int64 {
	if c > 0 && b > (math.MaxInt64-a)/c {
		return math.MaxInt64
	}
	return a + b*c
}

// parameter adds a parameter of the graph that is being made.
func (ir *Ir) parameter(name string, t graph.TensorType) graph.TensorID {
	id := ir.b.AddLocal(ir.scoped(name), t)
	ir.own(id)
	return id
}

// own notes tensors that only the innermost graph that is being made can read.
func (ir *Ir) own(ids ...graph.TensorID) {
	if len(ir.nest) == 0 {
		return
	}
	for _, id := range ids {
		ir.owners[id] = ir.frame()
	}
}

// reachable reports whether a tensor can be read where nodes go now.
func (ir *Ir) reachable(id graph.TensorID) bool {
	f, owned := ir.owners[id]
	return !owned || slices.Contains(ir.nest, f)
}

// errNested is the error of calls that functions of Loop and If, and those that make a Graph, must not make.
var errNested = errors.New("it is called within the function of a loop, a choice or a graph: return the tensor from there, and call it behind")
