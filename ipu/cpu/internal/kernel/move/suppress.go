package move

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// suppression is the kernel of NonMaxSuppression. Parts pick for lists of scores, one for
// each batch and class; what they pick is joined at the end. A part sorts the boxes of a
// list whose scores count once and looks at them in that order until it has enough.
type suppression struct {
	batches, classes, boxes int
	most, bound             int
	centred                 bool
	perPart                 int // numbers of 64 bits
	cost                    int

	// The run in progress.
	corners    []float32 // by batch: where boxes begin and end on both axes and their areas, box by box
	scores     []float32
	sorted     []uint64
	picked     []int32 // by list: how many, then which
	limit      int
	overlap    float32
	least      float32
	everything bool // no score is too low
	parts      int
	watch      tensor.Watch
}

// side is how many numbers a box has in corners: where it begins and ends on both axes, its area,
// and the first four again as integers that order as they do. Of those picked the integers are
// held: subtracting them says without a branch whether boxes are apart, as most are.
const (
	side     = 9
	heldSide = 4
)

func bindSuppression(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o, s := op.(*graph.NonMaxSuppression), tensor.Ints(in[1].Shape)
	k := &suppression{batches: s[0], classes: s[1], boxes: s[2], bound: int(o.Bound), centred: o.Centred}
	k.most = min(int(o.Most), k.boxes, k.bound+1)
	// Keys in order and room to sort them in, and the sides of boxes picked.
	k.perPart = 2*k.boxes + heldSide/2*k.most
	k.cost = 8*k.boxes + min(k.boxes, 16)*k.most
	return k, nil
}

func (k *suppression) lists() int { return k.batches * k.classes }

// Scratch implements Kernel.
func (k *suppression) Scratch() int {
	return 8*k.perPart*tensor.MostParts(k.lists(), k.cost) + 4*side*k.batches*k.boxes + 4*k.lists()*(1+k.most)
}

// Run implements Kernel.
func (k *suppression) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	k.limit, k.overlap, k.everything = k.most, 0, true
	if v := tensor.Memory(in, 2); v != nil {
		k.limit = int(max(0, min(tensor.View[int64](v)[0], int64(k.most))))
	}
	if v := tensor.Memory(in, 3); v != nil {
		k.overlap = tensor.F32s(v)[0]
	}
	if v := tensor.Memory(in, 4); v != nil {
		k.least, k.everything = tensor.F32s(v)[0], false
	}
	total := 0
	if k.limit > 0 && k.boxes > 0 && k.lists() > 0 {
		k.parts, k.watch = tensor.CutSlots(p, k.lists(), k.cost), tensor.NewWatch(p, k.cost)
		sorted := 8 * k.perPart * tensor.MostParts(k.lists(), k.cost)
		corners := 4 * side * k.batches * k.boxes
		k.sorted = tensor.View[uint64](scratch[:sorted])
		k.corners = tensor.F32s(scratch[sorted : sorted+corners])
		k.picked = tensor.View[int32](scratch[sorted+corners:])
		k.scores = tensor.F32s(in[1])
		k.sides(tensor.F32s(in[0]))
		p.Run(k, k.parts)
		total = k.join(tensor.View[int64](tensor.Memory(out, 0)))
	}
	if rows := tensor.Memory(out, 0); rows != nil {
		clear(tensor.View[int64](rows)[3*min(total, k.bound):])
	}
	if count := tensor.Memory(out, 1); count != nil {
		tensor.View[int64](count)[0] = int64(min(total, k.bound+1))
	}
	k.corners, k.scores, k.sorted, k.picked = nil, nil, nil, nil
	return nil
}

// sides notes where boxes begin and end on both axes, and their areas.
func (k *suppression) sides(boxes []float32) {
	for i := range k.batches * k.boxes {
		b, s := boxes[4*i:][:4:4], k.corners[side*i:][:side:side]
		for axis := range 2 {
			p, q := b[axis], b[axis+2]
			if k.centred {
				half := q / 2
				p, q = p-half, p+half
			} else if p > q {
				p, q = q, p
			}
			s[2*axis], s[2*axis+1] = p, q
		}
		s[4] = (s[1] - s[0]) * (s[3] - s[2])
		places := tensor.View[int32](tensor.RawBytes(s[5:]))
		for i := range places {
			places[i] = inOrder(s[i])
		}
	}
}

// inOrder returns an integer that is the greater the greater v is, and the same for both
// zeros.
func inOrder(v float32) int32 {
	b := int32(math.Float32bits(v + 0))
	return b ^ b>>31&math.MaxInt32
}

