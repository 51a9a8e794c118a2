package verify

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// A function that jumps, such as s·(s == maxpool(s)), a comparison or a
// position, gives one of two values where rounding decides between them, and
// two right engines give different ones. Such an element is judged against what
// the model itself gives for inputs that are changed by rounding alone: it passes
// if one of those runs gives the reference value, within the tolerance. An element
// that no such run brings near the reference fails as ever.

// noisy runs a model so many times with each number of its floating-point
// inputs changed by one unit in the last place, up or down, and returns the
// outputs of every run.
func noisy(ctx context.Context, t *trial, o Options) ([]map[string][]byte, error) {
	var all []map[string][]byte
	for run := range o.Noise {
		random := rand.New(rand.NewPCG(uint64(run), 1))
		fed := make(map[string][]byte, len(t.fed))
		for _, p := range t.inputs {
			fed[p.Name] = rounded(p.Type.DType, t.fed[p.Name], random)
		}
		outs, err := o.Execute(ctx, t.model, fed)
		if err != nil {
			return nil, err
		}
		all = append(all, outs)
	}
	return all, nil
}

// rounded returns elements of type t, each finite number other than 0 changed
// by one unit in the last place. Elements that are not floats stay.
func rounded(t graph.DType, data []byte, random *rand.Rand) []byte {
	out := slices.Clone(data)
	size := t.Size()
	switch t {
	case graph.F16, graph.BF16, graph.F32, graph.F64:
	default:
		return out
	}
	le := binary.LittleEndian
	for i := 0; i < len(out); i += size {
		v := graph.Number(t, out[i:])
		if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		// The magnitude's neighbours are those of its bits; 0 and infinity are left
		// out.
		step := uint64(1)
		if random.IntN(2) == 0 {
			step = ^uint64(0)
		}
		switch size {
		case 2:
			le.PutUint16(out[i:], le.Uint16(out[i:])+uint16(step))
		case 4:
			le.PutUint32(out[i:], le.Uint32(out[i:])+uint32(step))
		default:
			le.PutUint64(out[i:], le.Uint64(out[i:])+step)
		}
		if w := graph.Number(t, out[i:]); w == 0 || math.IsInf(w, 0) {
			copy(out[i:i+size], data[i:i+size])
		}
	}
	return out
}
