package dynamic

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/golden/outputs"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/serve/oip"
)

// GoldensOf returns the folder of the goldens of a model's file, "" if there is none: testdata/golden/NAME beside it,
// NAME being the file's name without its ending, or testdata/golden if no other model lies beside it.
func GoldensOf(path string) string {
	all := filepath.Join(filepath.Dir(path), "testdata", "golden")
	own := filepath.Join(all, baseName(path))
	if _, err := outputs.Open(own); !errors.Is(err, outputs.ErrNoGoldens) {
		return own
	}
	var models []string
	for _, ending := range []string{"*.popef", "*.onnx"} {
		found, _ := filepath.Glob(filepath.Join(escape(filepath.Dir(path)), ending))
		models = append(models, found...)
	}
	if _, err := outputs.Open(all); errors.Is(err, outputs.ErrNoGoldens) || len(models) > 1 {
		return ""
	}
	return all
}

// Warm runs the model before clients do: on the inputs of the goldens in a folder, and fails unless the answers are those
// that are stored there, or, if goldens is "", once on zeros.
func (m *Model) Warm(ctx context.Context, goldens string) error {
	if goldens == "" || m.shape.rt.Iterations > 1 && m.shape.spec.Samples > 0 {
		return m.warmZeros(ctx)
	}
	set, err := outputs.Open(goldens)
	if err != nil {
		return err
	}
	w := &warming{model: m, call: m.NewCall().(*call)}
	all, err := w.sized(ctx, nil)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(slices.Concat(m.shape.spec.Inputs, m.shape.spec.Outputs), func(t oip.Tensor) bool { return t.Open() }) {
		all.Sized = w.sized
	}
	r, err := set.Verify(ctx, all)
	if err != nil {
		return fmt.Errorf("%s: its goldens: %w", m.shape.spec.Name, err)
	}
	if !r.OK() {
		return fmt.Errorf("%s: its answers are not those of the goldens in %s:\n%v", m.shape.spec.Name, goldens, r)
	}
	return nil
}

// warmZeros makes one request of the smallest size. That a model refuses zeros, some do, is no mistake.
func (m *Model) warmZeros(ctx context.Context) error {
	c := m.NewCall()
	for i := range m.shape.ins {
		mem, err := c.Input(i, m.shape.ins[i].least)
		if err != nil {
			return err
		}
		clear(mem)
	}
	err := c.Run(ctx)
	var known *oip.Error
	if errors.As(err, &known) && known.Code == oip.InvalidArgument {
		return nil
	}
	return err
}

// warming is a model as package outputs runs it.
type warming struct {
	model *Model
	call  *call
}

// sized returns the model with memory for inputs of these shapes, by name; of those that are not there, of their largest.
func (w *warming) sized(_ context.Context, shapes map[string][]int64) (*outputs.Model, error) {
	s := w.model.shape
	to := &outputs.Model{}
	for i := range s.spec.Inputs {
		t := &s.spec.Inputs[i]
		shape, ok := shapes[t.Name]
		if !ok {
			shape = t.Shape
			if t.Open() {
				shape = t.Max
			}
		}
		fits := len(shape) == len(t.Shape)
		for k := 0; fits && k < len(shape); k++ {
			fits = shape[k] == t.Shape[k] || t.Shape[k] < 0 && shape[k] >= 0 && shape[k] <= t.Max[k]
		}
		if !fits {
			return nil, fmt.Errorf("input %q: found %v, want %v", t.Name, shape, t.Shape)
		}
		mem, err := w.call.Input(i, shape)
		if err != nil {
			return nil, err
		}
		to.Inputs = append(to.Inputs, outputs.Port{Anchor: t.Name, Info: popef.TensorInfo{DataType: s.ins[i].elemType, Shape: slices.Clone(shape)}, Data: [][]byte{mem}})
	}
	for i := range s.spec.Outputs {
		t := &s.spec.Outputs[i]
		shape := t.Shape
		if t.Open() {
			shape = t.Max
		}
		to.Outputs = append(to.Outputs, outputs.Port{Anchor: t.Name, Info: popef.TensorInfo{DataType: s.outs[i].elemType, Shape: slices.Clone(shape)}, Counted: t.Open()})
	}
	to.Run = func(ctx context.Context) error {
		if err := w.call.Run(ctx); err != nil {
			return err
		}
		for i := range to.Outputs {
			data, shape := w.call.Output(i)
			to.Outputs[i].Data, to.Outputs[i].Info.Shape = [][]byte{data}, slices.Clone(shape)
		}
		return nil
	}
	return to, nil
}

// escape makes a folder's name a pattern of itself.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}
