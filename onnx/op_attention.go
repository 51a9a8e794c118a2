package onnx

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// attentionOps are attention and what goes with it.
var attentionOps = map[string]definition{
	"Attention":                     takes("Q:T=floats K:T V:V=floats attn_mask:numbers|bool past_key:T past_value:V nonpad_kv_seqlen:int64").since(23, attention, "is_causal=0 kv_num_heads=0 q_num_heads=0 qk_matmul_output_mode=0 scale:float softcap=0.0 softmax_precision=0"),
	"LinearAttention":               takes("query:T=floats key:T value:T past_state:S=floats decay:T beta:T erase:T").since(27, linearAttention, "chunk_size:int kv_num_heads:int! q_num_heads:int! scale=0.0 update_rule=gated_delta"),
	"RotaryEmbedding":               takes("X:T=floats cos_cache:T sin_cache:T position_ids:int64").since(23, rotaryEmbedding, "interleaved=0 num_heads=0 rotary_embedding_dim=0"),
	"ai.onnx.preview.FlexAttention": takes("Q:T=floats K:T V:T").since(1, flexAttention, "prob_mod:graph scale:float score_mod:graph softmax_precision=0"),
}

// attention lowers Attention. Its operands have 4 dimensions, or 3 with all
// heads in the last.
func attention(c *call) []*value {
	q, k, v := c.in(0), c.in(1), c.in(2)
	mask, pastK, pastV, lengths := c.opt(3), c.opt(4), c.opt(5), c.opt(6) // the last from version 24 on
	op := &graph.Attention{
		Heads: c.headCount("q_num_heads", q), KVHeads: c.headCount("kv_num_heads", k),
		Causal: c.bool("is_causal"), Softcap: c.float("softcap"),
	}
	if (pastK == nil) != (pastV == nil) {
		c.fail("operands 4 (past_key) and 5 (past_value) must be given together")
	}
	valueType := v.typ.DType
	if pastK != nil || c.wants(1) || c.wants(2) {
		k, v = c.byHeads(k, op.KVHeads), c.byHeads(v, op.KVHeads)
	}
	if pastK != nil {
		if pastK.rank() != 4 {
			c.fail("operand 4 (past_key) is %v, want 4 dimensions", pastK.typ)
		}
		op.Past = pastK.typ.Shape[2]
		k, v = c.emit(&graph.Concat{Axis: 2}, pastK, k), c.emit(&graph.Concat{Axis: 2}, pastV, v)
	}
	presentK, presentV := k, v
	if valueType != q.typ.DType {
		v = c.cast(v, q.typ.DType)
	}
	op.Scale = c.attentionScale(q, op.Heads)
	if mask != nil {
		mask = c.attentionMask(mask, q.typ.DType, sequenceOf(k))
	}
	if lengths != nil {
		lengths = c.cast(lengths, graph.I64)
	}
	switch mode := c.int("qk_matmul_output_mode"); mode {
	case 0:
		op.Scores = graph.ScoresRaw
	case 1:
		op.Scores = graph.ScoresCapped
	case 2:
		op.Scores = graph.ScoresBiased
	case 3:
		op.Scores = graph.ScoresProbabilities
	default:
		c.fail("attribute \"qk_matmul_output_mode\" is %d, want 0 to 3", mode)
	}
	out := c.emitN(op, []bool{c.wants(0), c.wants(3)}, q, k, v, mask, lengths)
	return []*value{out[0], presentK, presentV, out[1]}
}

// headCount returns the number of heads of an operand: an attribute, or one
// of its 4 dimensions.
func (c *call) headCount(name string, x *value) int64 {
	n := c.int(name)
	switch {
	case x.rank() == 4:
		return x.typ.Shape[1]
	case x.rank() != 3:
		c.fail("an operand of attention is %v, want 3 or 4 dimensions", x.typ)
	case n < 1 || x.typ.Shape[2]%n != 0:
		c.fail("attribute %q is %d, want a divisor of the last dimension of %v", name, n, x.typ)
	}
	return n
}

// sequenceOf returns the length of the sequences of an operand of attention.
func sequenceOf(x *value) int64 { return x.typ.Shape[x.rank()-2] }

// byHeads gives an operand of attention 4 dimensions: batch, heads, sequence
// and size.
func (c *call) byHeads(x *value, heads int64) *value {
	if x.rank() != 3 {
		return x
	}
	s := x.typ.Shape
	if s[2]%heads != 0 {
		c.fail("%v has a last dimension that is not divisible by the %d heads", x.typ, heads)
	}
	y := c.emit(&graph.Reshape{Shape: []int64{s[0], s[1], heads, s[2] / heads}}, x)
	return c.emit(&graph.Transpose{Perm: []int64{0, 2, 1, 3}}, y)
}

