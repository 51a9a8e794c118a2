package move

import (
	"cmp"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// unique sorts the numbers of rows by what is in them, made numbers that order as the elements
// do, and by where they are.
type unique struct {
	rows, width int
	sorted      bool
	keys        func(dst []uint64, x []byte)
}

func bindUnique(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	t := in[0]
	k := &unique{rows: int(t.Shape[0]), width: tensor.Elements(t.Shape[1:]), sorted: op.(*graph.Unique).Sorted}
	d := t.DType
	if d == graph.Bool {
		d = graph.U8
	}
	table := tensor.Typed[func([]uint64, []byte)]{
		I8: signedKeys[int8], U8: unsignedKeys[uint8], I16: signedKeys[int16], U16: unsignedKeys[uint16], I32: signedKeys[int32], U32: unsignedKeys[uint32],
		I64: signedKeys[int64], U64: unsignedKeys[uint64], F32: floatKeys[float32], F64: floatKeys[float64],
	}
	var ok bool
	if k.keys, ok = table.Of(d); !ok {
		return nil, tensor.NoKernel("different elements", t.DType)
	}
	return k, nil
}

func signedKeys[T tensor.Signed](dst []uint64, x []byte) {
	for i, v := range tensor.View[T](x) {
		dst[i] = uint64(int64(v)) ^ 1<<63
	}
}

func unsignedKeys[T tensor.Unsigned](dst []uint64, x []byte) {
	for i, v := range tensor.View[T](x) {
		dst[i] = uint64(v)
	}
}

// floatKeys makes all NaN equal and greatest, and both zeros equal.
func floatKeys[T tensor.Float](dst []uint64, x []byte) {
	for i, v := range tensor.View[T](x) {
		b := math.Float64bits(float64(v) + 0)
		switch {
		case v != v:
			b = math.MaxUint64
		case b>>63 != 0:
			b = ^b
		default:
			b |= 1 << 63
		}
		dst[i] = b
	}
}

// Scratch implements Kernel: for a key for each element, the order of the rows and of
// the groups of equal ones.
func (k *unique) Scratch() int { return 8 * (k.rows*k.width + 2*k.rows) }

// Run implements Kernel.
func (k *unique) Run(_ tensor.Pool, in, out [][]byte, scratch []byte) error {
	n := k.rows
	if c := tensor.Memory(in, 1); c != nil {
		n = int(max(0, min(tensor.View[int64](c)[0], int64(k.rows))))
	}
	room := tensor.View[int64](scratch)
	order, groups, keys := room[:n], room[k.rows:2*k.rows], tensor.View[uint64](tensor.RawBytes(room[2*k.rows:]))
	k.keys(keys, in[0])
	for i := range order {
		order[i] = int64(i)
	}
	row := func(i int64) []uint64 { return keys[int(i)*k.width : (int(i)+1)*k.width] }
	slices.SortFunc(order, func(a, b int64) int {
		if c := slices.Compare(row(a), row(b)); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	// A group is where its first row stands in order; rows become those of
	// their groups' first ones.
	different := 0
	for i, at := range order {
		if i == 0 || !slices.Equal(row(at), row(order[i-1])) {
			groups[different] = int64(i)
			different++
		}
	}
	groups = groups[:different]
	if !k.sorted {
		slices.SortFunc(groups, func(a, b int64) int { return cmp.Compare(order[a], order[b]) })
	}
	first, inverse, counts := tensor.View[int64](tensor.Memory(out, 0)), tensor.View[int64](tensor.Memory(out, 1)), tensor.View[int64](tensor.Memory(out, 2))
	for g, begin := range groups {
		end := int(begin) + 1
		for end < n && slices.Equal(row(order[end]), row(order[begin])) {
			end++
		}
		if first != nil {
			first[g] = order[begin]
		}
		if counts != nil {
			counts[g] = int64(end) - begin
		}
		if inverse != nil {
			for _, at := range order[begin:end] {
				inverse[at] = int64(g)
			}
		}
	}
	if first != nil {
		clear(first[different:])
	}
	if counts != nil {
		clear(counts[different:])
	}
	if inverse != nil {
		clear(inverse[n:])
	}
	if number := tensor.Memory(out, 3); number != nil {
		tensor.View[int64](number)[0] = int64(different)
	}
	return nil
}
