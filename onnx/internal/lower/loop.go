package lower

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// iteration is a Loop or a Scan: a body that is run again and again.
type iteration struct {
	c    *Call
	body *subgraph
	head bool  // the body takes the iteration and the condition and gives a condition
	trip int64 // how often at most; -1 if that is not known, or if there is no bound
	// The operands that bound it, nil if they are known or left out.
	count, cond *Value
	init        []*Value  // what is carried, at first
	scanned     []scanned // what the body gets an element of
	collect     []collect // what becomes of the values that it gives besides; nil: as it is
}

// scanned is an operand of which every iteration gets one element of an axis.
type scanned struct {
	x       *Value
	axis    int64
	reverse bool
}

// collect says along which axis the values of all iterations are joined.
type collect struct {
	axis    int64
	reverse bool
}

// loop lowers Loop.
func loop(c *Call) []*Value {
	it := &iteration{c: c, head: true, trip: -1}
	count, cond := c.Opt(0), c.Opt(1)
	if count != nil && (count.Type.DType != graph.I64 || count.Type.Elements() != 1) {
		c.Fail("operand 0 (M) is %v, want one int64", count.Type)
	}
	if cond != nil && (cond.Type.DType != graph.Bool || cond.Type.Elements() != 1) {
		c.Fail("operand 1 (cond) is %v, want one bool", cond.Type)
	}
	if count != nil && count.Known {
		n, _ := count.Ints()
		it.trip = max(n[0], 0)
	} else {
		it.count = count
	}
	if cond != nil && !cond.Known {
		it.cond = cond
	} else if cond != nil && cond.Data[0] == 0 {
		it.trip, it.count = 0, nil
	}
	for i := 2; i < len(c.inputs); i++ {
		it.init = append(it.init, c.In(i))
	}
	it.body = c.Subgraph("body")
	if n := len(it.init); len(it.body.Inputs) != 2+n || len(it.body.Outputs) < 1+n {
		c.Fail("body has %d inputs and %d outputs, want %d (iteration, condition and %d carried values) and at least %d",
			len(it.body.Inputs), len(it.body.Outputs), 2+n, n, 1+n)
	}
	if it.cond != nil && len(it.body.Outputs) > 1+len(it.init) {
		return it.declared()
	}
	return it.lower()
}

// declared lowers a loop that collects values and has a condition that is not
// known. If the model declares how many are collected, that decides.
func (it *iteration) declared() []*Value {
	c, cond := it.c, it.cond
	given := false
	for i := len(it.init); i < len(c.node.Outputs); i++ {
		d := c.l.declared[c.node.Outputs[i]]
		given = given || c.env.depth == 0 && len(d.Dims) > 0 && d.Dims[0].Known && d.Dims[0].Value == it.trip && it.trip > 0
	}
	if !given {
		return it.lower()
	}
	it.cond = nil
	out := it.lower()
	c.l.warn("the condition of loop %q is taken to be true at first for the values that it collects, as the model declares how many there are", c.base())
	for i, v := range it.init {
		if v.Type.Equal(out[i].Type) {
			shape := slices.Repeat([]int64{1}, len(v.Type.Shape))
			out[i] = c.Emit(&graph.Where{}, c.Emit(&graph.Reshape{Shape: shape}, cond), out[i], v)
		}
	}
	return out
}

// lower returns the results: what is carried after the last iteration, then
// what is collected.
func (it *iteration) lower() []*Value {
	c := it.c
	if it.trip == 0 {
		return it.never()
	}
	var out []*Value
	if it.cond == nil && c.l.tried < maxTriedWork && it.short() && c.try(func(a *attempt) (ok bool) {
		out, ok = it.unroll(a)
		return ok
	}) {
		return out
	}
	return it.run()
}

// short reports whether writing out the iterations is worth a try.
func (it *iteration) short() bool {
	return it.trip < 0 && it.count == nil || it.trip >= 0 && it.trip <= maxUnrolledWork/int64(max(1, len(it.body.Nodes)))
}

// step lowers one iteration.
func (it *iteration) step(i *Value, carried, elements []*Value) (cond *Value, next, collected []*Value) {
	c := it.c
	var in []*Value
	if it.head {
		in = append(in, i, Scalar(graph.Bool, 1)) // it would not run otherwise
	}
	out := it.body.Inline(append(append(in, carried...), elements...)...)
	if it.head {
		cond, out = out[0], out[1:]
		if cond.Type.DType != graph.Bool || cond.Type.Elements() != 1 {
			c.Fail("body's output 0, the condition, is %v, want one bool", cond.Type)
		}
	}
	return cond, out[:len(carried)], out[len(carried):]
}