// attentionScale returns what the products of Q and K are multiplied with.
func (c *call) attentionScale(q *value, heads int64) float64 {
	size := q.typ.Shape[q.rank()-1]
	if q.rank() == 3 {
		size /= heads
	}
	if a := c.attr("scale"); a != nil {
		return float64(a.Float)
	}
	return 1 / math.Sqrt(float64(size))
}

// attentionMask makes a mask of bools or of scores of type t. Where it is too
// short for the keys, from version 24 on, there is nothing to look at.
func (c *call) attentionMask(mask *value, t graph.DType, keys int64) *value {
	beyond := scalar(graph.Bool, 0)
	if mask.typ.DType != graph.Bool {
		mask, beyond = c.cast(mask, t), scalar(t, math.Inf(-1))
	}
	if mask.rank() == 0 {
		return mask
	}
	n := mask.typ.Shape[mask.rank()-1]
	if n >= keys || n == 1 && c.opset() < 24 {
		return mask
	}
	op := &graph.Pad{Before: make([]int64, mask.rank()), After: make([]int64, mask.rank()), Mode: graph.PadConstant}
	op.After[mask.rank()-1] = keys - n
	return c.emit(op, mask, beyond)
}

// flexAttention lowers FlexAttention, which has subgraphs that change the
// scores and the probabilities.
func flexAttention(c *call) []*value {
	q, k, v := c.in(0), c.in(1), c.in(2)
	for i, x := range []*value{q, k, v} {
		if x.rank() != 4 {
			c.fail("operand %d is %v, want 4 dimensions", i, x.typ)
		}
	}
	heads, kv := q.typ.Shape[1], k.typ.Shape[1]
	if kv < 1 || heads%kv != 0 || v.typ.Shape[1] != kv {
		c.fail("operands are %v, %v and %v, want a number of heads in Q that is a multiple of that in K and V", q.typ, k.typ, v.typ)
	}
	scale := c.attentionScale(q, heads)
	t := q.typ.DType
	precision := graph.F32
	if t == graph.F64 {
		precision = graph.F64
	}
	if p := ElemType(c.int("softmax_precision")); p != Undefined {
		if precision = p.DType(); !precision.IsFloat() || precision.Size() < 2 {
			c.fail("attribute \"softmax_precision\" is %v, want a type of floats", p)
		}
	}
	scoreMod, probMod := c.attr("score_mod"), c.attr("prob_mod")
	if scoreMod == nil && probMod == nil {
		op := &graph.Attention{Heads: heads, KVHeads: kv, Scale: scale, Scores: graph.ScoresRaw}
		return one(c.emit(op, q, k, v))
	}
	// Heads that share one of K and V are taken for one with longer sequences.
	rows, columns, size, width := q.typ.Shape[2], k.typ.Shape[2], q.typ.Shape[3], v.typ.Shape[3]
	batch := q.typ.Shape[0]
	compute := precision // no narrower than the operands
	if compute.Size() < 4 {
		compute = graph.F32
	}
	if t == graph.F64 {
		compute = t
	}
	joined := func(last int64) []int64 { return []int64{batch, kv, heads / kv * rows, last} }
	scores := c.emit(&graph.MatMul{}, c.emit(&graph.Reshape{Shape: joined(size)}, c.cast(q, compute)),
		c.emit(&graph.Transpose{Perm: []int64{0, 1, 3, 2}}, c.cast(k, compute)))
	scores = c.emit(&graph.Binary{Fn: graph.Mul}, scores, scalar(compute, scale))
	scores = c.cast(c.emit(&graph.Reshape{Shape: []int64{batch, heads, rows, columns}}, scores), precision)
	mod := func(name string, a *Attribute, x *value) *value {
		if a == nil {
			return x
		}
		y := c.subgraph(name).inline(x)
		if len(y) != 1 || !y[0].typ.Equal(x.typ) {
			c.fail("%s does not give one result of its input's type, %v", name, x.typ)
		}
		return y[0]
	}
	scores = mod("score_mod", scoreMod, scores)
	probabilities := mod("prob_mod", probMod, c.emit(&graph.Softmax{Axis: 3}, scores))
	y := c.emit(&graph.MatMul{}, c.emit(&graph.Reshape{Shape: joined(columns)}, c.cast(probabilities, compute)), c.cast(v, compute))
	return one(c.cast(c.emit(&graph.Reshape{Shape: []int64{batch, heads, rows, width}}, y), t))
}

