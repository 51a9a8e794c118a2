package nhwc

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/quant"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// The operators in this file never stand in a file. The engine puts them into
// its own copy of an executable where int8 activations are better kept in NHWC,
// with the channels of a pixel side by side: a tensor [N,C,spatial…] of I8 or
// U8 as [N,spatial…,⌈C/4⌉·4] of U8, so that four channels at a time can be
// multiplied where they lie. The bytes of a tensor of I8 have their
// highest bit flipped there, which keeps their order. Channels beyond C hold
// anything.

// Supported reports whether there are kernels for NHWC that are faster than
// those for NCHW: on processors with AVX512-VNNI.
func Supported() bool { return quant.Int8WayOf(tensor.Path) == quant.Int8ByVNNI }

// HasLookup reports whether there are kernels that look bytes up in a table
// faster than their functions can be computed.
func HasLookup() bool { return Supported() && vectorTables() }

// pixelBytes returns the bytes of a pixel of so many channels, a multiple of four.
func pixelBytes(channels int64) int64 {
	return (channels + quant.Int8Step - 1) / quant.Int8Step * quant.Int8Step
}

// Type returns the type in NHWC of a tensor of I8 or U8 of this shape in NCHW.
func Type(shape []int64) graph.TensorType {
	out := append([]int64{shape[0]}, shape[2:]...)
	return graph.TensorType{DType: graph.U8, Shape: append(out, pixelBytes(shape[1]))}
}

// planesOf returns the shape in NCHW of a tensor in NHWC of which so many
// channels count.
func planesOf(x graph.TensorType, channels int64) ([]int64, error) {
	n := x.Rank() - 1
	if x.DType != graph.U8 || n < 2 || n > 3 || x.Shape[n] != pixelBytes(channels) {
		return nil, fmt.Errorf("type is %v, want u8 with 3 or 4 dimensions, the last of %d: NHWC with %d channels", x, pixelBytes(channels), channels)
	}
	return append([]int64{x.Shape[0], channels}, x.Shape[1:n]...), nil
}

// byteType returns the type of bytes, of which the highest bit is flipped in
// NHWC if they are signed.
func byteType(signed bool) graph.DType {
	if signed {
		return graph.I8
	}
	return graph.U8
}

// ToNHWC converts x [N,C,spatial…] of I8 or U8, with one or two spatial
// axes, to NHWC.
type ToNHWC struct{}

// Kind returns "ToNHWC".
func (*ToNHWC) Kind() string { return "ToNHWC" }

// Infer implements [graph.Op].
func (*ToNHWC) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) != 1 || in[0].DType != graph.I8 && in[0].DType != graph.U8 || in[0].Rank() < 3 || in[0].Rank() > 4 {
		return nil, fmt.Errorf("operands are %v, want one of type i8 or u8 with 3 or 4 dimensions", in)
	}
	return []graph.TensorType{Type(in[0].Shape)}, nil
}

// FromNHWC converts a tensor in NHWC to [N,Channels,spatial…] of
// I8 or U8.
type FromNHWC struct {
	Channels int64
	Signed   bool
}

// Kind returns "FromNHWC".
func (*FromNHWC) Kind() string { return "FromNHWC" }

// Infer implements [graph.Op].
func (o *FromNHWC) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("%d operands, want 1", len(in))
	}
	shape, err := planesOf(in[0], o.Channels)
	if err != nil {
		return nil, err
	}
	return []graph.TensorType{{DType: byteType(o.Signed), Shape: shape}}, nil
}

// Conv is a [graph.IntegerConv] to bytes whose operand x, of I8 if
// Signed, and whose result are in NHWC. Weights are of I8 without a zero point
// or of U8 with the zero point 128. Either x has one group of channels, or
// groups of a multiple of four, or every channel is a group of its own with
// one output channel and windows of few lines: see [ConvFits].
type Conv struct {
	graph.IntegerConv
	Channels int64 // of x
	Signed   bool
}

// Kind returns "NHWCConv".
func (*Conv) Kind() string { return "NHWCConv" }

// Infer implements [graph.Op].
func (o *Conv) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) < 2 {
		return nil, fmt.Errorf("%d operands, want 2 or more", len(in))
	}
	shape, err := planesOf(in[0], o.Channels)
	if err != nil {
		return nil, fmt.Errorf("x: %w", err)
	}
	if o.To != graph.I8 && o.To != graph.U8 {
		return nil, fmt.Errorf("attribute To is %v, want i8 or u8", o.To)
	}
	out, err := o.IntegerConv.Infer(append([]graph.TensorType{{DType: byteType(o.Signed), Shape: shape}}, in[1:]...))
	if err != nil {
		return nil, err
	}
	return []graph.TensorType{Type(out[0].Shape)}, nil
}

// ConvFits reports whether there is a kernel on NHWC for a convolution
// of so many channels with weights of the given shape.
func ConvFits(o *graph.IntegerConv, channels int64, w []int64) bool {
	for _, p := range append(append([]int64{}, o.PadsBegin...), o.PadsEnd...) {
		if p < 0 {
			return false
		}
	}
	switch {
	case o.Group == 1:
		return true
	case w[1] == 1:
		return o.Group == channels && w[0] == channels && kernelOf(w, 0) <= depthLines
	}
	return w[1]%quant.Int8Step == 0
}

