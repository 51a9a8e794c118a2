package sizes

import "unsafe"

// Box is a tensor of the caller's sizes at the origin of one of a member's: both are
// row-major and have the same rank. It is used again and again for tensors of
// one element size.
type Box struct {
	small, big []int // bytes of the two by axis: of all that one step along it moves
	count      []int // of the small one, by axis
	all        []int // of the big one
	last       int   // the innermost axis that differs; those behind it move as one
	unit       int   // bytes of one step along it
}

// NewBox returns a box for tensors of that rank.
func NewBox(rank int) *Box {
	mem := make([]int, 4*rank)
	return &Box{small: mem[:rank], big: mem[rank : 2*rank], count: mem[2*rank : 3*rank], all: mem[3*rank:]}
}

// Set makes the box one of a tensor of the sizes small in one of the sizes big, with
// elements of so many bytes. No size of small may be larger.
func (b *Box) Set(small, big []int, elem int) {
	b.last = len(big) - 1
	b.unit = elem
	for b.last > 0 && small[b.last] == big[b.last] {
		b.unit *= big[b.last]
		b.last--
	}
	s, g := b.unit, b.unit
	for i := b.last; i >= 0; i-- {
		b.count[i], b.all[i], b.small[i], b.big[i] = small[i], big[i], s, g
		s *= small[i]
		g *= big[i]
	}
}

// SetRow is Set for a small tensor of one row along an axis, which may be any of the rows of the
// big one: what is moved begins there, and other rows are not filled up.
func (b *Box) SetRow(small, big []int, elem, axis int) {
	b.Set(small, big, elem)
	if axis <= b.last {
		b.all[axis] = small[axis]
	}
}

// Stride returns the bytes of the big tensor that one step along an axis moves. The axis must not lie behind
// the last one in which the two tensors differ.
func (b *Box) Stride(axis int) int { return b.big[axis] }

// Pad copies the small tensor into the big one and fills up what is left of that
// with value, zeros if it is nil.
func (b *Box) Pad(big, small, value []byte) { b.pad(0, big, small, value) }

func (b *Box) pad(axis int, big, small, value []byte) {
	n, step, from := b.count[axis], b.big[axis], b.small[axis]
	if axis == b.last {
		copy(big, small[:n*from])
	} else {
		for i := range n {
			b.pad(axis+1, big[i*step:], small[i*from:], value)
		}
	}
	fill(big[n*step:b.all[axis]*step], value)
}

// Cut copies that part of the big tensor that is the small one. They may lie in the
// same memory if both begin there.
func (b *Box) Cut(small, big []byte) {
	if b.first() && unsafe.SliceData(small) == unsafe.SliceData(big) {
		return
	}
	b.cut(0, small, big)
}

// first reports whether the small tensor is the beginning of the big one.
func (b *Box) first() bool {
	for _, n := range b.count[:b.last] {
		if n > 1 {
			return false
		}
	}
	return true
}

func (b *Box) cut(axis int, small, big []byte) {
	n, step, to := b.count[axis], b.big[axis], b.small[axis]
	if axis == b.last {
		copy(small[:n*to], big)
		return
	}
	for i := range n {
		b.cut(axis+1, small[i*to:], big[i*step:])
	}
}

// fill repeats value all over mem.
func fill(mem, value []byte) {
	if value == nil {
		clear(mem)
		return
	}
	for n := copy(mem, value); n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
}
