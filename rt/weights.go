package rt

import (
	"fmt"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// Weight is data for an input that gets the same at every transfer.
type Weight struct {
	Anchor string // name or stream handle
	Data   []byte // of the size of one transfer; must not change as long as it is connected
	// Info is the type and shape of Data, which must be those of the input; nil if only its size is known.
	Info *popef.TensorInfo
}

// WeightOf is the Weight of a generated tensor.
func WeightOf[T any](anchor string, t *T) Weight { return Weight{Anchor: anchor, Data: view.Bytes(t)} }

// FileWeights returns the data that a model's files carry for its weights, for
// UpdateWeights of a session of another model whose weights have the same names
// and sizes. It stays valid until m is closed.
func FileWeights(m *popef.Model) ([]Weight, error) {
	var out []Weight
	for _, a := range contract.Of(m).Anchors {
		if a.Type != popef.Input || !a.HasData || a.Role == contract.Unused {
			continue
		}
		if _, ok := m.Feed(a.Name); ok {
			continue
		}
		data, err := m.ReadTensor(a.Name)
		if err != nil {
			return nil, callerr.Subject{Model: callerr.ModelName(m)}.Errorf("read weights", fmt.Errorf("anchor %q: %w", a.Name, err))
		}
		out = append(out, Weight{Anchor: a.Handle, Data: data})
	}
	return out, nil
}
