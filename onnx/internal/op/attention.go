package op

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
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
func attention(c *call) []*lower.Value {
	q, k, v := c.In(0), c.In(1), c.In(2)
	mask, pastK, pastV, lengths := c.Opt(3), c.Opt(4), c.Opt(5), c.Opt(6) // the last from version 24 on
	op := &graph.Attention{
		Heads: c.headCount("q_num_heads", q), KVHeads: c.headCount("kv_num_heads", k),
		Causal: c.Bool("is_causal"), Softcap: c.Float("softcap"),
	}
	if (pastK == nil) != (pastV == nil) {
		c.Fail("operands 4 (past_key) and 5 (past_value) must be given together")
	}
	valueType := v.Type.DType
	if pastK != nil || c.Wants(1) || c.Wants(2) {
		k, v = c.byHeads(k, op.KVHeads), c.byHeads(v, op.KVHeads)
	}
	if pastK != nil {
		if pastK.Rank() != 4 {
			c.Fail("operand 4 (past_key) is %v, want 4 dimensions", pastK.Type)
		}
		op.Past = pastK.Type.Shape[2]
		k, v = c.Emit(&graph.Concat{Axis: 2}, pastK, k), c.Emit(&graph.Concat{Axis: 2}, pastV, v)
	}
	presentK, presentV := k, v
	if valueType != q.Type.DType {
		v = c.cast(v, q.Type.DType)
	}
	op.Scale = c.attentionScale(q, op.Heads)
	if mask != nil {
		mask = c.attentionMask(mask, q.Type.DType, sequenceOf(k))
	}
	if lengths != nil {
		lengths = c.cast(lengths, graph.I64)
	}
	switch mode := c.Int("qk_matmul_output_mode"); mode {
	case 0:
		op.Scores = graph.ScoresRaw
	case 1:
		op.Scores = graph.ScoresCapped
	case 2:
		op.Scores = graph.ScoresBiased
	case 3:
		op.Scores = graph.ScoresProbabilities
	default:
		c.Fail("attribute \"qk_matmul_output_mode\" is %d, want 0 to 3", mode)
	}
	out := c.EmitN(op, []bool{c.Wants(0), c.Wants(3)}, q, k, v, mask, lengths)
	return []*lower.Value{out[0], presentK, presentV, out[1]}
}

// headCount returns the number of heads of an operand: an attribute, or one
// of its 4 dimensions.
func (c *call) headCount(name string, x *lower.Value) int64 {
	n := c.Int(name)
	switch {
	case x.Rank() == 4:
		return x.Type.Shape[1]
	case x.Rank() != 3:
		c.Fail("an operand of attention is %v, want 3 or 4 dimensions", x.Type)
	case n < 1 || x.Type.Shape[2]%n != 0:
		c.Fail("attribute %q is %d, want a divisor of the last dimension of %v", name, n, x.Type)
	}
	return n
}

// sequenceOf returns the length of the sequences of an operand of attention.
func sequenceOf(x *lower.Value) int64 { return x.Type.Shape[x.Rank()-2] }

// byHeads gives an operand of attention 4 dimensions: batch, heads, sequence
// and size.
func (c *call) byHeads(x *lower.Value, heads int64) *lower.Value {
	if x.Rank() != 3 {
		return x
	}
	s := x.Type.Shape
	if s[2]%heads != 0 {
		c.Fail("%v has a last dimension that is not divisible by the %d heads", x.Type, heads)
	}
	y := c.Emit(&graph.Reshape{Shape: []int64{s[0], s[1], heads, s[2] / heads}}, x)
	return c.Emit(&graph.Transpose{Perm: []int64{0, 2, 1, 3}}, y)
}

// attentionScale returns what the products of Q and K are multiplied with.
func (c *call) attentionScale(q *lower.Value, heads int64) float64 {
	size := q.Type.Shape[q.Rank()-1]
	if q.Rank() == 3 {
		size /= heads
	}
	if a := c.Attr("scale"); a != nil {
		return float64(a.Float)
	}
	return 1 / math.Sqrt(float64(size))
}

