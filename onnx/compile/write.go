package compile

import (
	"context"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// WriteFile writes the model as a PopEF file: metadata, weights, the executable,
// LZ4 compressed on demand, and its [Source]. The file appears whole or not at all.
func (r *Result) WriteFile(path string, compress bool) error {
	m, err := r.export()
	if err != nil {
		return err
	}
	return m.WriteFile(path, compress)
}

// Bytes returns the model as a PopEF file in memory.
func (r *Result) Bytes() ([]byte, error) {
	m, err := r.export()
	if err != nil {
		return nil, err
	}
	return m.Bytes()
}

// Model returns the compiled model, opened from memory under the given name.
func (r *Result) Model(name string) (*popef.Model, error) {
	return r.ModelContext(context.Background(), name)
}

// ModelContext is [Result.Model] with memory that counts on the budget of ctx.
func (r *Result) ModelContext(ctx context.Context, name string) (*popef.Model, error) {
	m, err := r.export()
	if err != nil {
		return nil, err
	}
	return m.Load(ctx, name)
}

// export returns the model as it is written, with what [Result.encode] made.
func (r *Result) export() (*export.Model, error) {
	m := r.encoded
	m.Metadata, m.Data, m.Joined = r.Metadata, r.Weights, r.Joined
	source, err := r.Source.encode()
	if err != nil {
		return nil, err
	}
	m.Blobs = []export.Blob{{Name: SourceBlob, Data: source}}
	switch {
	case r.Branches != nil:
		m.Blobs = append(m.Blobs, export.Blob{Name: family.BranchesBlob, Data: family.EncodeBranches(r.Branches)})
	case r.Family != nil:
		m.Blobs = append(m.Blobs, export.Blob{Name: family.BlobName, Data: r.Family.Encode()})
	}
	return &m, nil
}
