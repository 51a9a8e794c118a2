// Package atomicfile replaces files whole: readers see the old content or the
// new one, never a part.
package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Write gives the file at path the content that fill writes, through a
// temporary file in the same folder and a rename. If anything fails, the file
// is as it was.
func Write(path string, fill func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".popefgen-*")
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if err != nil {
			if !closed {
				err = errors.Join(err, f.Close())
			}
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	closed = true
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// WriteBytes is Write of data.
func WriteBytes(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}
