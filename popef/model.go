package popef

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/popefgen/popefgen/internal/budget"
)

// Model is one compiled model: its metadata, its executable, the data that the
// files carry for its anchors, and what frameworks attached to it. It can be
// used by several goroutines.
type Model struct {
	// Metadata describes the model. It is the Reader's own: don't change it. Where the file moves
	// several inputs as one ([Model.Joined]) each of them is an anchor, unlike in the file.
	Metadata Metadata

	metadata   *Blob
	executable *Blob
	tensors    []*Blob
	feeds      []*Feed
	opaques    []*Blob
	joined     []JoinedInput
	byName     map[string]*Blob // tensors and feeds
	values     map[string]int64 // bytes of data of a tensor
	feedByName map[string]*Feed
	warn       []Warning
	limits     Limits
	files      []string
	owned      *Reader // closed with the model
}

// CheckUnchanged returns [ErrChanged] if one of the model's files was written over
// since it was opened, as far as size and time tell. It takes a system call a
// file. A file that another took the place of, by a rename, is as it was.
func (m *Model) CheckUnchanged() error {
	done := map[*source]bool{}
	for _, blobs := range [][]*Blob{{m.metadata, m.executable}, m.tensors, m.opaques} {
		for _, b := range blobs {
			if b == nil || done[b.src] {
				continue
			}
			done[b.src] = true
			if err := b.src.unchanged(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Executable returns the executable, decompressed. It is a view of the file
// where that is mapped or in memory and the executable is not compressed;
// otherwise it is read or decompressed anew at every call.
func (m *Model) Executable() ([]byte, error) { return m.ExecutableContext(context.Background()) }

// ExecutableContext is [Model.Executable] until ctx is done, whose error it then
// returns.
func (m *Model) ExecutableContext(ctx context.Context) ([]byte, error) {
	return m.executable.executable(ctx, m.limits)
}

// ExecutableBlob returns the blob that holds the executable as it stands in
// the file.
func (m *Model) ExecutableBlob() *Blob { return m.executable }

// MetadataBlob returns the blob that holds the metadata.
func (m *Model) MetadataBlob() *Blob { return m.metadata }

// Data returns the tensor or feed blob with the data for the anchors called
// name, without reading it.
func (m *Model) Data(name string) (*Blob, bool) {
	b, ok := m.byName[name]
	return b, ok
}

// TensorData returns the data of the tensor called name and whether the files
// carry any: [TensorInfo.SizeInBytes] bytes, or as many times that as the
// anchor's remote buffer repeats where the file has them. It is a view where
// the file is mapped or in memory. Where the data has to be read and can't be,
// it is nil; [Model.ReadTensor] tells why.
func (m *Model) TensorData(name string) ([]byte, bool) {
	b, ok := m.byName[name]
	if !ok || b.Kind != TensorBlob {
		return nil, false
	}
	p, err := b.first(m.values[name])
	if err != nil {
		return nil, true
	}
	return p, true
}

// ReadTensor is [Model.TensorData] with an error: [ErrNoData] if the files
// carry no such tensor, or why it can't be read.
func (m *Model) ReadTensor(name string) ([]byte, error) {
	b, ok := m.byName[name]
	if !ok || b.Kind != TensorBlob {
		return nil, errorf(ErrNoData, "the model's files carry no data for the tensor %q", shorten(name))
	}
	return b.first(m.values[name])
}

// ReleaseTensor releases the memory of the data of the tensor called name, which
// nobody will read for some time: where the file is mapped, it takes up none until
// somebody does read. Views of it stay valid.
func (m *Model) ReleaseTensor(name string) {
	if b, ok := m.byName[name]; ok && b.Kind == TensorBlob {
		b.src.release(b.PayloadOffset, m.values[name])
	}
}

// ReleaseExecutable is [Model.ReleaseTensor] for a part of a view that
// [Model.Executable] returned; it does nothing with a part of anything else.
func (m *Model) ReleaseExecutable(part []byte) {
	b := m.executable
	view, ok := b.View()
	if !ok || len(part) == 0 {
		return
	}
	at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(view))))
	if at >= 0 && at+int64(len(part)) <= int64(len(view)) {
		b.src.release(b.PayloadOffset+at, int64(len(part)))
	}
}

// OpenTensor returns a reader of the data of the tensor called name, which
// copies nothing and works until the model is closed.
func (m *Model) OpenTensor(name string) (*io.SectionReader, bool) {
	b, ok := m.byName[name]
	if !ok || b.Kind != TensorBlob {
		return nil, false
	}
	return io.NewSectionReader(b.Open(), 0, m.values[name]), true
}

// Tensors returns the tensor blobs of the model's anchors, in the order of the
// files.
func (m *Model) Tensors() []*Blob { return m.tensors }

// Feed returns the feed of the anchors called name.
func (m *Model) Feed(name string) (*Feed, bool) {
	f, ok := m.feedByName[name]
	return f, ok
}

// Feeds returns the feeds of the model's anchors, in the order of the files.
func (m *Model) Feeds() []*Feed { return m.feeds }

// Opaques returns the opaque blobs of the model's executable, in the order of
// the files.
func (m *Model) Opaques() []*Blob { return m.opaques }

// Warnings returns what was odd about the files and how they fit together.
func (m *Model) Warnings() []Warning { return m.warn }

// Files returns the names of all files that were read, in order.
func (m *Model) Files() []string { return m.files }

// Close releases the files of a model that [Load] or [LoadBytes] returned.
// Everything that views them is invalid afterwards. A model of
// [Reader.Models] is released by its Reader instead.
func (m *Model) Close() error {
	if m.owned == nil {
		return nil
	}
	return m.owned.Close()
}

// Feed is the data for one anchor over several steps: tensors back to back.
type Feed struct {
	Blob *Blob // where it lies

	size int64 // bytes of one tensor
}

// Name returns the name that the feed shares with its anchor.
func (f *Feed) Name() string { return f.Blob.Name }

// Info returns shape and element type of one tensor.
func (f *Feed) Info() TensorInfo { return f.Blob.Info }

// Len returns the number of tensors.
func (f *Feed) Len() int { return int(f.Blob.NumTensors) }

// Tensor returns the data of the i-th tensor: a view where the file is mapped
// or in memory, else a copy.
func (f *Feed) Tensor(i int) ([]byte, error) {
	if i < 0 || i >= f.Len() {
		return nil, &Error{Location: f.Blob.Location(), Err: fmt.Errorf("tensor %d of a feed of %d", i, f.Len())}
	}
	p, err := f.Blob.src.read(f.Blob.PayloadOffset+int64(i)*f.size, f.size)
	if err != nil {
		return nil, &Error{Location: f.Blob.payloadLocation(), Err: fmt.Errorf("tensor %d: %w", i, err)}
	}
	return p, nil
}

// executable returns the payload of an executable blob, decompressed.
func (b *Blob) executable(ctx context.Context, limits Limits) ([]byte, error) {
	codec, err := b.Codec()
	if err != nil {
		return nil, err
	}
	if codec == Raw {
		return b.Bytes()
	}
	p, err := decompress(ctx, codec, b.Open(), b.PayloadSize, b.UncompressedSize, limits.Executable)
	if err != nil {
		hint := ""
		switch {
		case errors.Is(err, budget.ErrExceeded), ctx.Err() != nil: // it says what to do
		case errors.Is(err, ErrLimit):
			hint = "raise Limits.Executable if the file is to be trusted"
		case codec == XZ || codec == UnknownCodec:
			hint = "write the file again without compression; Blob.Open reads the bytes as they are"
		}
		return nil, &Error{Location: b.payloadLocation(), Err: err, Hint: hint}
	}
	return p, nil
}

// Select returns the model as one that runs these main programs and no others:
// anchors that only other programs move mean nothing to who runs it. It has no opaque
// blobs, which may speak of all programs, and lives until m is closed; its own Close
// does nothing.
func (m *Model) Select(main ...uint32) *Model {
	one := *m
	one.Metadata.ProgramFlow.Main = main
	one.opaques, one.owned = nil, nil
	return &one
}
