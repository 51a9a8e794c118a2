package genrt

import "unsafe"

// IsOpen reports whether the tensor has open dimensions.
func (v View) IsOpen() bool { return v.sizes != nil }

// Missing reports whether there is no tensor.
func (v View) Missing() bool { return v.data == nil }

// Size returns the size in the field with index k, of a tensor with open dimensions.
func (v View) Size(k int) int { return *v.size(k) }

// SetSize is Size the other way round. Resize must follow.
func (v View) SetSize(k, n int) { *v.size(k) = n }

// Resize gives a tensor with open dimensions n elements of so many bytes, what its sizes make. It keeps
// its memory where there is enough, with whatever is in it.
func (v View) Resize(n, bytes int) { v.resize(n, n, bytes) }

// Memory returns the memory of the tensor's elements, each of so many bytes: of one without open dimensions it is a
// single element. It is nil for a tensor that is not there.
func (v View) Memory(bytes int) []byte {
	switch {
	case v.data == nil:
		return nil
	case v.sizes == nil:
		return unsafe.Slice((*byte)(v.data), bytes)
	}
	n, _ := v.elements()
	return v.bytes(n, bytes)
}