// unroll writes the iterations out, if they come to an end soon.
func (it *iteration) unroll(a *attempt) ([]*Value, bool) {
	c := it.c
	carried := it.init
	work := min(maxUnrolledWork, maxTriedWork-c.l.tried)
	var all [][]*Value // per iteration
	for i := int64(0); it.trip < 0 || i < it.trip; i++ {
		if i > maxUnrolledWork || c.l.count-a.count > work || a.added() > maxUnrolledNodes {
			return nil, false
		}
		n := KnownInts(i)
		n.Type.Shape = nil
		elements := make([]*Value, len(it.scanned))
		for k, s := range it.scanned {
			elements[k] = c.element(s.x, s.axis, it.at(s.reverse, i))
		}
		cond, next, collected := it.step(n, carried, elements)
		if a.failed() {
			return nil, false
		}
		carried, all = next, append(all, collected)
		if cond == nil || cond.Known && cond.Data[0] != 0 {
			if i == 0 && it.trip > 0 && a.added() > maxUnrolledNodes/int(it.trip) {
				return nil, false
			}
			continue
		}
		if cond.Known {
			break
		}
		if i+1 != it.trip {
			return nil, false
		}
	}
	out := slices.Clone(carried)
	for k := range len(it.body.Outputs) - len(carried) - it.heads() {
		parts := make([]*Value, len(all))
		for i, collected := range all {
			v := collected[k]
			if !v.Type.Equal(all[0][k].Type) {
				c.Fail("body's output %d is %v in the first iteration and %v in iteration %d, want the same type", it.heads()+len(carried)+k, all[0][k].Type, v.Type, i)
			}
			axis := c.Axis(it.collected(k).axis, v.Rank()+1)
			parts[it.atOf(it.collected(k).reverse, i, len(all))] = c.Emit(&graph.Reshape{Shape: slices.Insert(slices.Clone(v.Type.Shape), int(axis), 1)}, v)
		}
		if len(parts) == 1 {
			out = append(out, parts[0])
			continue
		}
		out = append(out, c.Emit(&graph.Concat{Axis: c.Axis(it.collected(k).axis, parts[0].Rank())}, parts...))
	}
	return out, true
}

// heads is the number of the body's outputs before what is carried.
func (it *iteration) heads() int {
	if it.head {
		return 1
	}
	return 0
}

// at returns which element iteration i gets.
func (it *iteration) at(reverse bool, i int64) int64 {
	if reverse {
		return it.trip - 1 - i
	}
	return i
}

func (it *iteration) atOf(reverse bool, i, n int) int {
	if reverse {
		return n - 1 - i
	}
	return i
}

func (it *iteration) collected(k int) collect {
	if it.collect == nil {
		return collect{}
	}
	return it.collect[k]
}

// element returns x at one place of an axis, without that axis.
func (c *Call) element(x *Value, axis, at int64) *Value {
	start, size, step := make([]int64, x.Rank()), slices.Clone(x.Type.Shape), slices.Repeat([]int64{1}, len(x.Type.Shape))
	start[axis], size[axis] = at, 1
	y := c.Emit(&graph.Slice{Start: start, Size: size, Step: step}, x)
	return c.Emit(&graph.Reshape{Shape: slices.Delete(slices.Clone(size), int(axis), int(axis)+1)}, y)
}