// kernelOf returns the lines (axis 0) or columns (axis 1) of a window.
func kernelOf(w []int64, axis int) int64 {
	if len(w) == 3 {
		return []int64{1, w[2]}[axis]
	}
	return w[2+axis]
}

// MaxPool is a [graph.MaxPool], without indices, on NHWC.
type MaxPool struct {
	graph.MaxPool
	Channels int64
}

// Kind returns "NHWCMaxPool".
func (*MaxPool) Kind() string { return "NHWCMaxPool" }

// Infer implements [graph.Op].
func (o *MaxPool) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("%d operands, want 1", len(in))
	}
	shape, err := planesOf(in[0], o.Channels)
	if err != nil {
		return nil, err
	}
	out, err := o.MaxPool.Infer([]graph.TensorType{{DType: graph.U8, Shape: shape}})
	if err != nil {
		return nil, err
	}
	return []graph.TensorType{Type(out[0].Shape)}, nil
}

// Binary adds or multiplies quantised tensors in NHWC, each with a scale and a
// zero point. Operands:
//
//	0 a
//	1 b, of a's shape or with one pixel for each image
//	2 a's scale, F32, one element
//	3 b's scale, F32, one element
//	4 scale of the result, F32, one element
//	5 a's zero point, one element; left out: 0
//	6 b's zero point, one element; left out: 0
//	7 zero point of the result, one element; left out: 0
//
// What comes out is, to the bit, what converting a and b to floats, computing
// Fn, limiting the result to Low and High if Bounded is set and converting
// it to bytes gives, for scales from 1e-9 to 1e9. Signed says of a, b and the
// result that their bytes are those of I8.
type Binary struct {
	Fn        graph.BinaryFn // Add or Mul
	Bounded   bool
	Low, High float64
	Signed    [3]bool
}

// Kind returns "NHWCBinary".
func (*Binary) Kind() string { return "NHWCBinary" }

// Infer implements [graph.Op].
func (o *Binary) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) < 5 || len(in) > 8 || in[0].DType != graph.U8 || in[1].DType != graph.U8 || in[0].Rank() < 3 ||
		!in[0].Equal(in[1]) && !slices.Equal(in[1].Shape, onePixel(in[0].Shape)) {
		return nil, fmt.Errorf("operands are %v, want two tensors in NHWC, three scales and up to three zero points", in)
	}
	for i, t := range in[2:] {
		want := graph.F32
		if i > 2 {
			if t.DType == graph.Invalid {
				continue
			}
			want = byteType(o.Signed[i-3])
		}
		if t.DType != want || t.Elements() != 1 {
			return nil, fmt.Errorf("operand %d is %v, want one element of type %v", 2+i, t, want)
		}
	}
	return []graph.TensorType{in[0]}, nil
}

// onePixel returns the shape of one pixel for each image.
func onePixel(pixels []int64) []int64 {
	s := slices.Repeat([]int64{1}, len(pixels))
	s[0], s[len(s)-1] = pixels[0], pixels[len(s)-1]
	return s
}

// Lookup applies a function of one byte by a lookup table. Operands: x in NHWC
// and a table of 256 bytes, U8.
type Lookup struct{}

// Kind returns "NHWCLookup".
func (*Lookup) Kind() string { return "NHWCLookup" }

// Infer implements [graph.Op].
func (*Lookup) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) != 2 || in[0].DType != graph.U8 || !in[1].Equal(tableType) {
		return nil, fmt.Errorf("operands are %v, want a tensor in NHWC and a table", in)
	}
	return in[:1], nil
}

var tableType = graph.TensorType{DType: graph.U8, Shape: []int64{256}}

// Concat concatenates the channels of tensors in NHWC, of which all but the last
// have a multiple of four, and applies a lookup table to each. Operands: what is joined, then as many
// tables of 256 bytes, U8, or left out, where bytes stay what they are.
type Concat struct{}

// Kind returns "NHWCConcat".
func (*Concat) Kind() string { return "NHWCConcat" }

// Infer implements [graph.Op].
func (*Concat) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	n := len(in) / 2
	if n == 0 || len(in)%2 != 0 || in[0].DType != graph.U8 || in[0].Rank() < 3 {
		return nil, fmt.Errorf("operands are %v, want tensors in NHWC and as many tables", in)
	}
	out := graph.TensorType{DType: graph.U8, Shape: slices.Clone(in[0].Shape)}
	last := len(out.Shape) - 1
	out.Shape[last] = 0
	for i, x := range in[:n] {
		if x.DType != graph.U8 || x.Rank() != last+1 || !slices.Equal(x.Shape[:last], out.Shape[:last]) {
			return nil, fmt.Errorf("operand %d is %v, want as many pixels as of %v", i, x, in[0])
		}
		if t := in[n+i]; t.DType != graph.Invalid && !t.Equal(tableType) {
			return nil, fmt.Errorf("operand %d is %v, want a table", n+i, t)
		}
		out.Shape[last] += x.Shape[last]
	}
	return []graph.TensorType{out}, nil
}
