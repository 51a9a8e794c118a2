package plan

import (
	"cmp"
	"container/heap"
	"context"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"math/bits"
	"slices"
)

// placeEffort bounds how many buffers and steps [layOut] looks at while it looks for
// gaps: some tenths of a second. A model of tens of thousands of buffers that are
// in use for a few steps each takes a hundredth of it.
const placeEffort = 1 << 25

// layOut gives every buffer its offset, such that buffers in use at the same
// step do not overlap, and returns the size of the whole. It places the
// largest first, each in the smallest gap that fits: a small buffer seldom
// spoils the place of a large one, which is what decides the peak. Where
// thousands of buffers are in use at once and effort runs out, what is left, the
// smallest, gets memory behind the others ([behind]). The offset of
// a part of a buffer counts from that buffer's start before. The error is ctx's.
func layOut(ctx context.Context, buffers []Buffer, effort int) (int64, error) {
	order := make([]*Buffer, 0, len(buffers))
	steps := 0
	for i := range buffers {
		if steps = max(steps, buffers[i].Last+1); !buffers[i].Part {
			order = append(order, &buffers[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *Buffer) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.First, b.First))
	})
	var total int64
	placed := newInUse(steps)
	var meets []*Buffer
	for i, u := range order {
		if i%256 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if effort <= 0 {
			total = behind(order[i:], total)
			break
		}
		meets = placed.with(u, meets[:0])
		effort -= 1 + len(meets) + u.Last - u.First
		slices.SortFunc(meets, func(a, b *Buffer) int { return cmp.Compare(a.Offset, b.Offset) })
		size := align.Up(u.Bytes)
		best, bestGap := int64(-1), int64(0)
		end := int64(0) // where the buffers seen so far end
		for _, o := range meets {
			if gap := o.Offset - end; gap >= size && (best < 0 || gap < bestGap) {
				best, bestGap = end, gap
			}
			end = max(end, o.Offset+align.Up(o.Bytes))
		}
		if best < 0 {
			best = end
		}
		u.Offset = best
		total = max(total, best+size)
		placed.add(u)
	}
	for i := range buffers {
		if u := &buffers[i]; u.Part {
			u.Offset += buffers[u.Within].Offset
		}
	}
	return total, nil
}

// inUse finds the buffers that are in use at the same time as another.
type inUse struct {
	leaves int         // steps, rounded up to a power of two
	spans  [][]*Buffer // a binary tree over the steps: each buffer stands where it is in use at all steps below, and not at all below the one above
	starts [][]*Buffer // by first step
}

func newInUse(steps int) *inUse {
	leaves := 1 << bits.Len(uint(steps))
	return &inUse{leaves, make([][]*Buffer, 2*leaves), make([][]*Buffer, steps)}
}

func (x *inUse) add(u *Buffer) {
	x.starts[u.First] = append(x.starts[u.First], u)
	for from, to := u.First+x.leaves, u.Last+x.leaves+1; from < to; from, to = from/2, to/2 {
		if from%2 == 1 {
			x.spans[from] = append(x.spans[from], u)
			from++
		}
		if to%2 == 1 {
			to--
			x.spans[to] = append(x.spans[to], u)
		}
	}
}

// with appends the buffers in use at some step at which u is, each once: those in
// use at u's first step, and those that come into use later.
func (x *inUse) with(u *Buffer, to []*Buffer) []*Buffer {
	for n := u.First + x.leaves; n > 0; n /= 2 {
		to = append(to, x.spans[n]...)
	}
	for _, later := range x.starts[u.First+1 : u.Last+1] {
		to = append(to, later...)
	}
	return to
}

// behind places buffers behind the first total bytes and returns the new size of
// the whole. In the order in which they come into use, each takes the place of
// one of about its size that is no longer in use: sizes are rounded up by a
// quarter at most. It takes time in proportion to the buffers, nearly.
func behind(buffers []*Buffer, total int64) int64 {
	slices.SortStableFunc(buffers, func(a, b *Buffer) int { return cmp.Compare(a.First, b.First) })
	free := map[int64][]int64{} // offsets, by size
	var used byLast
	for _, u := range buffers {
		for len(used) > 0 && used[0].Last < u.First {
			o := heap.Pop(&used).(*Buffer)
			size := roundUp(o.Bytes)
			free[size] = append(free[size], o.Offset)
		}
		size := roundUp(u.Bytes)
		if all := free[size]; len(all) > 0 {
			u.Offset, free[size] = all[len(all)-1], all[:len(all)-1]
		} else {
			u.Offset = total
			total += size
		}
		heap.Push(&used, u)
	}
	return total
}

// roundUp returns the least number of at least n that is a multiple of
// [align.Line] and has three significant binary digits, if it is larger than that.
func roundUp(n int64) int64 {
	n = align.Up(n)
	unit := max(align.Line, int64(1)<<max(0, bits.Len64(uint64(n))-3))
	return (n + unit - 1) / unit * unit
}

// byLast is a heap of buffers, the one that is used last at the end.
type byLast []*Buffer

func (h byLast) Len() int           { return len(h) }
func (h byLast) Less(i, k int) bool { return h[i].Last < h[k].Last }
func (h byLast) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *byLast) Push(b any)        { *h = append(*h, b.(*Buffer)) }
func (h *byLast) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
