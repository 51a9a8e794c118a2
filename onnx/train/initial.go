package train

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/onnx"
)

// scheme is how an initial weight is drawn.
type scheme struct {
	kind  schemeKind
	bound float64 // of a uniform one; the number of a filled one
}

type schemeKind uint8

const (
	keep    schemeKind = iota // the model's value
	filled                    // one number everywhere
	uniform                   // between -bound and bound
	normal                    // mean 0, deviation 1
)

// initial draws initial weights.
func (t *trainer) initial() error {
	if t.Init == nil {
		return nil
	}
	for _, i := range t.trained {
		w := &t.low.Weights[i]
		typ := t.exe.Tensors[w.Tensor].Type
		s := t.schemeOf(w.Initializer, typ.Shape, map[string]bool{})
		if s.kind == keep {
			t.result.Kept = append(t.result.Kept, w.Name)
			continue
		}
		w.Data = s.draw(typ, *t.Init, w.Initializer)
	}
	if kept := t.result.Kept; len(kept) > 0 {
		t.result.Warnings = append(t.result.Warnings, fmt.Sprintf("the initial weights %s are those of the model: nothing says how to draw them", list(kept)))
	}
	return nil
}

// schemeOf returns how a value that the nodes use as that name is drawn: by the first of its uses that says it. What
// only moves its elements is looked through; seen are the names on the way, which graphs side by side may have in common.
func (t *trainer) schemeOf(name string, shape []int64, seen map[string]bool) scheme {
	if seen[name] {
		return scheme{}
	}
	seen[name] = true
	for _, u := range t.consumed[name] {
		if s := byUse(u, shape); s.kind != keep {
			return s
		}
		to, moved := moved(u, shape)
		if to == nil {
			continue
		}
		if s := t.schemeOf(to.Outputs[0], moved, seen); s.kind != keep {
			return s
		}
	}
	return scheme{}
}

// moved returns the node of a use that gives the value in another form, and the shape that it has then.
func moved(u consumer, shape []int64) (*onnx.Node, []int64) {
	if u.operand != 0 || len(u.node.Outputs) == 0 {
		return nil, nil
	}
	switch u.node.OpType {
	case "Identity", "Cast", "Dropout":
		return u.node, shape
	case "Transpose":
		out := slices.Clone(shape)
		slices.Reverse(out)
		for _, a := range u.node.Attributes {
			if a.Name == "perm" && len(a.Ints) == len(shape) {
				for i, p := range a.Ints {
					if p < 0 || p >= int64(len(shape)) {
						return nil, nil
					}
					out[i] = shape[p]
				}
			}
		}
		return u.node, out
	case "Unsqueeze", "Squeeze", "Reshape":
		// A bias or a scale is drawn without its shape, a factor of a product with two axes of it.
		return u.node, shape
	}
	return nil, nil
}

// byUse returns how the value of one use is drawn.
func byUse(u consumer, shape []int64) scheme {
	attribute := func(name string) int64 {
		for _, a := range u.node.Attributes {
			if a.Name == name {
				return a.Int
			}
		}
		return 0
	}
	rank := len(shape)
	fan := func(axis int) scheme {
		if rank < 2 {
			return scheme{}
		}
		return byFan(shape[axis])
	}
	zeros, ones := scheme{filled, 0}, scheme{filled, 1}
	switch op, i := u.node.OpType, u.operand; op {
	case "Conv", "ConvTranspose":
		switch {
		case i == 1 && rank >= 2:
			n := int64(1)
			for _, d := range shape[1:] {
				n *= d
			}
			return byFan(n)
		case i == 2:
			return zeros
		}
	case "Gemm":
		switch {
		case i == 0: // columns are added up
			return fan(1 - int(min(max(attribute("transA"), 0), 1)))
		case i == 1:
			return fan(int(min(max(attribute("transB"), 0), 1)))
		case i == 2:
			return zeros
		}
	case "MatMul", "FusedMatMul":
		if i == 0 {
			return fan(rank - 1)
		}
		return fan(rank - 2)
	case "LSTM", "GRU", "RNN":
		switch {
		case i == 1 || i == 2:
			return byFan(attribute("hidden_size"))
		case i == 3 || op == "LSTM" && i == 7:
			return zeros
		}
	case "Gather":
		if i == 0 && rank == 2 {
			return scheme{kind: normal}
		}
	case "LayerNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization", "RMSNormalization", "SimplifiedLayerNormalization":
		switch i {
		case 1:
			return ones
		case 2:
			return zeros
		}
	case "SkipLayerNormalization":
		switch i {
		case 2:
			return ones
		case 3, 4:
			return zeros
		}
	case "PRelu":
		if i == 1 {
			return scheme{filled, 0.25}
		}
	case "Add", "Sub":
		return zeros
	case "Mul", "Div":
		return ones
	}
	return scheme{}
}

// byFan is PyTorch's scheme of layers: uniform between ±1/√n, n being the products that an element of the result is the sum of.
func byFan(n int64) scheme {
	if n < 1 {
		return scheme{}
	}
	return scheme{uniform, 1 / math.Sqrt(float64(n))}
}

// draw returns the elements of a weight. They depend on the seed and on the weight's name, so that another weight more or less leaves
// them as they are.
func (s scheme) draw(t graph.TensorType, seed uint64, name string) []byte {
	h := fnv.New64a()
	h.Write([]byte(name))
	random := rand.New(rand.NewPCG(seed, h.Sum64()))
	data := make([]byte, 0, t.Bytes())
	for range t.Elements() {
		v := s.bound
		switch s.kind {
		case uniform:
			v = (2*random.Float64() - 1) * s.bound
		case normal:
			v = random.NormFloat64()
		}
		switch t.DType {
		case graph.F64:
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
		case graph.F16:
			data = binary.LittleEndian.AppendUint16(data, uint16(num.Float16From64(v)))
		case graph.BF16:
			data = binary.LittleEndian.AppendUint16(data, uint16(num.BFloat16From64(v)))
		default:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
		}
	}
	return data
}
