package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// WriteFile writes the model as a PopEF file: metadata, data, the executable,
// LZ4 compressed on demand, and the blobs. The file appears whole or not at all.
func (m *Model) WriteFile(path string, compress bool) error {
	return popef.WriteFile(path, func(w *popef.Writer) error { return m.write(w, compress) })
}

// Bytes returns the model as a PopEF file in memory.
func (m *Model) Bytes() ([]byte, error) {
	var mem memory
	w := popef.NewWriter(&mem)
	if err := m.write(w, false); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return mem.b, nil
}

// Load returns the model as a reader of its file sees it, opened from memory under the given name. The
// memory counts on the budget of ctx until it is closed.
func (m *Model) Load(ctx context.Context, name string) (*popef.Model, error) {
	size := int64(len(m.encoded))
	for i := range m.Data {
		size = budget.Add(size, int64(len(m.Data[i].Data)))
	}
	room := budget.From(ctx).Part(0)
	if err := room.Take(size, "the compiled model in memory"); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b, err := m.Bytes()
	if err != nil {
		room.Release()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	loaded, err := popef.LoadBytes(name, b)
	if err != nil {
		room.Release()
		return nil, err
	}
	runtime.AddCleanup(loaded, (*budget.Budget).Release, room)
	return loaded, nil
}

func (m *Model) write(w *popef.Writer, compress bool) error {
	transfers, err := m.transfers()
	if err != nil {
		return err
	}
	meta, plan := m.Metadata, []byte(nil)
	if m.Joined != nil {
		meta, plan = popef.JoinInputs(&m.Metadata, m.Joined)
	}
	if err := w.WriteMetadata(&meta); err != nil {
		return err
	}
	// A payload is aligned as long as everything before it is a multiple of 8
	// bytes long, so what may not be goes last.
	data := func(odd bool) error {
		for i := range m.Data {
			d := &m.Data[i]
			if (len(d.Data)%8 != 0) != odd {
				continue
			}
			if err := w.WriteTensor(d.Name, d.Info, d.Data); err != nil {
				return err
			}
		}
		return nil
	}
	if err := data(false); err != nil {
		return err
	}
	e, err := w.CreateExecutable(m.Metadata.Executable, compress)
	if err != nil {
		return err
	}
	if _, err := e.Write(m.encoded); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	if err := data(true); err != nil {
		return err
	}
	if plan != nil {
		if err := m.attach(w, popef.JoinedBlob, plan); err != nil {
			return err
		}
	}
	if transfers != nil {
		if err := m.attach(w, contract.TransfersBlob, transfers); err != nil {
			return err
		}
	}
	for i := range m.Blobs {
		if err := m.attach(w, m.Blobs[i].Name, m.Blobs[i].Data); err != nil {
			return err
		}
	}
	return nil
}

// attach writes an opaque blob of the executable.
func (m *Model) attach(w *popef.Writer, name string, data []byte) error {
	b, err := w.CreateOpaque(name, m.Metadata.Executable)
	if err != nil {
		return err
	}
	if _, err := b.Write(data); err != nil {
		return err
	}
	return b.Close()
}

// memory is an [io.WriteSeeker] over a growing slice.
type memory struct {
	b   []byte
	pos int
}

func (m *memory) Write(p []byte) (int, error) {
	if end := m.pos + len(p); end > len(m.b) {
		m.b = slices.Grow(m.b, end-len(m.b))[:end]
	}
	copy(m.b[m.pos:], p)
	m.pos += len(p)
	return len(p), nil
}

func (m *memory) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += int64(m.pos)
	case io.SeekEnd:
		offset += int64(len(m.b))
	}
	if offset < 0 || offset > int64(len(m.b)) {
		return 0, errors.New("seek outside the written part")
	}
	m.pos = int(offset)
	return offset, nil
}
