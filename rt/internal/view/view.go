// Package view looks at tensors as bytes.
package view

import "unsafe"

// Bytes views *t as bytes; nil is nil.
func Bytes[T any](t *T) []byte {
	if t == nil {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t))
}
