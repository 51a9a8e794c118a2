package popxl

import (
	"unsafe"

	"github.com/popefgen/popefgen/ipu/graph"
)

// combination says what is made of tensors of a type that all replicas give, and what each takes of it: here the sum, of which each takes all.
type combination struct{ t graph.TensorType }

// combine adds up in the order of the replicas.
func (c combination) combine(made []byte, given [][]byte) {
	if c.t.DType == graph.F64 {
		fold[float64](made, given)
		return
	}
	fold[float32](made, given)
}

func fold[T float32 | float64](made []byte, given [][]byte) {
	copy(made, given[0])
	all := elementsOf[T](made)
	for _, g := range given[1:] {
		for i, v := range elementsOf[T](g) {
			all[i] += v
		}
	}
}

// elementsOf views memory of its own as elements: Go aligns what has the size of a number of them as they have to be.
func elementsOf[T any](data []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(*new(T))))
}
