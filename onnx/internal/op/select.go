package op

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// selectOps search, sort and accumulate along an axis.
var selectOps = map[string]definition{
	"ArgMax":          takes("data:numbers").since(1, argMax(false), "axis=0 keepdims=1 select_last_index=0"),
	"ArgMin":          takes("data:numbers").since(1, argMax(true), "axis=0 keepdims=1 select_last_index=0"),
	"TopK":            takes("X:numbers K:int64").since(1, topKAttribute, "axis=-1 k:int!").since(10, topKOperand, "axis=-1 largest=1 sorted=1"),
	"CumSum":          takes("x:wide axis:indices").since(11, cumulate(graph.CumulateSum), "exclusive=0 reverse=0"),
	"CumProd":         takes("x:wide axis:indices").since(26, cumulate(graph.CumulateProd), "exclusive=0 reverse=0"),
	"Hardmax":         takes("input:floats").since(1, hardmaxFlat, "axis=1").since(13, hardmax, "axis=-1"),
	"TfIdfVectorizer": takes("X:indices").since(9, tfIdf, "max_gram_length:int! max_skip_count:int! min_gram_length:int! mode:string! ngram_counts:ints! ngram_indexes:ints! pool_int64s:ints pool_strings:strings weights:floats"),
}

func argMax(least bool) lowerFunc {
	return func(c *call) []*lower.Value {
		x := c.In(0)
		return lower.One(c.Emit(&graph.ArgMax{
			Axis: c.Axis(c.Int("axis"), x.Rank()), KeepDims: c.Bool("keepdims"),
			Min: least, Last: c.Bool("select_last_index"), // from version 12 on
		}, c.wide(x)))
	}
}

func topKAttribute(c *call) []*lower.Value { return c.topK(c.Int("k"), true) }

func topKOperand(c *call) []*lower.Value {
	k := c.In(1)
	if !k.Known {
		return c.topKBy(k, c.Bool("largest"))
	}
	return c.topK(c.knownInt(1, "K"), c.Bool("largest")) // from version 11 on, like sorted: sorted is fine where no order is asked for
}

func (c *call) topK(k int64, largest bool) []*lower.Value {
	x := c.In(0)
	op := &graph.TopK{Axis: c.Axis(c.Int("axis"), x.Rank()), K: k, Least: !largest}
	out := c.EmitN(op, []bool{c.Wants(0), c.Wants(1)}, c.wide(x))
	if out[0] != nil {
		out[0] = c.cast(out[0], x.Type.DType)
	}
	return out
}

func cumulate(fn graph.CumulateFn) lowerFunc {
	return func(c *call) []*lower.Value {
		x := c.In(0)
		c.In(1)
		op := &graph.Cumulate{
			Fn: fn, Axis: c.Axis(c.knownInt(1, "axis"), x.Rank()), Exclusive: c.Bool("exclusive"), Reverse: c.Bool("reverse"),
		}
		return lower.One(c.cast(c.Emit(op, c.wide(x)), x.Type.DType))
	}
}

// hardmaxFlat is Hardmax before version 13: over all axes from attribute axis
// on, as if they were one.
func hardmaxFlat(c *call) []*lower.Value {
	x := c.In(0)
	axis := c.Int("axis")
	if axis != x.Rank() {
		axis = c.Axis(axis, x.Rank())
	}
	y := c.hardmax(c.flatten(x, axis), 1)
	return lower.One(c.Emit(&graph.Reshape{Shape: x.Type.Shape}, y))
}

func hardmax(c *call) []*lower.Value {
	x := c.In(0)
	return lower.One(c.hardmax(x, c.Axis(c.Int("axis"), x.Rank())))
}

// hardmax is 1 at the first greatest element along axis and 0 elsewhere.
func (c *call) hardmax(x *lower.Value, axis int64) *lower.Value {
	if x.Type.Elements() == 0 {
		return x
	}
	t := x.Type.DType
	values := lower.Known(graph.TensorType{DType: t, Shape: []int64{2}}, append(lower.EncodeFloat(t, 0), lower.EncodeFloat(t, 1)...))
	at := c.Emit(&graph.ArgMax{Axis: axis}, c.wide(x))
	return c.Emit(&graph.OneHot{Axis: axis, Depth: x.Type.Shape[axis]}, at, values)
}

func tfIdf(c *call) []*lower.Value {
	if c.Has("pool_strings") {
		c.Unsupported(lower.HintText, "attribute pool_strings")
	}
	op := &graph.TfIdf{
		MinGram: c.Int("min_gram_length"), MaxGram: c.Int("max_gram_length"), MaxSkip: c.Int("max_skip_count"),
		Counts: c.RequireInts("ngram_counts"), Columns: c.RequireInts("ngram_indexes"), Pool: c.RequireInts("pool_int64s"),
	}
	weights := c.Floats("weights")
	switch mode := c.Str("mode"); mode {
	case "TF":
		weights = nil
	case "IDF":
		op.Presence = true
	case "TFIDF":
	default:
		c.Fail("attribute \"mode\" is %q, want TF, IDF or TFIDF", mode)
	}
	columns := int64(0)
	for _, n := range op.Columns {
		columns = max(columns, n+1)
	}
	if int64(len(weights)) > columns {
		weights = weights[:columns] // several n-grams share a column
	}
	op.Weights = weights
	return lower.One(c.Emit(op, c.In(0)))
}