// attentionMask makes a mask of bools or of scores of type t. Where it is too
// short for the keys, from version 24 on, there is nothing to look at.
func (c *call) attentionMask(mask *lower.Value, t graph.DType, keys int64) *lower.Value {
	beyond := lower.Scalar(graph.Bool, 0)
	if mask.Type.DType != graph.Bool {
		mask, beyond = c.cast(mask, t), lower.Scalar(t, math.Inf(-1))
	}
	if mask.Rank() == 0 {
		return mask
	}
	n := mask.Type.Shape[mask.Rank()-1]
	if n >= keys || n == 1 && c.Opset() < 24 {
		return mask
	}
	op := &graph.Pad{Before: make([]int64, mask.Rank()), After: make([]int64, mask.Rank()), Mode: graph.PadConstant}
	op.After[mask.Rank()-1] = keys - n
	return c.Emit(op, mask, beyond)
}

// flexAttention lowers FlexAttention, which has subgraphs that change the
// scores and the probabilities.
func flexAttention(c *call) []*lower.Value {
	q, k, v := c.In(0), c.In(1), c.In(2)
	for i, x := range []*lower.Value{q, k, v} {
		if x.Rank() != 4 {
			c.Fail("operand %d is %v, want 4 dimensions", i, x.Type)
		}
	}
	heads, kv := q.Type.Shape[1], k.Type.Shape[1]
	if kv < 1 || heads%kv != 0 || v.Type.Shape[1] != kv {
		c.Fail("operands are %v, %v and %v, want a number of heads in Q that is a multiple of that in K and V", q.Type, k.Type, v.Type)
	}
	scale := c.attentionScale(q, heads)
	t := q.Type.DType
	precision := graph.F32
	if t == graph.F64 {
		precision = graph.F64
	}
	if p := onnx.ElemType(c.Int("softmax_precision")); p != onnx.Undefined {
		if precision = p.DType(); !precision.IsFloat() || precision.Size() < 2 {
			c.Fail("attribute \"softmax_precision\" is %v, want a type of floats", p)
		}
	}
	scoreMod, probMod := c.Attr("score_mod"), c.Attr("prob_mod")
	if scoreMod == nil && probMod == nil {
		op := &graph.Attention{Heads: heads, KVHeads: kv, Scale: scale, Scores: graph.ScoresRaw}
		return lower.One(c.Emit(op, q, k, v))
	}
	// Heads that share one of K and V are taken for one with longer sequences.
	rows, columns, size, width := q.Type.Shape[2], k.Type.Shape[2], q.Type.Shape[3], v.Type.Shape[3]
	batch := q.Type.Shape[0]
	compute := precision // no narrower than the operands
	if compute.Size() < 4 {
		compute = graph.F32
	}
	if t == graph.F64 {
		compute = t
	}
	joined := func(last int64) []int64 { return []int64{batch, kv, heads / kv * rows, last} }
	scores := c.Emit(&graph.MatMul{}, c.Emit(&graph.Reshape{Shape: joined(size)}, c.cast(q, compute)),
		c.Emit(&graph.Transpose{Perm: []int64{0, 1, 3, 2}}, c.cast(k, compute)))
	scores = c.Emit(&graph.Binary{Fn: graph.Mul}, scores, lower.Scalar(compute, scale))
	scores = c.cast(c.Emit(&graph.Reshape{Shape: []int64{batch, heads, rows, columns}}, scores), precision)
	mod := func(name string, a *onnx.Attribute, x *lower.Value) *lower.Value {
		if a == nil {
			return x
		}
		y := c.Subgraph(name).Inline(x)
		if len(y) != 1 || !y[0].Type.Equal(x.Type) {
			c.Fail("%s does not give one result of its input's type, %v", name, x.Type)
		}
		return y[0]
	}
	scores = mod("score_mod", scoreMod, scores)
	probabilities := mod("prob_mod", probMod, c.Emit(&graph.Softmax{Axis: 3}, scores))
	y := c.Emit(&graph.MatMul{}, c.Emit(&graph.Reshape{Shape: joined(columns)}, c.cast(probabilities, compute)), c.cast(v, compute))
	return lower.One(c.cast(c.Emit(&graph.Reshape{Shape: []int64{batch, heads, rows, width}}, y), t))
}

