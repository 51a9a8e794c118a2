// Package sizes chooses the member of a family that computes a request, and moves
// tensors of the caller's sizes into those of the member and back.
package sizes

import (
	"slices"

	"github.com/popefgen/popefgen/popef/family"
)

// Table has, for every request, the member that computes it with the least cost. It
// is made once, so that choosing takes no look at the members.
type Table struct {
	dims    []dim
	cells   []Code   // see Cells
	ranks   [][]Code // by dimension, see Ranks
	sizes   [][]int  // by member and dimension
	members []family.Member
}

// Code is an entry of a table: twice an index, plus 1 if what is there is larger than what was asked for;
// below 0 if there is nothing.
type Code int32

// Index returns the index.
func (c Code) Index() int { return int(c >> 1) }

// Exact reports whether what is there is of the sizes that were asked for. That of several codes
// joined by "or" is that of all of them.
func (c Code) Exact() bool { return c&1 == 0 }

// code returns the entry of what is at index i, -1 for nothing.
func code(i int, exact func(int) bool) Code {
	switch {
	case i < 0:
		return -1
	case exact(i):
		return Code(2 * i)
	}
	return Code(2*i + 1)
}

// dim is one dimension of a table.
type dim struct {
	name   string
	padded bool  // what is smaller than a member may be computed by it
	least  int   // and not what is smaller than this
	sizes  []int // of members, ascending
	stride int32
}

// Bounds on what a table holds in advance: beyond them ranks are searched for, and
// members looked through.
const (
	maxRanks = 1 << 16
	maxCells = 1 << 16
)

// New returns the table of a family.
func New(f *family.Family) *Table {
	t := &Table{members: f.Members}
	for i := range f.Members {
		t.sizes = append(t.sizes, ints(f.Members[i].Sizes))
	}
	cells := 1
	for d := range f.Dims {
		own := dim{name: f.Dims[d].Name, padded: f.Dims[d].Padded() && cuttable(f, d), least: int(f.Least(d)), stride: int32(cells)}
		for i := range t.sizes {
			own.sizes = append(own.sizes, t.sizes[i][d])
		}
		slices.Sort(own.sizes)
		own.sizes = slices.Compact(own.sizes)
		if cells *= len(own.sizes); cells > maxCells {
			cells = maxCells + 1 // and no overflow
		}
		t.dims = append(t.dims, own)
	}
	if cells > maxCells {
		return t
	}
	t.cells = make([]Code, cells)
	at := make([]int, len(t.dims))
	for c := range t.cells {
		for d := range t.dims {
			at[d] = t.dims[d].sizes[c/int(t.dims[d].stride)%len(t.dims[d].sizes)]
		}
		t.cells[c] = code(t.scan(at), func(m int) bool { return slices.Equal(t.sizes[m], at) })
	}
	ranks := make([][]Code, len(t.dims))
	for d := range t.dims {
		own := &t.dims[d]
		n := own.sizes[len(own.sizes)-1]
		if n >= maxRanks {
			return t
		}
		ranks[d] = make([]Code, n+1)
		for size := range ranks[d] {
			rank := own.search(size)
			ranks[d][size] = code(rank*int(own.stride), func(int) bool { return own.sizes[rank] == size })
		}
	}
	t.ranks = ranks
	return t
}

// cuttable reports whether results of a larger member along a dimension can be cut
// back to a smaller size: no axis varies with it in a way that nobody knows.
func cuttable(f *family.Family, d int) bool {
	for i := range f.Tensors {
		for k := range f.Tensors[i].Axes {
			a := &f.Tensors[i].Axes[k]
			if a.Sizes == nil || a.Dim >= 0 {
				continue
			}
			for m := range f.Members {
				for o := range m {
					if a.Sizes[m] != a.Sizes[o] && differ(f.Members[m].Sizes, f.Members[o].Sizes, d) {
						return false
					}
				}
			}
		}
	}
	return true
}

