package popef

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes the file at path through a temporary file beside it, which
// takes its place once everything has been written. If fn or anything else
// fails, the temporary file is removed and a file that was there stays as it
// was. fn need not close the Writer.
func WriteFile(path string, fn func(*Writer) error, opts ...WriterOption) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	done := false
	defer func() { // also if fn panics
		if !done {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	w := NewWriter(named{f, path}, opts...)
	if err := fn(w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return f.Chmod(mode) },
		f.Sync, // else a crash may leave the new name with no content
		f.Close,
		func() error { return os.Rename(f.Name(), path) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	done = true
	return nil
}

// named makes messages speak of the file that is meant.
type named struct {
	*os.File
	path string
}

func (n named) Name() string { return n.path }
