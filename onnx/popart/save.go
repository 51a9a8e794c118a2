package popart

import (
	"fmt"

	"github.com/popefgen/popefgen/popef"
)

// ExecutableOption says what SaveExecutable writes.
type ExecutableOption func(*bool)

// WithVariables makes SaveExecutable write the values of weights, states and the optimizer too, so that the file is complete.
func WithVariables() ExecutableOption { return func(with *bool) { *with = true } }

// SaveExecutable writes the session's model as a PopEF file, of which popefgen generate makes a package. Without WithVariables it has no data; SaveVariables writes that to a second file. Values are
// those of the host: WeightsToHost fetches them, in a training session. The file appears whole or not at all.
func (s *session) SaveExecutable(path string, options ...ExecutableOption) error {
	return s.locked("save the executable", func() error {
		with := false
		for _, o := range options {
			if o != nil {
				o(&with)
			}
		}
		var all []data
		if with {
			all = s.values()
		}
		return popef.WriteFile(path, func(w *popef.Writer) error { return writeModel(w, s.model, all) })
	})
}

// SaveVariables writes what SaveExecutable leaves out without WithVariables, as a PopEF file of tensors. popef.Load reads both files as one model. The error wraps ErrTensor if there are none.
func (s *session) SaveVariables(path string) error {
	return s.locked("save the variables", func() error {
		if len(s.host) == 0 {
			return wrong(ErrTensor, "the model has no weights: what SaveExecutable writes is complete")
		}
		return popef.WriteFile(path, func(w *popef.Writer) error {
			return writeData(w, s.values(), func(data) bool { return true })
		})
	})
}

// data is what a file carries for an anchor.
type data struct {
	name string
	info popef.TensorInfo
	data []byte
}

// values returns the host's values, in the order of their anchors.
func (s *session) values() []data {
	all := dataOf(s.model)
	for i := range all {
		all[i].data = s.host[all[i].name].data
	}
	return all
}

// dataOf returns what the model's file carries, in the order of the anchors.
func dataOf(m *popef.Model) (all []data) {
	found := map[string]bool{}
	for i := range m.Metadata.Anchors {
		a := &m.Metadata.Anchors[i]
		if b, ok := m.TensorData(a.Name); ok && a.Type == popef.Input && !found[a.Name] {
			found[a.Name] = true
			all = append(all, data{a.Name, a.Info, b})
		}
	}
	return all
}

// writeModel writes a model with other data. What may not be a multiple of 8 bytes long goes last: a payload is aligned as long as what is before it is. What the cache of compiled models keeps besides is left out.
func writeModel(w *popef.Writer, m *popef.Model, all []data) error {
	if err := w.WriteMetadata(m.MetadataBlob().Metadata); err != nil {
		return err
	}
	if err := writeData(w, all, func(d data) bool { return len(d.data)%8 == 0 }); err != nil {
		return err
	}
	code, err := m.Executable()
	if err != nil {
		return err
	}
	e, err := w.CreateExecutable(m.Metadata.Executable, false)
	if err != nil {
		return err
	}
	if _, err := e.Write(code); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	if err := writeData(w, all, func(d data) bool { return len(d.data)%8 != 0 }); err != nil {
		return err
	}
	for _, o := range m.Opaques() {
		if o.Name == cacheBlob {
			continue
		}
		b, err := o.Bytes()
		if err != nil {
			return err
		}
		if err := writeOpaque(w, o.Name, m.Metadata.Executable, b); err != nil {
			return err
		}
	}
	return nil
}

// writeOpaque writes an opaque blob of an executable.
func writeOpaque(w *popef.Writer, name, executable string, b []byte) error {
	to, err := w.CreateOpaque(name, executable)
	if err != nil {
		return err
	}
	if _, err := to.Write(b); err != nil {
		return err
	}
	return to.Close()
}

// writeData writes the data that which names.
func writeData(w *popef.Writer, all []data, which func(data) bool) error {
	for _, d := range all {
		if !which(d) {
			continue
		}
		if err := w.WriteTensor(d.name, d.info, d.data); err != nil {
			return fmt.Errorf("%q: %w", d.name, err)
		}
	}
	return nil
}