// never returns the results of a loop that does not run. What it would collect
// is found by lowering one iteration for nothing.
func (it *iteration) never() []*Value {
	c := it.c
	out := slices.Clone(it.init)
	n := len(it.body.Outputs) - len(out) - it.heads()
	if n == 0 {
		return out
	}
	types := make([]graph.TensorType, n)
	ok := false
	c.try(func(*attempt) bool {
		zero := KnownInts(0)
		zero.Type.Shape = nil
		elements := make([]*Value, len(it.scanned))
		for k, s := range it.scanned {
			t := graph.TensorType{DType: s.x.Type.DType, Shape: slices.Delete(slices.Clone(s.x.Type.Shape), int(s.axis), int(s.axis)+1)}
			elements[k] = &Value{Type: t, tensor: c.l.tensor(graph.Tensor{Type: t})}
		}
		_, _, collected := it.step(zero, it.init, elements)
		for k, v := range collected {
			types[k] = v.Type
		}
		ok = true
		return false
	})
	for k, t := range types {
		if d := it.body.Outputs[it.heads()+len(it.init)+k]; !ok {
			t = graph.TensorType{DType: d.Elem.DType()}
			known := d.HasShape && t.DType.Valid()
			for _, dim := range d.Dims {
				known = known && !dim.Free()
				t.Shape = append(t.Shape, dim.Value)
			}
			if !known {
				c.Fail("the loop does not run, and the type of its body's output %q is not known", d.Name)
			}
		}
		axis := c.Axis(it.collected(k).axis, int64(len(t.Shape))+1)
		t.Shape = slices.Insert(slices.Clone(t.Shape), int(axis), 0)
		if err := t.Check(); err != nil {
			c.Fail("%w", err)
		}
		out = append(out, &Value{Type: t, Known: true, Data: []byte{}, tensor: graph.None})
	}
	return out
}

// runWith is run with axes marked as counted; again says that there are more.
func (it *iteration) runWith(m *marks) (out []*Value, again bool) {
	c := it.c
	var bounds []*Value
	for _, v := range []*Value{it.count, it.cond} {
		if v != nil {
			bounds = append(bounds, v)
		}
	}
	param := func(name string, t graph.TensorType, from ...*Value) *Value {
		v := &Value{Type: t, deps: append(from, bounds...), iterated: bounds == nil}
		v.tensor = c.l.tensor(graph.Tensor{Name: c.base() + "/" + name, Type: t})
		return v
	}
	i := param("iteration", graph.TensorType{DType: graph.I64})
	i.elements = []Element{{Low: 0, High: math.MaxInt64, at: i}}
	if it.trip > 0 {
		i.elements[0].High = it.trip - 1
	}
	// What is carried: the values, then their counts, then how many iterations there were and
	// what they gave.
	init, counts := make([]*Value, len(it.init)), []*Value(nil)
	carried := make([]*Value, len(it.init))
	params := []graph.TensorID{i.tensor}
	for k, v := range it.init {
		fitted, own, ok := it.fit(m, k, v, v.Type)
		if !ok {
			return nil, true
		}
		init[k], counts = fitted, append(counts, own...)
		carried[k] = param(it.body.Inputs[2*it.heads()+k].Name, fitted.Type, v)
		params = append(params, carried[k].tensor)
	}
	for _, mk := range m.ordered(len(init)) {
		n := param("count", graph.TensorType{DType: graph.I64}, it.init[mk.k])
		params = append(params, n.tensor)
		carried[mk.k] = c.Counting(carried[mk.k], mk.axis, n.Within(0, mk.bound), false)
	}
	first := slices.Concat(init, counts)
	var buffers []*Value
	if m.buffers != nil {
		done := param("done", graph.TensorType{DType: graph.I64})
		params, first = append(params, done.tensor), append(first, Int(0))
		for k, t := range m.buffers {
			t.Shape = slices.Concat([]int64{m.bounds[k]}, t.Shape)
			b := param("collected", t)
			params, buffers, first = append(params, b.tensor), append(buffers, b), append(first, c.zeros(t))
		}
	}
	var cond *Value
	var next, collected, nextCounts []*Value
	op := &graph.Loop{Count: it.trip}
	c.l.iterations = append(c.l.iterations, i)
	defer func(around []*Value) { c.l.iterations = around }(c.l.iterations[:len(c.l.iterations)-1])
	op.Body = c.outline("body", func() {
		elements := make([]*Value, len(it.scanned))
		for k, s := range it.scanned {
			at := i
			if s.reverse {
				last := Int(it.trip - 1)
				if it.trip < 0 {
					last = c.Binary(graph.Sub, c.scalar(it.count), Int(1))
				}
				at = c.Binary(graph.Sub, last, i)
			}
			elements[k] = c.Emit(&graph.Gather{Axis: s.axis}, s.x.Uncounted(s.axis), at)
		}
		cond, next, collected = it.step(i, carried, elements)
		for k, v := range next {
			fitted, own, ok := it.fit(m, k, v, carried[k].Type)
			again = again || !ok
			next[k], nextCounts = fitted, append(nextCounts, own...)
		}
		for k, b := range buffers {
			collected[k] = it.stored(k, b, i, collected[k], m.bounds[k])
		}
	})
	ends := cond != nil && !(cond.Known && cond.Data[0] != 0)
	if m.buffers == nil && len(collected) > 0 && (it.trip < 0 || it.cond != nil || ends) {
		it.bufferAll(m, collected)
		again = true
	}
	if again {
		return nil, true
	}
	for k, v := range next {
		if !v.Type.Equal(carried[k].Type) {
			if it.count != nil {
				c.Want(it.count, "0 (M)")
			}
			c.Unsupported(hintLoop, "a loop that is not written out and carries a value whose type changes, %q: from %v to %v", it.body.Inputs[2*it.heads()+k].Name, it.init[k].Type, v.Type)
		}
	}
	var results []*Value
	if ends {
		op.While = true
		results = append(results, cond)
	}
	count := it.count
	if op.Count >= graph.MaxTensorBytes && (len(collected) == 0 || m.buffers != nil) { // as good as endless
		op.Count, count = -1, KnownInts(it.trip)
	}
	if op.Count < 0 && count == nil && !op.While {
		c.Fail("nothing ends the loop: it has no trip count, and its condition is always true")
	}
	results = append(append(results, next...), nextCounts...)
	if m.buffers != nil {
		var so *Value
		c.inGraph(op.Body, func() { so = c.Binary(graph.Add, i, Int(1)) })
		results = append(results, so)
	}
	results = append(results, collected...)
	c.l.exe.Graphs[op.Body].Params = params
	c.results(op.Body, results)
	all := c.emitGraphs(op, results, append([]*Value{count, it.cond}, first...)...)
	out, rest := all[:len(next):len(next)], all[len(next):]
	for j, mk := range m.ordered(len(next)) {
		out[mk.k] = c.Counting(out[mk.k], mk.axis, rest[j].Within(0, mk.bound), false)
	}
	rest = rest[len(nextCounts):]
	var done *Value
	if m.buffers != nil {
		done, rest = rest[0], rest[1:]
	}
	for k, v := range rest {
		if done != nil {
			v = c.Counting(v, 0, done.Within(0, m.bounds[k]), false)
		}
		out = append(out, c.arrange(v, it.collected(k)))
	}
	return out, false
}

