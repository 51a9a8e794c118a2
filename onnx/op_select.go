package onnx

import "github.com/popefgen/popefgen/ipu/graph"

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
	return func(c *call) []*value {
		x := c.in(0)
		return one(c.emit(&graph.ArgMax{
			Axis: c.axis(c.int("axis"), x.rank()), KeepDims: c.bool("keepdims"),
			Min: least, Last: c.bool("select_last_index"), // from version 12 on
		}, c.wide(x)))
	}
}

func topKAttribute(c *call) []*value { return c.topK(c.int("k"), true) }

func topKOperand(c *call) []*value {
	c.in(1)
	k := c.knownInt(1, "K")
	return c.topK(k, c.bool("largest")) // from version 11 on, like sorted: sorted is fine where no order is asked for
}

func (c *call) topK(k int64, largest bool) []*value {
	x := c.in(0)
	op := &graph.TopK{Axis: c.axis(c.int("axis"), x.rank()), K: k, Least: !largest}
	out := c.emitN(op, []bool{c.wants(0), c.wants(1)}, c.wide(x))
	if out[0] != nil {
		out[0] = c.cast(out[0], x.typ.DType)
	}
	return out
}

func cumulate(fn graph.CumulateFn) lowerFunc {
	return func(c *call) []*value {
		x := c.in(0)
		c.in(1)
		op := &graph.Cumulate{
			Fn: fn, Axis: c.axis(c.knownInt(1, "axis"), x.rank()), Exclusive: c.bool("exclusive"), Reverse: c.bool("reverse"),
		}
		return one(c.cast(c.emit(op, c.wide(x)), x.typ.DType))
	}
}

// hardmaxFlat is Hardmax before version 13: over all axes from attribute axis
// on, as if they were one.
func hardmaxFlat(c *call) []*value {
	x := c.in(0)
	axis := c.int("axis")
	if axis != x.rank() {
		axis = c.axis(axis, x.rank())
	}
	y := c.hardmax(c.flatten(x, axis), 1)
	return one(c.emit(&graph.Reshape{Shape: x.typ.Shape}, y))
}

func hardmax(c *call) []*value {
	x := c.in(0)
	return one(c.hardmax(x, c.axis(c.int("axis"), x.rank())))
}

// hardmax is 1 at the first greatest element along axis and 0 elsewhere.
func (c *call) hardmax(x *value, axis int64) *value {
	if x.typ.Elements() == 0 {
		return x
	}
	t := x.typ.DType
	values := knownValue(graph.TensorType{DType: t, Shape: []int64{2}}, append(encodeFloat(t, 0), encodeFloat(t, 1)...))
	at := c.emit(&graph.ArgMax{Axis: axis}, c.wide(x))
	return c.emit(&graph.OneHot{Axis: axis, Depth: x.typ.Shape[axis]}, at, values)
}

func tfIdf(c *call) []*value {
	if c.has("pool_strings") {
		c.unsupported(hintText, "attribute pool_strings")
	}
	op := &graph.TfIdf{
		MinGram: c.int("min_gram_length"), MaxGram: c.int("max_gram_length"), MaxSkip: c.int("max_skip_count"),
		Counts: c.requireInts("ngram_counts"), Columns: c.requireInts("ngram_indexes"), Pool: c.requireInts("pool_int64s"),
	}
	weights := c.floats("weights")
	switch mode := c.str("mode"); mode {
	case "TF":
		weights = nil
	case "IDF":
		op.Presence = true
	case "TFIDF":
	default:
		c.fail("attribute \"mode\" is %q, want TF, IDF or TFIDF", mode)
	}
	columns := int64(0)
	for _, n := range op.Columns {
		columns = max(columns, n+1)
	}
	if int64(len(weights)) > columns {
		weights = weights[:columns] // several n-grams share a column
	}
	op.Weights = weights
	return one(c.emit(op, c.in(0)))
}
