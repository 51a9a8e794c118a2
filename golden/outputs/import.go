package outputs

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef"
)

// Stored is a tensor of somebody else's data set.
type Stored struct {
	Name string // what the model calls it
	Read func(info popef.TensorInfo) ([]byte, error)
}

// Match returns the data of ports, all of them inputs or all outputs as kind
// says, from what is stored under their names, exactly or as a file name can
// have them. Nothing may be missing or left.
func Match(kind string, ports []Port, stored []Stored) ([][]byte, error) {
	of := make([]int, len(ports)) // indices of stored
	named, used := 0, make([]bool, len(stored))
	for i, p := range ports {
		of[i] = slices.IndexFunc(stored, func(s Stored) bool { return s.Name == p.Anchor })
		if of[i] < 0 {
			of[i] = slices.IndexFunc(stored, func(s Stored) bool { return s.Name != "" && s.Name == npy.FileName(p.Anchor, "") })
		}
		if of[i] >= 0 && !used[of[i]] { // one tensor is for one port
			named++
			used[of[i]] = true
		}
	}
	if named < len(ports) || slices.Contains(used, false) {
		return nil, fmt.Errorf("found %ss %s, want %s: each by its name, or all of them without the model's names and numbered in its order", kind, storedNames(stored), portNames(ports))
	}
	data := make([][]byte, len(ports))
	for i, p := range ports {
		var err error
		if data[i], err = stored[of[i]].Read(p.Info); err != nil {
			return nil, fmt.Errorf("%s %q: %w", kind, p.Anchor, err)
		}
	}
	return data, nil
}

func storedNames(stored []Stored) string {
	names := make([]string, len(stored))
	for i, s := range stored {
		names[i] = s.Name
	}
	return printable.Quoted(names)
}

func portNames(ports []Port) string {
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = p.Anchor
	}
	return printable.Quoted(names)
}

// Import adds a case to the goldens in dir as [Record] does, without running m:
// with the inputs and outputs given, in m's order, as [Match] returns them. An
// output that has no tolerance yet gets the one in tolerances, or one that suits
// numbers of another program.
func Import(dir, name string, m *Model, inputs, outputs [][]byte, tolerances map[string]Tolerance) error {
	return record(dir, name, m, tolerances, foreignPrecisions, func() error {
		for i := range m.Inputs {
			m.Inputs[i].fill(inputs[i])
		}
		for i := range m.Outputs {
			m.Outputs[i].fill(outputs[i])
		}
		return nil
	})
}
