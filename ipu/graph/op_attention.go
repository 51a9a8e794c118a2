package graph

import (
	"fmt"
	"math"
	"slices"
)

// ScoresMode says what [Attention] gives as its second result.
type ScoresMode string

// The modes: the scores after one of the steps that lead to the probabilities.
const (
	ScoresRaw           ScoresMode = "raw"           // the scaled products
	ScoresCapped        ScoresMode = "capped"        // after Softcap
	ScoresBiased        ScoresMode = "biased"        // after the bias and all masks
	ScoresProbabilities ScoresMode = "probabilities" // after the softmax
)

// Attention computes softmax(Scale·Q·Kᵀ + bias)·V for every head.
//
// Operands: Q, K, V, each [batch, heads, sequence, size] or [batch, sequence,
// heads·size], with Heads heads in Q and KVHeads, a divisor of it, in K and V;
// bias or left out, which broadcasts to [batch, heads, sequence of Q, sequence
// of K] and is added or, if it is Bool, tells where to look; lengths (I64
// [batch]) or left out, how many elements of K's sequences there are.
//
// If Softcap is not 0 the products become Softcap·tanh(product/Softcap) before
// the bias is added. If Causal is set, element i of Q's sequence looks at
// elements up to i+Past of K's, or with lengths up to i+length-sequence of Q.
// Where bias and masks leave nothing to look at, the probabilities are 0.
//
// Results: Y in Q's layout, and on demand the scores as Scores says, [batch,
// heads, sequence of Q, sequence of K]. Computed in F32 (F64 for F64
// operands).
type Attention struct {
	Heads, KVHeads int64
	Scale, Softcap float64
	Causal         bool
	Past           int64
	Scores         ScoresMode
}

// LinearAttention is attention whose scores are not normalised, so that all
// keys and values seen are kept in one matrix for each head, the state S. For
// every step t of the sequence, in order:
//
//	S = exp(decay)·S                           with Gated
//	v = beta·(v - Sᵀ·(erase∘k))                with Delta
//	S = S + k·vᵀ
//	y = Scale·Sᵀ·q
//
// Operands: query [batch, sequence, Heads·size], key [batch, sequence,
// KVHeads·size], value [batch, sequence, KVHeads·width], past state [batch,
// KVHeads, size, width] or left out, decay [batch, sequence, KVHeads] or
// [batch, sequence, KVHeads·size], beta [batch, sequence, KVHeads] or [batch,
// sequence, 1], erase [batch, sequence, KVHeads·size] or left out. Heads is a
// multiple of KVHeads. The past state may have another type than the rest.
// Results: y [batch, sequence, Heads·width] and the state after the last step.
// Computed in F32 (F64 for F64 operands).
type LinearAttention struct {
	Heads, KVHeads int64
	Scale          float64
	Gated, Delta   bool
}

// Kind returns "Attention".
func (*Attention) Kind() string { return "Attention" }

// Infer implements [Op].
func (o *Attention) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "Q", "K", "V", "bias?", "lengths?")
	if err != nil {
		return nil, err
	}
	q, k, v, bias, lengths := in[0], in[1], in[2], in[3], in[4]
	err = firstError(floats.want("Q", q), sameType("K", k, q), sameType("V", v, q), o.check())
	if err != nil {
		return nil, err
	}
	qs, err := headShape("Q", q, o.Heads)
	if err != nil {
		return nil, err
	}
	ks, err := headShape("K", k, o.KVHeads)
	if err != nil {
		return nil, err
	}
	vs, err := headShape("V", v, o.KVHeads)
	if err != nil {
		return nil, err
	}
	if qs[0] != ks[0] || qs[0] != vs[0] || ks[2] != vs[2] || qs[3] != ks[3] {
		return nil, fmt.Errorf("operands Q, K and V are %v, %v and %v with %d and %d heads, want one batch size, as many elements in the sequences of K and V, and heads of one size in Q and K",
			q, k, v, o.Heads, o.KVHeads)
	}
	scores := []int64{qs[0], o.Heads, qs[2], ks[2]}
	if present(bias) {
		if bias.DType != Bool && bias.DType != q.DType {
			return nil, fmt.Errorf("bias is %v, want elements of type bool or %v like Q's", bias, q.DType)
		}
		if !BroadcastsTo(bias.Shape, scores) {
			return nil, fmt.Errorf("bias is %v, want a shape that broadcasts to %s", bias, ShapeString(scores))
		}
	}
	if present(lengths) && lengths.DType != I64 {
		return nil, fmt.Errorf("lengths is %v, want elements of type i64", lengths)
	}
	if err := wantShape("lengths", lengths, qs[0]); err != nil {
		return nil, err
	}
	y := []int64{qs[0], o.Heads, qs[2], vs[3]}
	if q.Rank() == 3 {
		y = []int64{qs[0], qs[2], satMul(o.Heads, vs[3])}
	}
	return results(TensorType{q.DType, y}, TensorType{q.DType, scores})
}

// AttentionGradient is the gradient of the first result of [Attention], whose attributes it has; Scores says nothing. Operands: those of
// Attention, bias and lengths on demand, and the gradient of its result. Results: the gradients of Q, K and V.
type AttentionGradient Attention

