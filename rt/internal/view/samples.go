package view

import "unsafe"

// Samples views consecutive samples of one tensor.
type Samples struct {
	Data []byte
	N    int // samples in Data
}

// SamplesOf views s, an element of which is a sample.
func SamplesOf[S any](s []S) Samples {
	return Samples{Data: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(*new(S))), N: len(s)}
}

// Bytes returns the memory of the samples.
func (s Samples) Bytes() []byte { return s.Data }

// Len returns how many samples there are.
func (s Samples) Len() int { return s.N }
