package graph

import "fmt"

// ConvTranspose is ONNX's ConvTranspose over 1 to 3 spatial axes, the adjoint
// of [Conv]. Operands: x [N,C,…], w [C,M/Group,…], and b [M] or left out. All
// attribute lists have one number per spatial axis. Element i of x goes with
// element k of the kernel to element i·Strides+k·Dilations-PadsBegin of the
// result, which has Output elements on each spatial axis; what falls outside
// of them is dropped.
type ConvTranspose struct {
	Strides, Dilations []int64
	PadsBegin          []int64 // may be negative
	Output             []int64
	Group              int64
}

// DeformConv is ONNX's DeformConv over 2 spatial axes. Operands: x [N,C,H,W],
// w [M,C/Group,kH,kW], offset [N,OffsetGroup·kH·kW·2,oH,oW] with pairs of a
// vertical and a horizontal distance, b [M] or left out, and mask
// [N,OffsetGroup·kH·kW,oH,oW] or left out. What lies outside of x is zero.
type DeformConv struct {
	Strides, Dilations []int64
	PadsBegin, PadsEnd []int64
	Group, OffsetGroup int64
}

// Col2Im is ONNX's Col2Im: it adds up the columns of x [N,C·∏Block,L], each a
// block of an image, to images [N,C,Image…].
type Col2Im struct {
	Image, Block       []int64
	Strides, Dilations []int64
	PadsBegin, PadsEnd []int64
}

// Kind returns "ConvTranspose".
func (*ConvTranspose) Kind() string { return "ConvTranspose" }

// MostReach is the longest distance at which elements of a transposed convolution's
// operand may land, so that positions stay far from the ends of an int64.
const MostReach = 1 << 50

// Infer implements [Op].
func (o *ConvTranspose) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "w", "b?")
	if err != nil {
		return nil, err
	}
	x, w, b := in[0], in[1], in[2]
	if err := firstError(floats.want("x", x), sameType("w", w, x), sameType("b", b, x)); err != nil {
		return nil, err
	}
	if x.Rank() < 3 || x.Rank() > 5 {
		return nil, fmt.Errorf("x is %v, want 3 to 5 dimensions (batch, channels and 1 to 3 spatial axes)", x)
	}
	if w.Rank() != x.Rank() {
		return nil, fmt.Errorf("w is %v, want %d dimensions like x of type %v", w, x.Rank(), x)
	}
	c := x.Shape[1]
	if o.Group < 1 || c%o.Group != 0 {
		return nil, fmt.Errorf("attribute Group is %d, want a number that divides the %d channels of x", o.Group, c)
	}
	if w.Shape[0] != c {
		return nil, fmt.Errorf("w is %v, want %d channels in dimension 0 like x of type %v", w, c, x)
	}
	m := satMul(w.Shape[1], o.Group)
	n := x.Rank() - 2
	err = firstError(wantShape("b", b, m),
		perAxis("Strides", o.Strides, n, 1), perAxis("Dilations", o.Dilations, n, 1),
		perAxis("PadsBegin", o.PadsBegin, n, 1-MaxTensorBytes), perAxis("Output", o.Output, n, 0))
	if err != nil {
		return nil, err
	}
	for i := range n {
		reach := satAdd(satMul(max(x.Shape[2+i]-1, 0), o.Strides[i]), satMul(max(w.Shape[2+i]-1, 0), o.Dilations[i]))
		if reach >= MostReach {
			return nil, fmt.Errorf("spatial axis %d: strides of %d and dilations of %d spread %d elements and a kernel of %d too far apart",
				i, o.Strides[i], o.Dilations[i], x.Shape[2+i], w.Shape[2+i])
		}
	}
	return results(TensorType{x.DType, append([]int64{x.Shape[0], m}, o.Output...)})
}

// Kind returns "DeformConv".
func (*DeformConv) Kind() string { return "DeformConv" }

// Infer implements [Op].
func (o *DeformConv) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "w", "offset", "b?", "mask?")
	if err != nil {
		return nil, err
	}
	x, w, offset, b, mask := in[0], in[1], in[2], in[3], in[4]
	out, err := (&Conv{Strides: o.Strides, Dilations: o.Dilations, PadsBegin: o.PadsBegin, PadsEnd: o.PadsEnd, Group: o.Group}).Infer([]TensorType{x, w, b})
	if err != nil {
		return nil, err
	}
	if x.Rank() != 4 {
		return nil, fmt.Errorf("x is %v, want 4 dimensions (batch, channels and 2 spatial axes)", x)
	}
	if o.OffsetGroup < 1 || x.Shape[1]%o.OffsetGroup != 0 {
		return nil, fmt.Errorf("attribute OffsetGroup is %d, want a number that divides the %d channels of x", o.OffsetGroup, x.Shape[1])
	}
	points := satMul(o.OffsetGroup, satMul(w.Shape[2], w.Shape[3]))
	y := out[0].Shape
	err = firstError(
		sameType("offset", offset, x), wantShape("offset", offset, x.Shape[0], satMul(points, 2), y[2], y[3]),
		sameType("mask", mask, x), wantShape("mask", mask, x.Shape[0], points, y[2], y[3]))
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Kind returns "Col2Im".
func (*Col2Im) Kind() string { return "Col2Im" }

// Infer implements [Op].
func (o *Col2Im) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	if err := numeric.want("x", x); err != nil {
		return nil, err
	}
	if x.Rank() != 3 {
		return nil, fmt.Errorf("x is %v, want 3 dimensions: batch, elements of a block, blocks", x)
	}
	n := len(o.Image)
	if n == 0 || n > MaxRank-2 {
		return nil, fmt.Errorf("attribute Image has %d numbers, want 1 to %d", n, MaxRank-2)
	}
	if err := perAxis("Image", o.Image, n, 1); err != nil {
		return nil, err
	}
	count, err := (&windows{
		Kernel: o.Block, Strides: o.Strides, Dilations: o.Dilations, PadsBegin: o.PadsBegin, PadsEnd: o.PadsEnd,
	}).output(o.Image)
	if err != nil {
		return nil, err
	}
	blocks, block := int64(1), int64(1)
	for i := range n {
		blocks, block = satMul(blocks, count[i]), satMul(block, o.Block[i])
	}
	if x.Shape[2] != blocks {
		return nil, fmt.Errorf("x is %v, want %d blocks in dimension 2, as many as fit into an image %s", x, blocks, ShapeString(o.Image))
	}
	if x.Shape[1]%block != 0 {
		return nil, fmt.Errorf("x is %v, want a multiple of %d in dimension 1, the elements of a block %s", x, block, ShapeString(o.Block))
	}
	return results(TensorType{x.DType, append([]int64{x.Shape[0], x.Shape[1] / block}, o.Image...)})
}
