package op

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// knownOps have results whose shape depends on data. Shapes are static in an
// executable, so the data must be known when the model is lowered.
//
// What they cost is bounded here, as no operator of the executable is folded.
var knownOps = map[string]definition{
	"Compress":          takes("input:any condition:bool").sizedBy("1").since(9, compress, "axis:int"),
	"NonZero":           takes("X:any").sizedBy("0").since(9, nonZero),
	"Unique":            takes("X:any").sizedBy("0").since(11, unique, "axis:int sorted=1"),
	"NonMaxSuppression": takes("boxes:float scores:float max_output_boxes_per_class:int64 iou_threshold:float score_threshold:float").sizedBy("01").since(10, nonMaxSuppression, "center_point_box=0"),
}

// pickWork bounds the comparisons of boxes that are picked at compile time.
const pickWork = 1 << 27

// maxKnown bounds the elements that are sorted or listed at compile time.
const maxKnown = 16 << 20

// requireKnown returns operand i, which decides on the shape of a result.
func (c *call) requireKnown(i int, what string) *lower.Value {
	c.In(i)
	return c.Known(i, what+", on which the shape of the result depends")
}

func compress(c *call) []*lower.Value {
	x, cond := c.In(0), c.requireKnown(1, "condition")
	if cond.Type.DType != graph.Bool || cond.Rank() != 1 {
		c.Fail("operand 1 (condition) is %v, want a list of bools", cond.Type)
	}
	axis := int64(0)
	if a := c.Attr("axis"); a != nil {
		axis = c.Axis(a.Int, x.Rank())
	} else {
		x = c.Emit(&graph.Reshape{Shape: []int64{x.Type.Elements()}}, x)
	}
	if n := int64(len(cond.Data)); n > x.Type.Shape[axis] {
		c.Fail("operand 1 (condition) has %d elements, want at most the %d of axis %d of %v", n, x.Type.Shape[axis], axis, x.Type)
	}
	var at []int64
	for i, b := range cond.Data {
		if b != 0 {
			at = append(at, int64(i))
		}
	}
	return lower.One(c.Emit(&graph.Gather{Axis: axis}, x, lower.KnownInts(at...)))
}

func nonZero(c *call) []*lower.Value {
	x := c.requireKnown(0, "X")
	set := c.cast(x, graph.Bool)
	if !set.Known {
		c.Want(set, "0 (X)")
	}
	var found []int64
	for i, b := range set.Data {
		if b != 0 {
			found = append(found, int64(i))
		}
	}
	if int64(len(found))*x.Rank() > maxKnown {
		c.Unsupported(lower.HintFold, "the places of %d elements of %v at compile time", len(found), x.Type)
	}
	// Row k of the result holds coordinate k of every element found.
	out := make([]int64, len(found)*int(x.Rank()))
	left := slices.Clone(found)
	for k := int(x.Rank()) - 1; k >= 0; k-- {
		for i := range left {
			out[k*len(left)+i] = left[i] % x.Type.Shape[k]
			left[i] /= x.Type.Shape[k]
		}
	}
	y := lower.KnownInts(out...)
	y.Type.Shape = []int64{x.Rank(), int64(len(found))}
	return lower.One(y)
}

// unique finds the different elements, or the different slices along an axis.
func unique(c *call) []*lower.Value {
	x := c.requireKnown(0, "X")
	if x.Type.Elements() > maxKnown {
		c.Unsupported(lower.HintFold, "sorting %v at compile time", x.Type)
	}
	sorted := c.Bool("sorted")
	axis := int64(0)
	if a := c.Attr("axis"); a != nil {
		axis = c.Axis(a.Int, x.Rank())
	} else {
		x = c.Emit(&graph.Reshape{Shape: []int64{x.Type.Elements()}}, x)
	}
	// A row for each slice.
	n := x.Type.Shape[axis]
	perm := []int64{axis}
	for a := range x.Rank() {
		if a != axis {
			perm = append(perm, a)
		}
	}
	rows := c.Emit(&graph.Transpose{Perm: perm}, x)
	if rows.Type.DType.IsFloat() {
		rows = c.cast(rows, graph.F64)
	}
	if !rows.Known {
		c.Want(rows, "0 (X)")
	}
	keys := sortKeys(rows)
	width := 0
	if n > 0 {
		width = len(keys) / int(n)
	}
	row := func(i int64) []uint64 { return keys[int(i)*width : (int(i)+1)*width] }
	order := make([]int64, n)
	for i := range order {
		order[i] = int64(i)
	}
	slices.SortStableFunc(order, func(a, b int64) int { return slices.Compare(row(a), row(b)) })
	// groups holds the slices that are equal, each group's first one first.
	var groups [][]int64
	for i, at := range order {
		if i > 0 && slices.Equal(row(at), row(order[i-1])) {
			g := &groups[len(groups)-1]
			*g = append(*g, at)
		} else {
			groups = append(groups, []int64{at})
		}
	}
	if !sorted {
		slices.SortFunc(groups, func(a, b []int64) int { return int(a[0] - b[0]) })
	}
	first, inverse, counts := make([]int64, len(groups)), make([]int64, n), make([]int64, len(groups))
	for g, members := range groups {
		first[g], counts[g] = members[0], int64(len(members))
		for _, at := range members {
			inverse[at] = int64(g)
		}
	}
	indices := lower.KnownInts(first...)
	return []*lower.Value{c.Emit(&graph.Gather{Axis: axis}, x, indices), indices, lower.KnownInts(inverse...), lower.KnownInts(counts...)}
}

