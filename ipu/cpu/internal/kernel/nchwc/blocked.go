package nchwc

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// The operators in this file never stand in a file. The engine puts them into
// its own copy of an executable where activations are better kept in NCHWc: a
// tensor [N,C,spatial…] as [N,⌈C/Lanes⌉,spatial…,Lanes] of F32, so that a block of
// Lanes channels of one pixel is one vector. Elements of the last block beyond C
// hold anything. Operators on single elements take such tensors as they are.

// Lanes returns the c of NCHWc: how many channels a block has, the elements of a
// vector of this machine (16 with AVX-512, 8 with AVX2), or 0 where there are no
// kernels for NCHWc.
func Lanes() int64 {
	if tensor.Path == tensor.PathGo {
		return 0
	}
	return int64(tensor.Path.Lanes())
}

// ThroughPlanes reports whether the kernel of an operator on NCHWc converts
// its operand to NCHW and back, for want of one that does not.
func ThroughPlanes(k tensor.Kernel) bool {
	switch k.(type) {
	case *plainBlockedConv, *throughPlanes:
		return true
	}
	return false
}

// ToNCHWc converts x [N,C,spatial…] of F32 or F16, with one or two spatial
// axes, to NCHWc.
type ToNCHWc struct{ Lanes int64 }

// Kind returns "ToNCHWc".
func (*ToNCHWc) Kind() string { return "ToNCHWc" }

// Infer implements [graph.Op].
func (o *ToNCHWc) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) != 1 || in[0].DType != graph.F32 && in[0].DType != graph.F16 || in[0].Rank() < 3 || in[0].Rank() > 4 {
		return nil, fmt.Errorf("operands are %v, want one of type f32 or f16 with 3 or 4 dimensions", in)
	}
	return []graph.TensorType{nchwcType(in[0].Shape, o.Lanes)}, nil
}

// FromNCHWc converts a tensor in NCHWc with Channels channels to
// [N,Channels,spatial…] of type To, F32 or F16.
type FromNCHWc struct {
	Channels int64
	To       graph.DType
}

// Kind returns "FromNCHWc".
func (*FromNCHWc) Kind() string { return "FromNCHWc" }

// Infer implements [graph.Op].
func (o *FromNCHWc) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) != 1 {
		return nil, fmt.Errorf("%d operands, want 1", len(in))
	}
	shape, err := planarShape(in[0], o.Channels)
	if err != nil {
		return nil, err
	}
	return []graph.TensorType{{DType: o.To, Shape: shape}}, nil
}

// Conv is a [graph.Conv] with one or two spatial axes whose operand x,
// or result, or both, are in NCHWc. Operands: x, w [M,C/Group,…], b [M] or
// left out, and r or left out, of the result's type, which is added after b
// and before the bounds of the Conv apply. With Half all values are those of
// F16: w and b are F16, so are x, r and the result where they are not in
// NCHWc, and the sum with b is rounded to F16, as is that with r.
type Conv struct {
	graph.Conv
	Lanes    int64
	Channels int64 // of x
	In, Out  bool  // x is, the result and r are, in NCHWc
	Half     bool

	// Where x, or the result, is some rows of a larger image: the pixels from
	// one of its channels, or blocks, to the next. Else 0.
	XPlane, YPlane int64
}

// Kind returns "NCHWcConv".
func (*Conv) Kind() string { return "NCHWcConv" }

// Infer implements [graph.Op].
func (o *Conv) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) < 2 || len(in) > 4 {
		return nil, fmt.Errorf("%d operands, want 2 to 4", len(in))
	}
	x := in[0]
	if o.In {
		shape, err := planarShape(x, o.Channels)
		if err != nil {
			return nil, fmt.Errorf("x: %w", err)
		}
		x = graph.TensorType{DType: in[1].DType, Shape: shape}
	}
	out, err := o.Conv.Infer(append([]graph.TensorType{x}, in[1:min(len(in), 3)]...))
	if err != nil {
		return nil, err
	}
	if o.Out {
		out[0] = nchwcType(out[0].Shape, o.Lanes)
	}
	if len(in) == 4 && in[3].DType != graph.Invalid && !in[3].Equal(out[0]) {
		return nil, fmt.Errorf("r is %v, want %v like the result", in[3], out[0])
	}
	return out, nil
}

// Pool is a MaxPool without indices, or an AveragePool, on NCHWc.
type Pool struct{ Pool graph.Op }

// Kind returns "NCHWcPool".
func (*Pool) Kind() string { return "NCHWcPool" }

// Infer implements [graph.Op].
func (o *Pool) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	return inferNCHWc(o.Pool, in)
}

// Resize is a [graph.Resize] on NCHWc with the attributes of that on NCHW; it
// leaves channels alone.
type Resize struct{ Resize graph.Resize }

// Kind returns "NCHWcResize".
func (*Resize) Kind() string { return "NCHWcResize" }

// Infer implements [graph.Op].
func (o *Resize) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	resize := o.Resize
	if len(in) == 1 && in[0].Rank() > 3 && len(resize.Sizes) > 1 {
		// Of the last block all channels count here.
		resize.Sizes = slices.Clone(resize.Sizes)
		resize.Sizes[1] = in[0].Shape[1] * in[0].Shape[in[0].Rank()-1]
	}
	return inferNCHWc(&resize, in)
}

// inferNCHWc infers an operator on single channels for a tensor in NCHWc.
func inferNCHWc(op graph.Op, in []graph.TensorType) ([]graph.TensorType, error) {
	if len(in) != 1 || in[0].Rank() < 4 {
		return nil, fmt.Errorf("operands are %v, want one in NCHWc", in)
	}
	lanes := in[0].Shape[in[0].Rank()-1]
	shape, err := planarShape(in[0], in[0].Shape[1]*lanes)
	if err != nil {
		return nil, err
	}
	out, err := op.Infer([]graph.TensorType{{DType: graph.F32, Shape: shape}})
	if err != nil {
		return nil, err
	}
	return []graph.TensorType{nchwcType(out[0].Shape, lanes)}, nil
}

// nchwcType returns the type in NCHWc of a tensor of the given shape in NCHW.
func nchwcType(shape []int64, lanes int64) graph.TensorType {
	out := append([]int64{shape[0], (shape[1] + lanes - 1) / lanes}, shape[2:]...)
	return graph.TensorType{DType: graph.F32, Shape: append(out, lanes)}
}

// planarShape returns the shape in NCHW of a tensor in NCHWc of which so many
// channels count.
func planarShape(x graph.TensorType, channels int64) ([]int64, error) {
	n := x.Rank() - 1
	if x.DType != graph.F32 || n < 3 || n > 4 {
		return nil, fmt.Errorf("type is %v, want f32 with 4 or 5 dimensions: NCHWc", x)
	}
	if blocks := (channels + x.Shape[n] - 1) / x.Shape[n]; blocks != x.Shape[1] {
		return nil, fmt.Errorf("type is %v with %d blocks, want %d for %d channels", x, x.Shape[1], blocks, channels)
	}
	shape := append([]int64{}, x.Shape[:n]...)
	shape[1] = channels
	return shape, nil
}
