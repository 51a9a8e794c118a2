package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
)

// BFloat16 returns which streams of a model, by their handles, have elements of bfloat16. PopEF does not know that type: their anchors are U16, and the
// executable says what the bits are.
func BFloat16(ctx context.Context, m *popef.Model) (map[string]bool, error) {
	if !slices.ContainsFunc(m.Metadata.Anchors, func(a popef.Anchor) bool { return a.Info.DataType == popef.U16 }) {
		return nil, nil
	}
	data, err := m.ExecutableContext(ctx)
	if err != nil {
		return nil, err
	}
	exe, err := encoding.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("executable %q: %w", m.Metadata.Executable, err)
	}
	halves := map[string]bool{}
	for _, s := range exe.Streams {
		if s.Type.DType == graph.BF16 {
			halves[s.Handle] = true
		}
	}
	return halves, nil
}