func linearAttention(c *call) []*value {
	q, k := c.in(0), c.in(1)
	op := &graph.LinearAttention{Heads: c.int("q_num_heads"), KVHeads: c.int("kv_num_heads"), Scale: c.float("scale")}
	switch rule := c.str("update_rule"); rule {
	case "linear":
	case "gated":
		op.Gated = true
	case "delta":
		op.Delta = true
	case "gated_delta":
		op.Gated, op.Delta = true, true
	default:
		c.fail("attribute \"update_rule\" is %q, want linear, gated, delta or gated_delta", rule)
	}
	if op.KVHeads < 1 || k.rank() != 3 {
		c.fail("operand 1 (key) is %v with %d heads, want 3 dimensions and at least one head", k.typ, op.KVHeads)
	}
	if op.Scale == 0 {
		op.Scale = 1 / math.Sqrt(float64(k.typ.Shape[2]/op.KVHeads))
	}
	in := []*value{q, k, c.in(2), c.opt(3), c.opt(4), c.opt(5), c.opt(6)}
	for _, i := range []int{4, 5, 6} {
		if in[i] != nil {
			in[i] = c.cast(in[i], q.typ.DType)
		}
	}
	return c.emitN(op, []bool{c.wants(0), c.wants(1)}, in...)
}

// rotaryEmbedding rotates pairs of elements of every head by angles that
// depend on the position in the sequence.
func rotaryEmbedding(c *call) []*value {
	input, cos, sin, positions := c.in(0), c.in(1), c.in(2), c.opt(3)
	x := input
	axis := int64(1) // of the heads
	if x.rank() == 3 {
		n := c.headCount("num_heads", x)
		s := x.typ.Shape
		x = c.emit(&graph.Reshape{Shape: []int64{s[0], s[1], n, s[2] / n}}, x)
		axis = 2
	} else {
		c.headCount("num_heads", x)
	}
	size := x.typ.Shape[3]
	rotated := c.int("rotary_embedding_dim")
	if rotated == 0 {
		rotated = size
	}
	if rotated < 0 || rotated%2 != 0 || rotated > size {
		c.fail("attribute \"rotary_embedding_dim\" is %d, want an even number up to the heads' size, %d", rotated, size)
	}
	angle := func(cache *value) *value {
		if positions != nil {
			cache = c.emit(&graph.Gather{}, cache, positions)
		}
		if cache.rank() != 3 || cache.typ.Shape[2] != rotated/2 {
			c.fail("the caches give %v, want [batch,sequence,%d]", cache.typ, rotated/2)
		}
		return c.emit(&graph.Reshape{Shape: slices.Insert(slices.Clone(cache.typ.Shape), int(axis), 1)}, cache)
	}
	cos, sin = angle(cos), angle(sin)
	part := func(start, n, step int64) *value {
		op := whole(x)
		op.Start[3], op.Size[3], op.Step[3] = start, n, step
		return c.emit(op, x)
	}
	interleaved := c.bool("interleaved")
	var a, b *value
	if interleaved {
		a, b = part(0, rotated/2, 2), part(min(1, size), rotated/2, 2)
	} else {
		a, b = part(0, rotated/2, 1), part(rotated/2, rotated/2, 1)
	}
	binary := func(fn graph.BinaryFn, a, b *value) *value { return c.emit(&graph.Binary{Fn: fn}, a, b) }
	mul := func(a, b *value) *value { return binary(graph.Mul, a, b) }
	parts := []*value{binary(graph.Sub, mul(a, cos), mul(b, sin)), binary(graph.Add, mul(a, sin), mul(b, cos))}
	if interleaved {
		column := append(slices.Clone(parts[0].typ.Shape), 1)
		for i, p := range parts {
			parts[i] = c.emit(&graph.Reshape{Shape: column}, p)
		}
		y := c.emit(&graph.Concat{Axis: 4}, parts...)
		shape := slices.Clone(x.typ.Shape)
		shape[3] = rotated
		parts = []*value{c.emit(&graph.Reshape{Shape: shape}, y)}
	}
	if rotated < size {
		parts = append(parts, part(rotated, size-rotated, 1))
	}
	y := c.emit(&graph.Concat{Axis: 3}, parts...)
	return one(c.emit(&graph.Reshape{Shape: input.typ.Shape}, y))
}
