package genrt

import (
	"encoding/binary"

	"github.com/popefgen/popefgen/rt/internal/sizes"
)

// scratch is what moving one tensor of a request takes: its sizes and those of the member that computes it.
type scratch struct {
	small, big []int // by axis
	fields     []int // of the Go type
	box        *sizes.Box
}

func newScratch(rank int) *scratch {
	return &scratch{small: make([]int, rank), big: make([]int, rank), fields: make([]int, rank), box: sizes.NewBox(rank)}
}

// set makes b that of a request that is smaller than its member.
func (b *scratch) set(t *fitted, v *View, a *ask) {
	b.shape(t, v)
	copy(b.big, t.shape[a.member])
	b.box.Set(b.small, b.big, t.scalar)
}

// shape reads the caller's sizes.
func (b *scratch) shape(t *fitted, v *View) {
	for i := range t.tensor.Axes {
		b.small[i] = int(t.tensor.Axes[i].Size)
	}
	for at, o := range t.spec.Open {
		b.small[o.Axis] = *v.size(t.axes[at])
	}
}

// of returns the fields that a shape makes.
func (b *scratch) of(t *fitted, shape []int) []int {
	for at, o := range t.spec.Open {
		b.fields[t.axes[at]] = shape[o.Axis]
	}
	return b.fields
}

func le64(b [8]byte) uint64 { return binary.LittleEndian.Uint64(b[:]) }