// arrange brings collected values, which lie along axis 0, to where they
// belong.
func (c *Call) arrange(v *Value, to collect) *Value {
	if to.reverse {
		v = c.reversed(v, 0)
	}
	axis := c.Axis(to.axis, v.Rank())
	if axis == 0 {
		return v
	}
	perm := make([]int64, 0, v.Rank())
	for i := int64(1); i < v.Rank(); i++ {
		perm = append(perm, i)
	}
	return c.Emit(&graph.Transpose{Perm: slices.Insert(perm, int(axis), 0)}, v)
}

// reversed returns x with the order of an axis turned round.
func (c *Call) reversed(x *Value, axis int64) *Value {
	start, step := make([]int64, x.Rank()), slices.Repeat([]int64{1}, len(x.Type.Shape))
	start[axis], step[axis] = max(x.Type.Shape[axis]-1, 0), -1
	return c.Emit(&graph.Slice{Start: start, Size: x.Type.Shape, Step: step}, x)
}

// scan lowers Scan from version 9 on.
func scan(c *Call) []*Value {
	it := &iteration{c: c, body: c.Subgraph("body")}
	all := c.All()
	m := c.Int("num_scan_inputs")
	if m < 1 || m > int64(len(all)) {
		c.Fail("attribute \"num_scan_inputs\" is %d, want 1 to %d, the number of operands", m, len(all))
	}
	n := len(all) - int(m)
	it.init = all[:n]
	k := len(it.body.Outputs) - n
	if len(it.body.Inputs) != len(all) || k < 0 {
		c.Fail("body has %d inputs and %d outputs, want %d and at least %d", len(it.body.Inputs), len(it.body.Outputs), len(all), n)
	}
	inAxes, inReverse := c.scanList("scan_input_axes", int(m)), c.scanList("scan_input_directions", int(m))
	outAxes, outReverse := c.scanList("scan_output_axes", k), c.scanList("scan_output_directions", k)
	for i, x := range all[n:] {
		axis := c.Axis(inAxes[i], x.Rank())
		if i == 0 {
			it.trip = x.Type.Shape[axis]
			if n := x.Count(axis); n != nil {
				it.trip, it.count = -1, n
			}
		}
		if size := x.Count(axis); size != nil || it.count != nil {
			if size == nil {
				size = Int(x.Type.Shape[axis])
			}
			if it.count == nil {
				it.trip, it.count = -1, size
			}
			c.same(it.count, size, axis)
		} else if d := x.Type.Shape[axis]; d != it.trip {
			c.Fail("operand %d is %v, want %d elements on axis %d, as many as the first scanned one has", n+i, x.Type, it.trip, axis)
		}
		it.scanned = append(it.scanned, scanned{x, axis, inReverse[i] != 0})
	}
	for i := range k {
		it.collect = append(it.collect, collect{outAxes[i], outReverse[i] != 0})
	}
	return it.lower()
}

