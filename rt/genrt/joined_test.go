package genrt

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/internal/hostmem"
)

// TestJoinedMemory hands out a block where all inputs lie in it, and copies them side by side elsewhere.
func TestJoinedMemory(t *testing.T) {
	type block struct {
		A int64
		B [2]float32
		C uint8
		_ [7]byte
	}
	s := hostmem.NewJoined(24)
	var a Input[int64]
	var b Input[[2]float32]
	var c Input[uint8]
	for i, in := range []hostmem.Bound{&a, &b, &c} {
		w, size := in.Describe()
		w.At.Size, w.At.Count = size, 1
		s.Set(s.Add([]int{0, 8, 16}[i], size), in)
	}
	var j Joined[block]
	j.bindTo(nil)
	j.Bind(new(block)) // of a model that moves each input by itself
	var other Joined[[2]block]
	other.bindTo(s)
	require.Nil(t, other.block, "a struct of another size is another model's")
	j.bindTo(s)

	in := &block{A: -1, B: [2]float32{1, 2}, C: 9}
	for _, tt := range []struct {
		name  string
		block *block
		a     *int64
		place bool
	}{
		{"all in the block", in, &in.A, true},
		{"no block", nil, &in.A, false},
		{"one elsewhere", in, new(int64), false},
		{"another block", new(block), &in.A, false},
		{"the block again", in, &in.A, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			*tt.a = -1
			a.Bind(tt.a)
			b.Bind(&in.B)
			c.Bind(&in.C)
			j.Bind(tt.block)
			m, err := s.Memory(t.Context())
			require.NoError(t, err)
			require.Equal(t, tt.place, unsafe.Pointer(unsafe.SliceData(m)) == unsafe.Pointer(in))
			require.Equal(t, *in, *(*block)(unsafe.Pointer(unsafe.SliceData(m))))
			s.Complete()
			require.Nil(t, j.block.At.Block)
			require.Equal(t, 1, a.At.Done)
			_, err = s.Memory(t.Context())
			require.ErrorContains(t, err, "transfer 2 of 1 in this run")
		})
	}
}