// join writes what all lists have picked, up to the bound, and returns how much that is.
func (k *suppression) join(rows []int64) int {
	total := 0
	for list := range k.lists() {
		picked := k.picked[list*(1+k.most):]
		n := int(picked[0])
		if rows != nil {
			for i, box := range picked[1 : 1+max(0, min(n, k.bound-total))] {
				r := rows[3*(total+i):][:3:3]
				r[0], r[1], r[2] = int64(list/k.classes), int64(list%k.classes), int64(box)
			}
		}
		total += n
	}
	return total
}

// Do implements Task.
func (k *suppression) Do(part int) {
	lo, hi := tensor.Span(k.lists(), k.parts, part, 1)
	room := k.sorted[part*k.perPart:][:k.perPart]
	for list := lo; list < hi; {
		to := k.watch.Next(list, hi)
		if to == list {
			return
		}
		for ; list < to; list++ {
			if k.watch.Pool.Ended() {
				return
			}
			k.pick(list, room)
		}
	}
}

// pick picks the boxes of a list.
func (k *suppression) pick(list int, room []uint64) {
	scores := k.scores[list*k.boxes:][:k.boxes]
	corners := k.corners[list/k.classes*side*k.boxes:][:side*k.boxes]
	keys, other := room[:k.boxes], room[k.boxes:2*k.boxes]
	n := 0
	if k.everything {
		for i, v := range scores {
			keys[i] = scoreKey(v, i)
		}
		n = len(scores)
	} else {
		for i, v := range scores {
			if v > k.least {
				keys[n] = scoreKey(v, i)
				n++
			}
		}
	}
	keys = sortKeys(keys[:n], other[:n])
	out := k.picked[list*(1+k.most):][:1+k.most]
	held := tensor.View[int32](tensor.RawBytes(room[2*k.boxes:]))
	picked := 0
	pace := tensor.Pace{Pool: k.watch.Pool}
	for _, key := range keys {
		if picked == k.limit || picked > 0 && k.overlap < 0 || pace.Ended(1+picked) {
			break // of a limit below 0 even boxes that are apart are too much
		}
		i := int(uint32(key))
		box := corners[side*i:][:side:side]
		places := tensor.View[int32](tensor.RawBytes(box[5:]))
		if overlaps(out[1:1+picked], held[:heldSide*picked], corners, box, places, k.overlap) {
			continue
		}
		copy(held[heldSide*picked:heldSide*(picked+1)], places)
		picked++
		out[picked] = int32(i)
	}
	out[0] = int32(picked)
}

// overlaps reports whether the part of the union of box and one of those picked that is in
// both is above most.
func overlaps(picked, held []int32, corners, box []float32, places []int32, most float32) bool {
	area := box[4]
	if !(area > 0) {
		return false
	}
	y1, y2, x1, x2 := int64(places[0]), int64(places[1]), int64(places[2]), int64(places[3])
	for j := range picked {
		h := held[heldSide*j:][:heldSide:heldSide]
		apart := (int64(h[1]) - y1 - 1) | (y2 - int64(h[0]) - 1) | (int64(h[3]) - x1 - 1) | (x2 - int64(h[2]) - 1)
		if apart < 0 {
			continue
		}
		b := corners[side*int(picked[j]):][:side:side]
		inter := (min(box[1], b[1]) - max(box[0], b[0])) * (min(box[3], b[3]) - max(box[2], b[2]))
		if union := area + b[4] - inter; b[4] > 0 && union > 0 && inter/union > most {
			return true
		}
	}
	return false
}

// scoreKey returns a number that is the less the greater a score is, and of equal ones
// the earlier. A NaN is last.
func scoreKey(v float32, i int) uint64 {
	b := math.Float32bits(v + 0)
	b ^= uint32(int32(b)>>31) | 1<<31
	if v != v {
		b = 0
	}
	return uint64(^b)<<32 | uint64(uint32(i))
}

// sortKeys sorts numbers in ascending order, of which those with an equal upper half
// are in order; it returns them in either piece of memory.
func sortKeys(keys, other []uint64) []uint64 {
	const digit = 11 // bits: three digits are the upper half
	if len(keys) < 400 {
		slices.Sort(keys)
		return keys
	}
	var counts [3][1 << digit]uint32
	for _, k := range keys {
		counts[0][k>>32&(1<<digit-1)]++
		counts[1][k>>(32+digit)&(1<<digit-1)]++
		counts[2][k>>(32+2*digit)]++
	}
	for d := range counts {
		at := uint32(0)
		for i, n := range counts[d] {
			counts[d][i] = at
			at += n
		}
		shift := 32 + digit*d
		for _, k := range keys {
			c := &counts[d][k>>shift&(1<<digit-1)]
			other[*c] = k
			*c++
		}
		keys, other = other, keys
	}
	return keys
}
