package popef

import (
	"os"

	"github.com/popefgen/popefgen/internal/atomicfile"
)

// WriteFile writes the file at path through a temporary file beside it, which
// takes its place once everything has been written. If fn or anything else
// fails, the temporary file is removed and a file that was there stays as it
// was. fn need not close the Writer.
func WriteFile(path string, fn func(*Writer) error, opts ...WriterOption) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err // which names the file, as those of f do
	}
	defer f.Abort() // also if fn panics
	w := NewWriter(named{f.File, path}, opts...)
	if err := fn(w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	// Without Sync a crash may leave the new name with no content.
	for _, step := range []func() error{f.Sync, f.Commit} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// named makes messages speak of the file that is meant.
type named struct {
	*os.File
	path string
}

func (n named) Name() string { return n.path }