// scanList returns an attribute of Scan that has one number for each of n
// operands or results, or zeros.
func (c *Call) scanList(name string, n int) []int64 {
	list, ok := c.Ints(name)
	if !ok {
		return make([]int64, n)
	}
	if len(list) != n {
		c.Fail("attribute %q has %d numbers, want %d", name, len(list), n)
	}
	return list
}

// scanBatches lowers Scan-8: every entry of the batch, which is axis 0, is
// scanned along axis 1 by itself, as far as its sequence goes.
func scanBatches(c *Call) []*Value {
	c.countedOnly(c.inputs)
	lengths, given := c.KnownInts(0, "sequence_lens")
	for i := 1; i < len(c.inputs); i++ {
		c.In(i)
	}
	body := c.Subgraph("body")
	m := c.Int("num_scan_inputs")
	all := c.inputs[min(1, len(c.inputs)):]
	if m < 1 || m > int64(len(all)) {
		c.Fail("attribute \"num_scan_inputs\" is %d, want 1 to %d", m, len(all))
	}
	n := len(all) - int(m)
	k := len(body.Outputs) - n
	if len(body.Inputs) != len(all) || k < 0 {
		c.Fail("body has %d inputs and %d outputs, want %d and at least %d", len(body.Inputs), len(body.Outputs), len(all), n)
	}
	reverse := c.scanList("directions", int(m))
	batch, steps := int64(-1), int64(-1)
	for i, x := range all {
		if x.Rank() < 1 || i >= n && x.Rank() < 2 {
			c.Fail("operand %d is %v, want a batch of sequences", 1+i, x.Type)
		}
		if batch < 0 {
			batch = x.Type.Shape[0]
		}
		if i >= n && steps < 0 {
			steps = x.Type.Shape[1]
		}
		if x.Type.Shape[0] != batch || i >= n && x.Type.Shape[1] != steps {
			c.Fail("operand %d is %v, want a batch of %d (and %d steps)", 1+i, x.Type, batch, max(steps, 0))
		}
	}
	if batch < 1 || batch > math.MaxInt16 || given && int64(len(lengths)) != batch {
		c.Fail("the batch has %d entries and sequence_lens %d", batch, len(lengths))
	}
	parts := make([][]*Value, n+k)
	for b := range batch {
		it := &iteration{c: c, body: body, trip: steps}
		if given {
			if it.trip = lengths[b]; it.trip < 0 || it.trip > steps {
				c.Fail("sequence_lens[%d] is %d, want 0 to %d", b, it.trip, steps)
			}
		}
		for i, x := range all {
			x = c.element(x, 0, b)
			if i < n {
				it.init = append(it.init, x)
			} else {
				it.scanned = append(it.scanned, scanned{x, 0, reverse[i-n] != 0})
			}
		}
		for i, v := range it.lower() {
			if i >= n && it.trip < steps { // what lies beyond the sequence is zero
				after := make([]int64, v.Rank())
				after[0] = steps - it.trip
				v = c.Emit(&graph.Pad{Before: make([]int64, v.Rank()), After: after, Mode: graph.PadConstant}, v)
			}
			parts[i] = append(parts[i], c.Emit(&graph.Reshape{Shape: slices.Insert(slices.Clone(v.Type.Shape), 0, 1)}, v))
		}
	}
	out := make([]*Value, n+k)
	for i, p := range parts {
		out[i] = c.Emit(&graph.Concat{}, p...)
	}
	return out
}
