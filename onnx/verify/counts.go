package verify

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/compile"
)

// Cut returns what a run gave of an output whose sizes data decides, without what is behind
// its counts, and the shape of that; outs are the bytes of all outputs and counts. Of an
// output of fixed size it returns all.
func Cut(p compile.Port, outs map[string][]byte) ([]int64, []byte, error) {
	data := outs[p.Name]
	if p.Counts == nil || int64(len(data)) != p.Type.Bytes() {
		return p.Type.Shape, data, nil
	}
	shape := slices.Clone(p.Type.Shape)
	for axis, name := range p.Counts {
		if name == "" {
			continue
		}
		n, err := countIn(outs[name], p.Name, name, axis, shape[axis])
		if err != nil {
			return nil, nil, err
		}
		shape[axis] = n
	}
	cut := graph.TensorType{DType: p.Type.DType, Shape: shape}
	out := make([]byte, 0, cut.Bytes())
	return shape, appendCut(out, data, p.Type.Shape, shape), nil
}

// appendCut appends the first elements along each axis.
func appendCut(out, data []byte, from, to []int64) []byte {
	if slices.Equal(from, to) {
		return append(out, data...)
	}
	row := len(data) / int(from[0])
	for i := range to[0] {
		out = appendCut(out, data[int(i)*row:][:row], from[1:], to[1:])
	}
	return out
}

// countIn reads a count of an output's axis, which has room for most.
func countIn(b []byte, output, name string, axis int, most int64) (int64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("output %q: its count %q has %d bytes, want 8", output, name, len(b))
	}
	n := int64(binary.LittleEndian.Uint64(b))
	if n < 0 || n > most {
		return 0, fmt.Errorf("output %q: its count %q is %d, want 0 to %d, the size of axis %d", output, name, n, most, axis)
	}
	return n, nil
}
