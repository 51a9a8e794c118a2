package popxl

import (
	"unsafe"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// combination says what is made of tensors of a type that all replicas give, and what each takes of it.
type combination struct {
	way way
	t   graph.TensorType // of what each gives
}

// way is how tensors are combined.
type way uint8

const (
	sums     way = iota + 1 // all take the sum
	gathers                 // all take all, side by side
	scatters                // each takes its part of the sum
)

// made returns how many bytes are made of the tensors of n replicas.
func (c combination) made(n int) int {
	if c.way == gathers {
		return n * int(c.t.Bytes())
	}
	return int(c.t.Bytes())
}

// of returns what replica i takes, so many bytes.
func (c combination) of(made []byte, i, bytes int) []byte {
	if c.way == scatters {
		return made[i*bytes:][:bytes]
	}
	return made
}

// combine makes it. What is added up is so in the order of the replicas; half precision is rounded once, at the end.
func (c combination) combine(made []byte, given [][]byte) {
	if c.way == gathers {
		for i, g := range given {
			copy(made[i*len(g):], g)
		}
		return
	}
	switch c.t.DType {
	case graph.F32:
		fold[float32](made, given)
	case graph.F64:
		fold[float64](made, given)
	case graph.F16:
		halves(made, given, num.Float16.Float32, num.Float16From)
	case graph.BF16:
		halves(made, given, num.BFloat16.Float32, num.BFloat16From)
	case graph.I8, graph.U8: // sums of two's complement have the same bits
		fold[uint8](made, given)
	case graph.I16, graph.U16:
		fold[uint16](made, given)
	case graph.I32, graph.U32:
		fold[uint32](made, given)
	case graph.I64, graph.U64:
		fold[uint64](made, given)
	}
}

func fold[T float32 | float64 | uint8 | uint16 | uint32 | uint64](made []byte, given [][]byte) {
	copy(made, given[0])
	all := elementsOf[T](made)
	for _, g := range given[1:] {
		for i, v := range elementsOf[T](g) {
			all[i] += v
		}
	}
}

func halves[H ~uint16](made []byte, given [][]byte, wide func(H) float32, from func(float32) H) {
	all := elementsOf[H](made)
	for i := range all {
		v := wide(elementsOf[H](given[0])[i])
		for _, g := range given[1:] {
			v += wide(elementsOf[H](g)[i])
		}
		all[i] = from(v)
	}
}

// elementsOf views memory of its own as elements: Go aligns what has the size of a number of them as they have to be.
func elementsOf[T any](data []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(*new(T))))
}
