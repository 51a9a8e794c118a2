package popef

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Reader gathers the blobs of one file or several and links them into models.
// Adding is for one goroutine; what a Reader returns can be used by many.
type Reader struct {
	limits  Limits
	sources []*source
	blobs   []*Blob
	warn    warnings
	linked  *linked // nil until Models, and again after adding
}

// ReaderOption changes how a Reader reads.
type ReaderOption func(*Reader)

// WithLimits replaces the limits that guard against hostile or broken files.
func WithLimits(l Limits) ReaderOption {
	return func(r *Reader) { r.limits = l.withDefaults() }
}

// NewReader returns a Reader without files.
func NewReader(opts ...ReaderOption) *Reader {
	r := &Reader{limits: Limits{}.withDefaults()}
	for _, o := range opts {
		o(r)
	}
	return r
}

// AddFile adds the file at path. Where the platform can map files, payloads
// are views of the mapping; elsewhere they are read when asked for. The file
// must not be truncated while the Reader is open: touching a mapped page that
// is gone kills the process. Replacing it by renaming is harmless.
func (r *Reader) AddFile(path string) error {
	return r.AddFileContext(context.Background(), path)
}

// AddFileContext is [Reader.AddFile] until ctx is done, whose error it then returns.
func (r *Reader) AddFileContext(ctx context.Context, path string) error {
	return r.addFile(ctx, path, false)
}

// addFile adds the file at path, or a copy of it in memory, until ctx is done.
func (r *Reader) addFile(ctx context.Context, path string, private bool) error {
	src, err := fileSource(path)
	if err == nil && private {
		src, err = copySource(ctx, src)
	}
	if err != nil {
		return err
	}
	return r.add(ctx, src)
}

// AddReaderAt adds a file of size bytes that ra reads; name is for messages.
// Only headers and info messages are read now. ra must stay usable, also by
// several goroutines, until the Reader is closed.
func (r *Reader) AddReaderAt(name string, ra io.ReaderAt, size int64) error {
	if size < 0 {
		return fmt.Errorf("%s: negative size %d", name, size)
	}
	return r.add(context.Background(), &source{name: name, size: size, r: ra})
}

// AddBytes adds a file that is in memory; name is for messages. Payloads are
// views of b, which must not change.
func (r *Reader) AddBytes(name string, b []byte) error {
	return r.add(context.Background(), bytesSource(name, b))
}

// add scans a source and takes it over; on error the Reader is as before.
func (r *Reader) add(ctx context.Context, src *source) error {
	blobs, warn, err := scan(ctx, src, r.limits)
	if err != nil {
		src.Close()
		return err
	}
	for i, b := range blobs {
		b.order = len(r.blobs) + i
	}
	r.sources = append(r.sources, src)
	r.blobs = append(r.blobs, blobs...)
	r.warn.join(warn)
	r.linked = nil
	return nil
}

// Blobs returns every blob, in the order of adding and of the file. Blobs of
// unknown kind are among them.
func (r *Reader) Blobs() []*Blob { return r.blobs }

// Warnings returns what was odd about the files, and after Models about how
// their blobs fit together.
func (r *Reader) Warnings() []Warning {
	w := r.warn
	w.list = w.list[:len(w.list):len(w.list)]
	if r.linked != nil {
		w.join(r.linked.warn)
	}
	return w.all()
}

// Models links the blobs into models, in the order of their metadata. It
// returns all that is wrong at once: an executable without a name or of
// another's name ([ErrExecutableName]), metadata whose executable is missing
// ([ErrMissingExecutable]) or described twice ([ErrDuplicateMetadata]), an
// anchor with both tensor and feed data ([ErrAmbiguousData]), data whose type
// or shape is not its anchor's ([ErrMismatch]) or that is too short
// ([ErrShortData]). No metadata means no models, which is no error here.
//
// The models share the Reader's files and are usable until it is closed.
func (r *Reader) Models() ([]*Model, error) { return r.link(context.Background()) }

// link is [Reader.Models] until ctx is done.
func (r *Reader) link(ctx context.Context) ([]*Model, error) {
	if r.linked == nil {
		l := link(ctx, r)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%s: link its blobs: %w", r.fileList(), err)
		}
		r.linked = l
	}
	return r.linked.models, r.linked.err
}

// one returns the only model.
func (r *Reader) one(ctx context.Context) (*Model, error) {
	models, err := r.link(ctx)
	if err != nil {
		return nil, err
	}
	switch len(models) {
	case 1:
		return models[0], nil
	case 0:
		return nil, &Error{
			Location: Location{File: r.fileList(), Blob: -1},
			Err:      errorf(ErrNoModel, "no metadata among %d blobs, hence no model", len(r.blobs)),
			Hint:     "add the file that holds the metadata and the executable",
		}
	}
	return nil, &Error{
		Location: models[1].metadata.Location(),
		Err:      errorf(ErrSeveralModels, "second of %d models (executables %q and %q), one is wanted", len(models), shorten(models[0].Metadata.Executable), shorten(models[1].Metadata.Executable)),
		Hint:     "give the files of one model; a Reader lists all that there are",
	}
}

// fileList returns the names of all files for a message.
func (r *Reader) fileList() string {
	switch len(r.sources) {
	case 0:
		return "no files"
	case 1:
		return r.sources[0].name
	}
	return fmt.Sprintf("%s and %d more", r.sources[0].name, len(r.sources)-1)
}

// Close releases all files. Everything that views them is invalid afterwards.
func (r *Reader) Close() error {
	var errs []error
	for _, s := range r.sources {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Load reads the one model that the files hold together. Closing the model
// closes them.
func Load(paths ...string) (*Model, error) { return LoadContext(context.Background(), paths...) }

// LoadContext is [Load] until ctx is done, whose error it then returns.
func LoadContext(ctx context.Context, paths ...string) (*Model, error) {
	return load(ctx, paths, false)
}

// LoadCopy is [Load] of copies of the files, in memory that is the process's own:
// whatever becomes of the files, the model stays as it is. It takes that memory
// and the time to read it all, which Load does not.
func LoadCopy(paths ...string) (*Model, error) {
	return LoadCopyContext(context.Background(), paths...)
}

// LoadCopyContext is [LoadCopy] until ctx is done, whose error it then returns.
func LoadCopyContext(ctx context.Context, paths ...string) (*Model, error) {
	return load(ctx, paths, true)
}

// load reads the one model of some files, or of copies of them.
func load(ctx context.Context, paths []string, private bool) (*Model, error) {
	r := NewReader()
	for _, p := range paths {
		if err := r.addFile(ctx, p, private); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r.own(ctx)
}

// LoadBytes reads the one model in b, a whole file; name is for messages.
// The model's data are views of b, which must not change.
func LoadBytes(name string, b []byte) (*Model, error) {
	r := NewReader()
	if err := r.AddBytes(name, b); err != nil {
		return nil, err
	}
	return r.own(context.Background())
}

// own returns the only model, which takes the Reader over.
func (r *Reader) own(ctx context.Context) (*Model, error) {
	m, err := r.one(ctx)
	if err != nil {
		r.Close()
		return nil, err
	}
	m.owned = r
	return m, nil
}