func linearAttention(c *call) []*lower.Value {
	q, k := c.In(0), c.In(1)
	op := &graph.LinearAttention{Heads: c.Int("q_num_heads"), KVHeads: c.Int("kv_num_heads"), Scale: c.Float("scale")}
	switch rule := c.Str("update_rule"); rule {
	case "linear":
	case "gated":
		op.Gated = true
	case "delta":
		op.Delta = true
	case "gated_delta":
		op.Gated, op.Delta = true, true
	default:
		c.Fail("attribute \"update_rule\" is %q, want linear, gated, delta or gated_delta", rule)
	}
	if op.KVHeads < 1 || k.Rank() != 3 {
		c.Fail("operand 1 (key) is %v with %d heads, want 3 dimensions and at least one head", k.Type, op.KVHeads)
	}
	if op.Scale == 0 {
		op.Scale = 1 / math.Sqrt(float64(k.Type.Shape[2]/op.KVHeads))
	}
	in := []*lower.Value{q, k, c.In(2), c.Opt(3), c.Opt(4), c.Opt(5), c.Opt(6)}
	for _, i := range []int{4, 5, 6} {
		if in[i] != nil {
			in[i] = c.cast(in[i], q.Type.DType)
		}
	}
	return c.EmitN(op, []bool{c.Wants(0), c.Wants(1)}, in...)
}

// rotaryEmbedding rotates pairs of elements of every head by angles that
// depend on the position in the sequence.
func rotaryEmbedding(c *call) []*lower.Value {
	input, cos, sin, positions := c.In(0), c.In(1), c.In(2), c.Opt(3)
	x := input
	axis := int64(1) // of the heads
	if x.Rank() == 3 {
		n := c.headCount("num_heads", x)
		s := x.Type.Shape
		x = c.Emit(&graph.Reshape{Shape: []int64{s[0], s[1], n, s[2] / n}}, x)
		axis = 2
	} else {
		c.headCount("num_heads", x)
	}
	size := x.Type.Shape[3]
	rotated := c.Int("rotary_embedding_dim")
	if rotated == 0 {
		rotated = size
	}
	if rotated < 0 || rotated%2 != 0 || rotated > size {
		c.Fail("attribute \"rotary_embedding_dim\" is %d, want an even number up to the heads' size, %d", rotated, size)
	}
	angle := func(cache *lower.Value) *lower.Value {
		if positions != nil {
			cache = c.Emit(&graph.Gather{}, cache, positions)
		}
		if cache.Rank() != 3 || cache.Type.Shape[2] != rotated/2 {
			c.Fail("the caches give %v, want [batch,sequence,%d]", cache.Type, rotated/2)
		}
		return c.Emit(&graph.Reshape{Shape: slices.Insert(slices.Clone(cache.Type.Shape), int(axis), 1)}, cache)
	}
	cos, sin = angle(cos), angle(sin)
	part := func(start, n, step int64) *lower.Value {
		op := whole(x)
		op.Start[3], op.Size[3], op.Step[3] = start, n, step
		return c.Emit(op, x)
	}
	interleaved := c.Bool("interleaved")
	var a, b *lower.Value
	if interleaved {
		a, b = part(0, rotated/2, 2), part(min(1, size), rotated/2, 2)
	} else {
		a, b = part(0, rotated/2, 1), part(rotated/2, rotated/2, 1)
	}
	binary := func(fn graph.BinaryFn, a, b *lower.Value) *lower.Value { return c.Emit(&graph.Binary{Fn: fn}, a, b) }
	mul := func(a, b *lower.Value) *lower.Value { return binary(graph.Mul, a, b) }
	parts := []*lower.Value{binary(graph.Sub, mul(a, cos), mul(b, sin)), binary(graph.Add, mul(a, sin), mul(b, cos))}
	if interleaved {
		column := append(slices.Clone(parts[0].Type.Shape), 1)
		for i, p := range parts {
			parts[i] = c.Emit(&graph.Reshape{Shape: column}, p)
		}
		y := c.Emit(&graph.Concat{Axis: 4}, parts...)
		shape := slices.Clone(x.Type.Shape)
		shape[3] = rotated
		parts = []*lower.Value{c.Emit(&graph.Reshape{Shape: shape}, y)}
	}
	if rotated < size {
		parts = append(parts, part(rotated, size-rotated, 1))
	}
	y := c.Emit(&graph.Concat{Axis: 3}, parts...)
	return lower.One(c.Emit(&graph.Reshape{Shape: input.Type.Shape}, y))
}
