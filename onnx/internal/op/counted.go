package op

import (
	"math"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// countedOps have results whose size depends on data: of what is known when the model is lowered
// they have that size, else the largest with a count.
var countedOps = map[string]definition{
	"Compress":          takes("input:any condition:bool").since(9, compress, "axis:int"),
	"NonZero":           takes("X:any").since(9, nonZero),
	"Unique":            takes("X:any").since(11, unique, "axis:int sorted=1"),
	"NonMaxSuppression": takes("boxes:float scores:float max_output_boxes_per_class:int64 iou_threshold:float score_threshold:float").since(10, nonMaxSuppression, "center_point_box=0"),
}

// honours are the operators that operands with counted axes may be given: those whose lowering
// takes no size of an operand for the number of its elements.
var honours = func() map[string]bool {
	m := map[string]bool{}
	for _, family := range []map[string]definition{elementwiseOps, activationOps, countedOps} {
		for name := range family {
			m[name] = true
		}
	}
	for _, name := range strings.Fields(`ArgMax ArgMin AveragePool BatchNormalization BitCast BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Concat Conv ConvTranspose
		CumProd CumSum DequantizeLinear Expand Flatten Gather GatherElements GatherND Gemm GlobalAveragePool GlobalMaxPool Identity If IsInf IsNaN LayerNormalization LogSoftmax Loop
		MatMul MaxPool MaxRoiPool Mod OneHot Pad QuantizeLinear ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
		ReduceSumSquare Reshape Resize RMSNormalization RoiAlign Scan ScatterElements ScatterND Shape Size Slice Softmax Split Squeeze TopK Transpose Unsqueeze`) {
		m[name] = true
	}
	return m
}()

func compress(c *call) []*lower.Value {
	x, cond := c.In(0), c.In(1)
	if cond.Type.DType != graph.Bool || cond.Rank() != 1 {
		c.Fail("operand 1 (condition) is %v, want a list of bools", cond.Type)
	}
	axis := int64(0)
	if a := c.Attr("axis"); a != nil {
		axis = c.Axis(a.Int, x.Rank())
	} else {
		x = c.Emit(&graph.Reshape{Shape: []int64{x.Type.Elements()}}, x)
	}
	if n := cond.Type.Shape[0]; n > x.Type.Shape[axis] {
		c.Fail("operand 1 (condition) has %d elements, want at most the %d of axis %d of %v", n, x.Type.Shape[axis], axis, x.Type)
	}
	at := c.places(cond, axis)
	return lower.One(c.Emit(&graph.Gather{Axis: axis}, x, c.Emit(&graph.Reshape{Shape: at.Type.Shape[1:]}, at)))
}

func nonZero(c *call) []*lower.Value { return lower.One(c.places(c.cast(c.In(0), graph.Bool), 1)) }

// places returns where bools are set, a column for each; they become elements along an axis of
// result 0.
func (c *call) places(set *lower.Value, axis int64) *lower.Value {
	bound := c.Bound(0, axis, set.Type.Elements())
	out := c.EmitN(&graph.NonZero{Bound: bound}, []bool{true, true}, set)
	n := out[1].Within(0, set.Type.Elements())
	c.AtMost(0, n, bound)
	return c.Counting(out[0], 1, n, false)
}

// unique finds the different elements, or the different slices along an axis.
func unique(c *call) []*lower.Value {
	x := c.In(0)
	axis := int64(0)
	if a := c.Attr("axis"); a != nil {
		axis = c.Axis(a.Int, x.Rank())
	} else {
		x = c.Emit(&graph.Reshape{Shape: []int64{x.Type.Elements()}}, x)
	}
	perm := []int64{axis}
	for a := range x.Rank() {
		if a != axis {
			perm = append(perm, a)
		}
	}
	rows := x
	if axis != 0 {
		rows = c.Emit(&graph.Transpose{Perm: perm}, x)
	}
	switch d := rows.Type.DType; {
	case d.IsFloat() && d != graph.F32:
		rows = c.cast(rows, graph.F64)
	case d == graph.I4 || d == graph.I2:
		rows = c.cast(rows, graph.I8)
	case d == graph.U4 || d == graph.U2:
		rows = c.cast(rows, graph.U8)
	}
	rows = c.Clean(rows)
	in := []*lower.Value{rows.Plain()}
	all := rows.Count(0)
	if all != nil {
		in = append(in, all)
	}
	size := rows.Type.Shape[0]
	out := c.EmitN(&graph.Unique{Sorted: c.Bool("sorted")}, []bool{true, true, true, true}, in...)
	n := out[3].Within(0, size)
	bound := c.Bound(0, axis, size)
	c.AtMost(0, n, bound)
	n = c.CountOf(n, bound)
	first := c.Counting(c.Take(out[0], 0, bound), 0, n, false)
	inverse := out[1]
	if all != nil {
		inverse = c.Counting(inverse, 0, all, false)
	}
	return []*lower.Value{c.Emit(&graph.Gather{Axis: axis}, x, first), first, inverse, c.Counting(c.Take(out[2], 0, bound), 0, n, false)}
}

// nonMaxSuppression picks boxes by score that do not overlap too much with those picked
// before.
func nonMaxSuppression(c *call) []*lower.Value {
	boxes, scores := c.In(0), c.In(1)
	if boxes.Type.DType != graph.F32 || scores.Type.DType != graph.F32 || boxes.Rank() != 3 || scores.Rank() != 3 ||
		boxes.Type.Shape[2] != 4 || boxes.Type.Shape[0] != scores.Type.Shape[0] {
		c.Fail("operands 0 (boxes) and 1 (scores) are %v and %v, want floats of the shapes [batch,boxes,4] and [batch,classes,boxes]", boxes.Type, scores.Type)
	}
	counted := boxes.Counted() || scores.Counted()
	least := c.limit(4, "score_threshold", graph.F32)
	if counted {
		boxes, scores = c.Pair(boxes, 1, scores, 2)
		if scores.Counted() {
			// No score is below what is behind the count, so that none of it is picked.
			scores = c.Masked(scores, lower.Scalar(graph.F32, math.Inf(-1)), 2)
			boxes = c.Clean(boxes).Uncounted(1)
		}
		if least == nil {
			least = lower.Scalar(graph.F32, math.Inf(-1))
		}
	}
	n := boxes.Type.Shape[1]
	most := c.limit(2, "max_output_boxes_per_class", graph.I64)
	limit := int64(0)
	if most != nil {
		limit = min(max(most.Elements()[0].High, 0), n)
	}
	if most != nil && most.Known {
		most = nil
	}
	natural := scores.Type.Shape[0] * scores.Type.Shape[1] * limit
	if natural == 0 {
		return lower.One(lower.Known(graph.TensorType{DType: graph.I64, Shape: []int64{0, 3}}, []byte{}))
	}
	bound := c.Bound(0, 0, natural)
	out := c.EmitN(&graph.NonMaxSuppression{Most: limit, Bound: bound, Centred: c.Bool("center_point_box")}, []bool{true, true},
		boxes, scores, most, c.limit(3, "iou_threshold", graph.F32), least)
	found := out[1].Within(0, natural)
	c.AtMost(0, found, bound)
	return lower.One(c.Counting(out[0], 0, found, false))
}

// limit is operand i, one number, nil if it is left out or empty.
func (c *call) limit(i int, what string, t graph.DType) *lower.Value {
	v := c.Opt(i)
	if v == nil || v.Type.Elements() == 0 {
		return nil
	}
	if v.Type.DType != t || v.Type.Elements() != 1 {
		c.Fail("operand %d (%s) is %v, want one %v", i, what, v.Type, t)
	}
	return v
}