// Kind returns "AttentionGradient".
func (*AttentionGradient) Kind() string { return "AttentionGradient" }

// Infer implements [Op].
func (o *AttentionGradient) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "Q", "K", "V", "bias?", "lengths?", "dY")
	if err != nil {
		return nil, err
	}
	forward := Attention(*o)
	out, err := forward.Infer(in[:5])
	if err != nil {
		return nil, err
	}
	if err := firstError(sameType("dY", in[5], in[0]), wantShape("dY", in[5], out[0].Shape...)); err != nil {
		return nil, err
	}
	return results(in[:3]...)
}

// check checks the attributes.
func (o *Attention) check() error {
	if err := checkHeads(o.Heads, o.KVHeads); err != nil {
		return err
	}
	if o.Past < 0 || o.Past >= MaxTensorBytes {
		return fmt.Errorf("attribute Past is %d, want 0 or more and less than 2^40", o.Past)
	}
	if o.Softcap < 0 || math.IsNaN(o.Softcap) || math.IsInf(o.Softcap, 0) {
		return fmt.Errorf("attribute Softcap is %v, want 0 for none or a limit above 0", o.Softcap)
	}
	if !slices.Contains([]ScoresMode{ScoresRaw, ScoresCapped, ScoresBiased, ScoresProbabilities}, o.Scores) {
		return fmt.Errorf("attribute Scores is %q, want raw, capped, biased or probabilities", o.Scores)
	}
	return nil
}

func checkHeads(heads, kv int64) error {
	if heads < 1 || heads >= MaxTensorBytes || kv < 1 || heads%kv != 0 {
		return fmt.Errorf("attributes Heads and KVHeads are %d and %d, want numbers above 0, the first a multiple of the second", heads, kv)
	}
	return nil
}

// headShape returns batch, heads, sequence and size of an operand of
// attention.
func headShape(name string, t TensorType, heads int64) ([]int64, error) {
	switch {
	case t.Rank() == 4 && t.Shape[1] == heads:
		return t.Shape, nil
	case t.Rank() == 3 && t.Shape[2]%heads == 0:
		return []int64{t.Shape[0], heads, t.Shape[1], t.Shape[2] / heads}, nil
	}
	return nil, fmt.Errorf("%s is %v, want [batch,%d,sequence,size] or [batch,sequence,size] with a size that is divisible by %d", name, t, heads, heads)
}

// Kind returns "LinearAttention".
func (*LinearAttention) Kind() string { return "LinearAttention" }

// Infer implements [Op].
func (o *LinearAttention) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "query", "key", "value", "past_state?", "decay?", "beta?", "erase?")
	if err != nil {
		return nil, err
	}
	q, past := in[0], in[3]
	if err := firstError(floats.want("query", q), checkHeads(o.Heads, o.KVHeads)); err != nil {
		return nil, err
	}
	for i, name := range []string{"query", "key", "value", "", "decay", "beta", "erase"} {
		if t := in[i]; name != "" && present(t) {
			if err := sameType(name, t, q); err != nil {
				return nil, err
			}
			if t.Rank() != 3 || t.Shape[0] != q.Shape[0] || t.Shape[1] != q.Shape[1] {
				return nil, fmt.Errorf("%s is %v, want [batch,sequence,size] with query's batch and sequence, %v", name, t, q)
			}
		}
	}
	batch, steps := q.Shape[0], q.Shape[1]
	kSize, vSize := in[1].Shape[2], in[2].Shape[2]
	if q.Shape[2]%o.Heads != 0 || kSize%o.KVHeads != 0 || vSize%o.KVHeads != 0 || q.Shape[2]/o.Heads != kSize/o.KVHeads {
		return nil, fmt.Errorf("query is %v, key %v and value %v, want heads of one size in query and key: %d and %d heads", q, in[1], in[2], o.Heads, o.KVHeads)
	}
	size, width := kSize/o.KVHeads, vSize/o.KVHeads
	state := TensorType{q.DType, []int64{batch, o.KVHeads, size, width}}
	if present(past) {
		if err := firstError(floats.want("past_state", past), wantShape("past_state", past, state.Shape...)); err != nil {
			return nil, err
		}
		state.DType = past.DType
	}
	if o.Gated != present(in[4]) || o.Delta != present(in[5]) || present(in[6]) && !o.Delta {
		return nil, fmt.Errorf("operands decay, beta and erase are given: %t, %t, %t, want the first with Gated, the second with Delta and the third only then",
			present(in[4]), present(in[5]), present(in[6]))
	}
	oneOf := func(name string, t TensorType, sizes ...int64) error {
		if present(t) && !slices.Contains(sizes, t.Shape[2]) {
			return fmt.Errorf("%s is %v, want a last dimension of %v", name, t, sizes)
		}
		return nil
	}
	err = firstError(oneOf("decay", in[4], o.KVHeads, kSize), oneOf("beta", in[5], o.KVHeads, 1), oneOf("erase", in[6], kSize))
	if err != nil {
		return nil, err
	}
	return results(TensorType{q.DType, []int64{batch, steps, satMul(o.Heads, width)}}, state)
}
