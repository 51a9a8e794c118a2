package compile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// WriteFile writes the model as a PopEF file: metadata, weights, the executable,
// LZ4 compressed on demand, and its [Source]. The file appears whole or not at all.
func (r *Result) WriteFile(path string, compress bool) error {
	return popef.WriteFile(path, func(w *popef.Writer) error { return r.write(w, compress) })
}

// Bytes returns the model as a PopEF file in memory.
func (r *Result) Bytes() ([]byte, error) {
	var m memory
	w := popef.NewWriter(&m)
	if err := r.write(w, false); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return m.b, nil
}

// Model returns the compiled model, opened from memory under the given name.
func (r *Result) Model(name string) (*popef.Model, error) {
	return r.ModelContext(context.Background(), name)
}

// ModelContext is [Result.Model] with memory that counts on the budget of ctx.
func (r *Result) ModelContext(ctx context.Context, name string) (*popef.Model, error) {
	size := int64(len(r.encoded))
	for _, w := range r.Weights {
		size = budget.Add(size, int64(len(w.Data)))
	}
	room := budget.From(ctx).Part(0)
	if err := room.Take(size, "the compiled model in memory"); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b, err := r.Bytes()
	if err != nil {
		room.Release()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m, err := popef.LoadBytes(name, b)
	if err != nil {
		room.Release()
		return nil, err
	}
	runtime.AddCleanup(m, (*budget.Budget).Release, room)
	return m, nil
}

func (r *Result) write(w *popef.Writer, compress bool) error {
	meta, plan := r.Metadata, []byte(nil)
	if r.Joined != nil {
		meta, plan = popef.JoinInputs(&r.Metadata, r.Joined)
	}
	if err := w.WriteMetadata(&meta); err != nil {
		return err
	}
	// A payload is aligned as long as everything before it is a multiple of 8
	// bytes long, so what may not be goes last.
	odd := func(w Weight) bool { return len(w.Data)%8 != 0 }
	for _, t := range r.Weights {
		if !odd(t) {
			if err := w.WriteTensor(t.Name, t.Info, t.Data); err != nil {
				return err
			}
		}
	}
	e, err := w.CreateExecutable(r.Metadata.Executable, compress)
	if err != nil {
		return err
	}
	if _, err := e.Write(r.encoded); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	for _, t := range r.Weights {
		if odd(t) {
			if err := w.WriteTensor(t.Name, t.Info, t.Data); err != nil {
				return err
			}
		}
	}
	if plan != nil {
		if err := r.attach(w, popef.JoinedBlob, plan); err != nil {
			return err
		}
	}
	data, err := r.Source.encode()
	if err != nil {
		return err
	}
	if err := r.attach(w, SourceBlob, data); err != nil {
		return err
	}
	switch {
	case r.Branches != nil:
		return r.attach(w, family.BranchesBlob, family.EncodeBranches(r.Branches))
	case r.Family != nil:
		return r.attach(w, family.BlobName, r.Family.Encode())
	}
	return nil
}

// attach writes an opaque blob of the executable.
func (r *Result) attach(w *popef.Writer, name string, data []byte) error {
	b, err := w.CreateOpaque(name, r.Metadata.Executable)
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
