package outputs

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/popef"
)

// expected is an output that a case stores.
type expected struct {
	info popef.TensorInfo
	data []byte
}

// sized returns the size of m that a case is of.
func (s *Set) sized(ctx context.Context, name string, m *Model) (*Model, error) {
	z, err := npy.OpenArchive(s.path(name))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	shapes := map[string][]int64{}
	for i, p := range m.Inputs {
		entry, err := entryOf("input", m.Inputs, i)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(z.Names(), entry) {
			continue // who reads it says so
		}
		a, err := z.Array(entry, 0)
		if err != nil {
			return nil, err
		}
		shapes[p.Anchor] = a.Shape
	}
	one, err := m.Sized(ctx, shapes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(name), err)
	}
	return one, nil
}

// counted returns the type that an output of which data decides a length has in a
// case; info is the most that it may have.
func counted(z *npy.Archive, entry string, info popef.TensorInfo) (popef.TensorInfo, error) {
	a, err := z.Array(entry, 0)
	if err != nil {
		return info, err
	}
	if len(a.Shape) != len(info.Shape) {
		return info, nil // reading it says what is wrong
	}
	for i, n := range a.Shape {
		if n > info.Shape[i] {
			return info, nil
		}
	}
	info.Shape = a.Shape
	return info, nil
}
