package wire

import (
	"math/bits"

	"github.com/popefgen/popefgen/serve/oip"
)

// Answer reads a ModelInferResponse to a client of the model that spec describes: every output, once, into the memory of x.
func (p *Proto) Answer(segments [][]byte, spec *oip.Spec, x oip.Exchange) error {
	if err := p.scan(start(segments, "answer"), 4, 5, 0, 6); err != nil {
		return err
	}
	raw := len(p.raw) > 0
	if raw && len(p.raw) != len(p.tensors) {
		return oip.Errorf(oip.InvalidArgument, "answer of model '%s' has %d outputs and %d raw_output_contents, expected as many", spec.Name, len(p.tensors), len(p.raw))
	}
	given := uint64(0)
	for i := range p.tensors {
		if err := p.tensor(p.tensors[i], nil); err != nil {
			return err
		}
		index := find(spec.Outputs, p.name)
		if index < 0 {
			return oip.Errorf(oip.InvalidArgument, "answer of model '%s' has the output '%s', expected %s", spec.Name, clip(p.name), names(spec.Outputs))
		}
		t := tensorOf{"output", spec.Name, &spec.Outputs[index]}
		if given&(1<<index) != 0 {
			return t.wrong("is given twice")
		}
		given |= 1 << index
		if oip.ParseDataType(p.typ) != t.Type {
			return t.wrong("has the data-type '%s', expected '%s'", clip(p.typ), t.Type)
		}
		n, fits := elements(t.Tensor, p.shape)
		if !fits {
			return t.wrong("has the shape %s, expected %s", sizes(p.shape), Shape(t.Tensor))
		}
		if err := p.check(t, i, raw, int(n)*t.Type.Size()); err != nil {
			return err
		}
		dst, err := x.Take(index, p.shape)
		if err != nil {
			return err
		}
		if err := p.fill(t, i, raw, dst); err != nil {
			return err
		}
	}
	if n := bits.OnesCount64(given); n != len(spec.Outputs) {
		return oip.Errorf(oip.InvalidArgument, "answer of model '%s' has %d outputs, expected %s", spec.Name, n, names(spec.Outputs))
	}
	return nil
}

// MaxProto returns how many bytes a request to a model has at most: what its inputs need in the longer of their
// forms, and 64 KiB for all else.
func MaxProto(spec *oip.Spec) int64 {
	n := int64(64 << 10)
	for i := range spec.Inputs {
		n += maxContents(&spec.Inputs[i])
	}
	return n
}

// MaxProtoAnswer returns how many bytes an answer of a model has at most.
func MaxProtoAnswer(spec *oip.Spec) int64 {
	n := int64(64 << 10)
	for i := range spec.Outputs {
		n += maxContents(&spec.Outputs[i])
	}
	return n
}

// maxContents returns the bytes of a tensor, in the form in which it is longer: protobuf writes a negative integer in
// ten bytes, however small its type is.
func maxContents(t *oip.Tensor) int64 {
	size := t.Type.Size()
	switch t.Type {
	case oip.Int8, oip.Int16, oip.Int32, oip.Int64, oip.Uint64:
		size = 10
	case oip.Uint8:
		size = 2
	case oip.Uint16:
		size = 3
	case oip.Uint32:
		size = 5
	}
	return t.MaxElements() * int64(size)
}
