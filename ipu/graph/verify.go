package graph

import (
	"errors"
	"fmt"
	"reflect"
)

// ErrInvalid is what every error of [Verify] and [Decode] wraps.
var ErrInvalid = errors.New("invalid portable executable")

const (
	// MaxNesting is how deep Repeat bodies, and graphs used by operators of
	// other graphs, may be nested.
	MaxNesting = 32
	// MaxTotalBytes is the limit of the sum of the bytes of all tensors.
	MaxTotalBytes = 1 << 42
	// maxVerifyWork bounds the tensor references that Verify follows, so that
	// a small hostile file can't keep it busy: programs that share graphs
	// multiply them.
	maxVerifyWork = 1 << 28
)

// Verify checks that e is well formed:
//
//   - tensors, streams and results have usable types, and references are in
//     range;
//   - constants have exactly their type's bytes and are never written;
//   - every node's operands and results are what its operator infers;
//   - a local tensor is written by one node, or is the parameter of one graph,
//     or is written by CopyIn steps only; persistent tensors may be written by
//     nodes and CopyIn steps alike;
//   - along every program, calls followed, a local tensor is written before it
//     is read;
//   - stream handles are unique and not empty, and a step's direction and type
//     are those of its stream;
//   - programs have unique, ascending indices; Repeat counts are at least 1;
//   - no graph uses itself; nesting and memory are bounded.
//
// The error wraps [ErrInvalid] and names the program, step, graph, node or
// tensor at fault.
func Verify(e *Executable) error {
	v := &verifier{e: e}
	for _, check := range []func() error{v.tensors, v.streams, v.graphs, v.writers, v.nesting, v.programs} {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

type verifier struct {
	e       *Executable
	summary []graphSummary
	// mark[t] is the number of the walk (one per graph and program) in which
	// tensor t became defined.
	mark []int32
	walk int32
	work int64
}

// graphSummary is what a graph looks like from outside.
type graphSummary struct {
	state  uint8      // 0 not visited, 1 being visited, 2 done
	depth  int        // of the graphs its operators use; 1 if there are none
	reads  []TensorID // local tensors that it needs to be defined
	writes []TensorID // local tensors that it defines
}

func (v *verifier) tensorName(id TensorID) string {
	return fmt.Sprintf("tensor %d %q", id, v.e.Tensors[id].Name)
}

func (v *verifier) graphName(id GraphID) string {
	return fmt.Sprintf("graph %d %q", id, v.e.Graphs[id].Name)
}

func (v *verifier) checkID(id TensorID) error {
	if id < 0 || int(id) >= len(v.e.Tensors) {
		return fmt.Errorf("tensor %d does not exist, want 0 to %d", id, len(v.e.Tensors)-1)
	}
	return nil
}

func (v *verifier) checkGraph(id GraphID) error {
	if id < 0 || int(id) >= len(v.e.Graphs) {
		return fmt.Errorf("graph %d does not exist, want 0 to %d", id, len(v.e.Graphs)-1)
	}
	return nil
}

// local reports whether a tensor must be written before it is read.
func (v *verifier) local(id TensorID) bool {
	return !v.e.Tensors[id].Const && !v.e.Tensors[id].Persistent
}

// count adds to the work done.
func (v *verifier) count(n int) error {
	if v.work += int64(n); v.work > maxVerifyWork {
		return errors.New("programs and graphs refer to each other too often to be verified")
	}
	return nil
}

func (v *verifier) tensors() error {
	var total int64
	for i := range v.e.Tensors {
		t := &v.e.Tensors[i]
		err := t.Type.Check()
		if err == nil {
			err = checkData(t)
		}
		if err == nil {
			if total += t.Type.Bytes(); total > MaxTotalBytes {
				err = fmt.Errorf("all tensors up to this one need %d bytes, want at most 2^42", total)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", v.tensorName(TensorID(i)), err)
		}
	}
	return nil
}

// checkData checks a constant's data, or that there is none.
func checkData(t *Tensor) error {
	switch {
	case !t.Const && t.Data != nil:
		return errors.New("it has data but is not a constant")
	case !t.Const:
		return nil
	case t.Persistent:
		return errors.New("it is a constant and persistent, want one of them")
	case int64(len(t.Data)) != t.Type.Bytes():
		return fmt.Errorf("its data has %d bytes, want %d for %v", len(t.Data), t.Type.Bytes(), t.Type)
	}
	lo, hi := 0, 0
	switch t.Type.DType {
	case Bool:
		hi = 1
	case I4:
		lo, hi = -8, 7
	case U4:
		hi = 15
	case I2:
		lo, hi = -2, 1
	case U2:
		hi = 3
	default:
		return nil
	}
	for i, b := range t.Data {
		n := int(b)
		if lo < 0 {
			n = int(int8(b))
		}
		if n < lo || n > hi {
			return fmt.Errorf("its element %d is %d, want %d to %d for %v", i, n, lo, hi, t.Type.DType)
		}
	}
	return nil
}

func (v *verifier) streams() error {
	seen := make(map[string]int, len(v.e.Streams))
	for i := range v.e.Streams {
		s := &v.e.Streams[i]
		err := s.Type.Check()
		if other, ok := seen[s.Handle]; ok {
			err = fmt.Errorf("stream %d has the same handle", other)
		}
		seen[s.Handle] = i
		switch {
		case s.Handle == "":
			err = errors.New("its handle is empty")
		case s.Direction > DeviceToHost:
			err = fmt.Errorf("its direction is %d, want 0 (host to device) or 1 (device to host)", s.Direction)
		}
		if err != nil {
			return fmt.Errorf("stream %d %q: %w", i, s.Handle, err)
		}
	}
	return nil
}

// graphs checks every graph and node by itself.
func (v *verifier) graphs() error {
	for i := range v.e.Graphs {
		g := &v.e.Graphs[i]
		for _, ids := range [][]TensorID{g.Params, g.Results} {
			for _, id := range ids {
				if err := v.checkID(id); err != nil {
					return fmt.Errorf("%s: parameters and results: %w", v.graphName(GraphID(i)), err)
				}
			}
		}
		for j := range g.Nodes {
			if err := v.node(&g.Nodes[j]); err != nil {
				return v.nodeError(GraphID(i), j, err)
			}
		}
	}
	return nil
}

func (v *verifier) nodeError(g GraphID, node int, err error) error {
	n := &v.e.Graphs[g].Nodes[node]
	kind := "no operator"
	if checkOp(n.Op) == nil {
		kind = n.Op.Kind()
	}
	return fmt.Errorf("%s, node %d %q (%s): %w", v.graphName(g), node, n.Name, kind, err)
}

// checkOp checks that op is an operator of this package.
func checkOp(op Op) error {
	p := reflect.ValueOf(op)
	if !p.IsValid() || p.Kind() != reflect.Pointer || p.IsNil() {
		return errors.New("it has no operator")
	}
	if known := NewOp(op.Kind()); known == nil || reflect.TypeOf(known) != p.Type() {
		return fmt.Errorf("operator %q (%T) is not one of this package's", op.Kind(), op)
	}
	return nil
}

func (v *verifier) node(n *Node) error {
	if err := checkOp(n.Op); err != nil {
		return err
	}
	in := make([]TensorType, len(n.Inputs))
	for i, id := range n.Inputs {
		if id == None {
			continue
		}
		if err := v.checkID(id); err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
		in[i] = v.e.Tensors[id].Type
	}
	out, err := v.e.Infer(n.Op, in)
	if err != nil {
		return err
	}
	if len(n.Outputs) > len(out) {
		return fmt.Errorf("%d results, want at most %d", len(n.Outputs), len(out))
	}
	for i, id := range n.Outputs {
		if id == None {
			continue
		}
		if err := v.checkID(id); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
		if t := v.e.Tensors[id].Type; !t.Equal(out[i]) {
			return fmt.Errorf("result %d is %s of type %v, want %v", i, v.tensorName(id), t, out[i])
		}
	}
	for _, g := range Subgraphs(n.Op) {
		if err := v.checkGraph(g); err != nil {
			return err
		}
	}
	return nil
}

// Subgraphs returns the graphs that an operator runs: its attributes of type
// GraphID.
func Subgraphs(op Op) []GraphID {
	if !usesGraphs[op.Kind()] {
		return nil
	}
	var ids []GraphID
	s := reflect.ValueOf(op).Elem()
	for i := range s.NumField() {
		if id, ok := s.Field(i).Interface().(GraphID); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// usesGraphs tells which operators have an attribute of type GraphID.
var usesGraphs = func() map[string]bool {
	uses := map[string]bool{}
	for kind, make := range operators {
		s := reflect.TypeOf(make()).Elem()
		for i := range s.NumField() {
			if s.Field(i).Type == reflect.TypeFor[GraphID]() {
				uses[kind] = true
			}
		}
	}
	return uses
}()

// writers checks that every tensor is written by who may write it.
func (v *verifier) writers() error {
	const (
		byNobody = iota
		byNode
		byParam
		byCopy
	)
	words := [...]string{"nobody", "a node", "being a graph's parameter", "a CopyIn step"}
	written := make([]uint8, len(v.e.Tensors))
	write := func(id TensorID, by uint8) error {
		t := &v.e.Tensors[id]
		old := written[id]
		written[id] = by
		switch {
		case t.Const:
			return fmt.Errorf("%s is a constant, but it is written by %s", v.tensorName(id), words[by])
		case t.Persistent && by != byParam, old == byNobody, old == byCopy && by == byCopy:
			return nil
		case t.Persistent:
			return fmt.Errorf("%s is persistent, want a local tensor as a parameter", v.tensorName(id))
		case old == by:
			return fmt.Errorf("%s is written by more than one: each is %s", v.tensorName(id), words[by])
		}
		return fmt.Errorf("%s is written by %s and by %s", v.tensorName(id), words[old], words[by])
	}
	for i := range v.e.Graphs {
		g := &v.e.Graphs[i]
		for _, id := range g.Params {
			if err := write(id, byParam); err != nil {
				return fmt.Errorf("%s: %w", v.graphName(GraphID(i)), err)
			}
		}
		for j := range g.Nodes {
			for k, id := range g.Nodes[j].Outputs {
				if id == None {
					continue
				}
				if err := write(id, byNode); err != nil {
					return v.nodeError(GraphID(i), j, err)
				}
				for _, other := range g.Nodes[j].Outputs[:k] {
					if other == id {
						return v.nodeError(GraphID(i), j, fmt.Errorf("%s is two of its results", v.tensorName(id)))
					}
				}
			}
		}
	}
	for i := range v.e.Programs {
		err := v.steps(v.e.Programs[i].Steps, 0, func(s *Step) error {
			if s.Kind == CopyIn {
				return write(s.Tensor, byCopy)
			}
			return nil
		})
		if err != nil {
			return v.programError(i, err)
		}
	}
	return nil
}

func (v *verifier) programError(i int, err error) error {
	return fmt.Errorf("program %d %q: %w", v.e.Programs[i].Index, v.e.Programs[i].Name, err)
}

// steps checks every step by itself and gives it to visit, bodies included, in
// the order of one run that repeats nothing.
func (v *verifier) steps(steps []Step, depth int, visit func(*Step) error) error {
	if depth > MaxNesting {
		return fmt.Errorf("Repeat steps are nested deeper than %d", MaxNesting)
	}
	for i := range steps {
		s := &steps[i]
		err := v.step(s)
		if err == nil {
			err = visit(s)
		}
		if err == nil && s.Kind == Repeat {
			err = v.steps(s.Body, depth+1, visit)
		}
		if err != nil {
			return fmt.Errorf("step %d (%v): %w", i, s.Kind, err)
		}
	}
	return nil
}

func (v *verifier) step(s *Step) error {
	switch s.Kind {
	case CopyIn, CopyOut:
		if s.Stream < 0 || int(s.Stream) >= len(v.e.Streams) {
			return fmt.Errorf("stream %d does not exist, want 0 to %d", s.Stream, len(v.e.Streams)-1)
		}
		if err := v.checkID(s.Tensor); err != nil {
			return err
		}
		stream := &v.e.Streams[s.Stream]
		if (s.Kind == CopyIn) != (stream.Direction == HostToDevice) {
			return fmt.Errorf("stream %q goes the other way: %v", stream.Handle, stream.Direction)
		}
		if t := v.e.Tensors[s.Tensor].Type; !t.Equal(stream.Type) {
			return fmt.Errorf("%s is %v, want %v like stream %q", v.tensorName(s.Tensor), t, stream.Type, stream.Handle)
		}
	case Call:
		if err := v.checkGraph(s.Graph); err != nil {
			return err
		}
		if g := &v.e.Graphs[s.Graph]; len(g.Params)+len(g.Results) > 0 {
			return fmt.Errorf("%s has %d parameters and %d results, want none in a graph that a program calls",
				v.graphName(s.Graph), len(g.Params), len(g.Results))
		}
	case Repeat:
		if s.Count < 1 {
			return fmt.Errorf("it repeats %d times, want at least 1", s.Count)
		}
	default:
		return errors.New("there is no such kind of step")
	}
	return nil
}