// differ reports whether a and b have other sizes in dimension d and the same in all others.
func differ(a, b []int64, d int) bool {
	for i := range a {
		if (a[i] == b[i]) == (i == d) {
			return false
		}
	}
	return true
}

func ints(list []int64) []int {
	out := make([]int, len(list))
	for i, n := range list {
		out[i] = int(n)
	}
	return out
}

// search returns the index of the size that computes n elements, -1 if there is none.
func (d *dim) search(n int) int {
	i, exact := slices.BinarySearch(d.sizes, n)
	if i == len(d.sizes) || !exact && (!d.padded || n < d.least) {
		return -1
	}
	return i
}

// scan returns the cheapest member that computes sizes, -1 if there is none.
func (t *Table) scan(sizes []int) int {
	best := -1
	for m := range t.sizes {
		if t.takes(m, sizes) && (best < 0 || t.before(m, best)) {
			best = m
		}
	}
	return best
}

// takes reports whether a member computes sizes.
func (t *Table) takes(m int, sizes []int) bool {
	for d, n := range sizes {
		if has := t.sizes[m][d]; n != has && (n > has || n < t.dims[d].least || !t.dims[d].padded) {
			return false
		}
	}
	return true
}

// before reports whether member a is rather taken than b, which stands before it: it
// costs less, or has fewer elements where nobody knows the costs.
func (t *Table) before(a, b int) bool {
	if x, y := t.members[a].Cost, t.members[b].Cost; x > 0 && y > 0 && x != y {
		return x < y
	}
	return volume(t.sizes[a]) < volume(t.sizes[b])
}

func volume(sizes []int) float64 {
	v := 1.0
	for _, n := range sizes {
		v *= float64(n)
	}
	return v
}

// Choose returns the member that computes tensors of these sizes, by dimension, with
// the least cost, and whether they are exactly its own. It is -1 if no member does.
func (t *Table) Choose(sizes []int) (member int, exact bool) {
	if t.ranks == nil {
		return t.find(sizes)
	}
	at, codes := 0, Code(0)
	for d, n := range sizes {
		ranks := t.ranks[d]
		if uint(n) >= uint(len(ranks)) {
			return -1, false
		}
		at += ranks[n].Index()
		codes |= ranks[n]
	}
	if codes < 0 {
		return -1, false
	}
	c := t.cells[at]
	return c.Index(), (codes | c).Exact()
}

// find is Choose where a table has no ranks, or no cells either.
func (t *Table) find(sizes []int) (member int, exact bool) {
	if t.cells == nil {
		member = t.scan(sizes)
	} else {
		at := 0
		for d := range t.dims {
			rank := t.dims[d].search(sizes[d])
			if rank < 0 {
				return -1, false
			}
			at += rank * int(t.dims[d].stride)
		}
		member = t.cells[at].Index()
	}
	return member, member >= 0 && slices.Equal(t.sizes[member], sizes)
}

// Ranks returns the entries of a dimension by size, nil where sizes are large. Their indices, summed over all
// dimensions, say where in [Table.Cells] the member is. With it who has the sizes in other places chooses
// as [Table.Choose] does.
func (t *Table) Ranks(d int) []Code {
	if t.ranks == nil {
		return nil
	}
	return t.ranks[d]
}

// Cells returns the entries of members, nil where there would be too many.
func (t *Table) Cells() []Code { return t.cells }

// Of returns the sizes of a member by dimension, which nobody may change.
func (t *Table) Of(member int) []int { return t.sizes[member] }

// Len returns the number of members.
func (t *Table) Len() int { return len(t.sizes) }

// Sizes returns the sizes that members have in a dimension, ascending, whether
// smaller ones may be padded, and the smallest that may.
func (t *Table) Sizes(d int) (sizes []int, padded bool, least int) {
	return t.dims[d].sizes, t.dims[d].padded, t.dims[d].least
}
