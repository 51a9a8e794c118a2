package graph

import "fmt"

// MaxPool is ONNX's MaxPool over any number of spatial axes of x [N,C,…].
// Results: the maxima and, optionally, their I64 indices into the flattened
// operand (row-major, or column-major over the spatial axes).
type MaxPool struct {
	Kernel, Strides, Dilations []int64
	PadsBegin, PadsEnd         []int64
	Ceil                       bool // round the output size up
	ColumnMajor                bool
}

// AveragePool is ONNX's AveragePool over any number of spatial axes of
// x [N,C,…]. Positions added by Ceil beyond the padding never count.
type AveragePool struct {
	Kernel, Strides, Dilations []int64
	PadsBegin, PadsEnd         []int64
	Ceil                       bool
	CountIncludePad            bool
}

// windows describes how a kernel slides over the spatial axes.
type windows struct {
	Kernel, Strides, Dilations []int64
	PadsBegin, PadsEnd         []int64
	Ceil                       bool
}

// output returns the number of windows on each spatial axis by ONNX's
// formula: (size + padding - span)/stride + 1, the quotient rounded down, or
// up with Ceil, where the last window is dropped if it would start beyond the
// input and its padding at the beginning.
func (p *windows) output(size []int64) ([]int64, error) {
	n := len(size)
	err := firstError(
		perAxis("Kernel", p.Kernel, n, 1), perAxis("Strides", p.Strides, n, 1), perAxis("Dilations", p.Dilations, n, 1),
		perAxis("PadsBegin", p.PadsBegin, n, 0), perAxis("PadsEnd", p.PadsEnd, n, 0))
	if err != nil {
		return nil, err
	}
	out := make([]int64, n)
	for i := range out {
		span := satAdd(satMul(p.Kernel[i]-1, p.Dilations[i]), 1)
		padded := size[i] + p.PadsBegin[i] + p.PadsEnd[i]
		if span > padded {
			return nil, fmt.Errorf("spatial axis %d: a kernel that spans %d is larger than the input's %d with padding %d and %d",
				i, span, size[i], p.PadsBegin[i], p.PadsEnd[i])
		}
		rest, stride := padded-span, p.Strides[i]
		out[i] = rest/stride + 1
		if p.Ceil {
			if rest%stride != 0 {
				out[i]++
			}
			if (out[i]-1)*stride >= size[i]+p.PadsBegin[i] {
				out[i]--
			}
		}
	}
	return out, nil
}

// pool checks the operand of a pooling operator and returns its result.
func (p *windows) pool(x TensorType) (TensorType, error) {
	if err := wantRank("x", x, 3); err != nil {
		return TensorType{}, err
	}
	spatial, err := p.output(x.Shape[2:])
	if err != nil {
		return TensorType{}, err
	}
	return TensorType{x.DType, append([]int64{x.Shape[0], x.Shape[1]}, spatial...)}, nil
}

// Kind returns "MaxPool".
func (*MaxPool) Kind() string { return "MaxPool" }

// Infer implements [Op].
func (o *MaxPool) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if err := numeric.want("x", in[0]); err != nil {
		return nil, err
	}
	y, err := (&windows{o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd, o.Ceil}).pool(in[0])
	if err != nil {
		return nil, err
	}
	return results(y, TensorType{I64, y.Shape})
}

// Kind returns "AveragePool".
func (*AveragePool) Kind() string { return "AveragePool" }

// Infer implements [Op].
func (o *AveragePool) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if err := floats.want("x", in[0]); err != nil {
		return nil, err
	}
	y, err := (&windows{o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd, o.Ceil}).pool(in[0])
	if err != nil {
		return nil, err
	}
	return results(y)
}