// sortKeys returns, for each element of a known value of bools, integers or
// float64, a number that orders as the elements do. All NaN are equal and
// greatest.
func sortKeys(v *lower.Value) []uint64 {
	size := v.Type.DType.Size()
	keys := make([]uint64, len(v.Data)/size)
	for i := range keys {
		var b [8]byte
		copy(b[:], v.Data[i*size:(i+1)*size])
		k := binary.LittleEndian.Uint64(b[:])
		top := uint64(1) << (8*size - 1)
		switch {
		case v.Type.DType.IsSigned():
			k ^= top
		case v.Type.DType == graph.F64:
			switch f := math.Float64frombits(k); {
			case f != f:
				k = math.MaxUint64
			case f == 0:
				k = top
			case f < 0:
				k = ^k
			default:
				k |= top
			}
		}
		keys[i] = k
	}
	return keys
}

// nonMaxSuppression picks boxes by score that do not overlap too much with
// those picked before.
func nonMaxSuppression(c *call) []*lower.Value {
	boxes, scores := c.requireKnown(0, "boxes"), c.requireKnown(1, "scores")
	if boxes.Type.DType != graph.F32 || scores.Type.DType != graph.F32 || boxes.Rank() != 3 || scores.Rank() != 3 ||
		boxes.Type.Shape[2] != 4 || boxes.Type.Shape[0] != scores.Type.Shape[0] || boxes.Type.Shape[1] != scores.Type.Shape[2] {
		c.Fail("operands 0 (boxes) and 1 (scores) are %v and %v, want floats of the shapes [batch,boxes,4] and [batch,classes,boxes]", boxes.Type, scores.Type)
	}
	s := suppression{boxes: floats32(boxes.Data), centred: c.Bool("center_point_box")}
	most := int64(0)
	if c.Opt(2) != nil {
		most = c.knownInt(2, "max_output_boxes_per_class")
	}
	limit := func(i int, what string, def float64) float64 {
		v := c.Known(i, what)
		if v == nil || v.Type.Elements() == 0 {
			return def
		}
		if v.Type.DType != graph.F32 || v.Type.Elements() != 1 {
			c.Fail("operand %d (%s) is %v, want one float", i, what, v.Type)
		}
		return float64(floats32(v.Data)[0])
	}
	s.overlap = limit(3, "iou_threshold", 0)
	least := limit(4, "score_threshold", math.Inf(-1))
	all := floats32(scores.Data)
	batches, classes, n := scores.Type.Shape[0], scores.Type.Shape[1], scores.Type.Shape[2]
	if work := float64(batches) * float64(classes) * float64(n) * float64(min(max(most, 0), n)); work > pickWork {
		c.Unsupported("keep the suppression outside of the model: give it scores and boxes as outputs", "picking up to %d of %d boxes in %d batches and %d classes at compile time", most, n, batches, classes)
	}
	var out []int64
	for b := range batches {
		for class := range classes {
			score := all[(b*classes+class)*n:][:n]
			for _, i := range s.pick(b*n, score, least, most) {
				out = append(out, b, class, i)
			}
		}
	}
	y := lower.KnownInts(out...)
	y.Type.Shape = []int64{int64(len(out) / 3), 3}
	return lower.One(y)
}

type suppression struct {
	boxes   []float32
	centred bool // boxes are centre and size, not two corners
	overlap float64
}

// pick returns up to most of the boxes from number first on.
func (s *suppression) pick(first int64, score []float32, least float64, most int64) []int64 {
	var order, picked []int64
	for i, v := range score {
		if math.IsInf(least, -1) || float64(v) > least {
			order = append(order, int64(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int64) int {
		switch v, w := score[a], score[b]; {
		case v > w:
			return -1
		case v < w:
			return 1
		}
		return 0
	})
	for _, i := range order {
		if int64(len(picked)) >= most {
			break
		}
		if !slices.ContainsFunc(picked, func(j int64) bool { return s.ratio(first+i, first+j) > s.overlap }) {
			picked = append(picked, i)
		}
	}
	return picked
}

// ratio returns how much of the union of two boxes is in both.
func (s *suppression) ratio(a, b int64) float64 {
	u, v := s.sides(a), s.sides(b)
	inter, areaU, areaV := 1.0, 1.0, 1.0
	for i := range u {
		common := min(u[i][1], v[i][1]) - max(u[i][0], v[i][0])
		if common <= 0 {
			return 0
		}
		inter *= common
		areaU *= u[i][1] - u[i][0]
		areaV *= v[i][1] - v[i][0]
	}
	if union := areaU + areaV - inter; areaU > 0 && areaV > 0 && union > 0 {
		return inter / union
	}
	return 0
}

// sides returns where a box begins and ends on both axes.
func (s *suppression) sides(i int64) (side [2][2]float64) {
	box := s.boxes[4*i:][:4]
	for k := range side {
		p, q := float64(box[k]), float64(box[k+2])
		if s.centred {
			p, q = p-q/2, p+q/2
		} else {
			p, q = min(p, q), max(p, q)
		}
		side[k] = [2]float64{p, q}
	}
	return side
}

func floats32(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
