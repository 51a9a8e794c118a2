// Package atomicfile replaces files whole: readers see the old content or the
// new one, never a part.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// prefix begins the names of files under construction.
const prefix = ".popefgen-"

// File is a file under construction: a temporary file in the folder of the one
// that it is to replace.
type File struct {
	*os.File
	path  string
	ended bool
	plain bool // it is the pipe or the device itself, which nothing can replace
}

// cleaned are the folders that this process has cleaned.
var cleaned sync.Map

// Create begins a file that is to be at path. Its permissions are those of the
// file that is there, or what the process's umask leaves of reading and writing
// for all. Before the first file in a folder, it removes what processes that were
// killed left there, as [Clean] does, where it can. A device or a pipe, as
// /dev/null is, is written to as it is.
func Create(path string) (*File, error) {
	st, err := os.Stat(path)
	there := err == nil
	if there && st.Mode()&(fs.ModeDevice|fs.ModeCharDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &File{File: f, path: path, plain: true}, nil
	}
	dir := filepath.Dir(path)
	if abs, err := filepath.Abs(dir); err == nil {
		if _, done := cleaned.LoadOrStore(abs, true); !done {
			_ = Clean(dir) // whoever may not remove them can write all the same
		}
	}
	perm, exists := fs.FileMode(0o666), false
	if there && st.Mode().IsRegular() {
		perm, exists = st.Mode().Perm(), true
	}
	for try := 0; ; try++ {
		name := filepath.Join(dir, fmt.Sprintf("%s%08x", prefix, rand.Uint32()))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, perm)
		switch {
		case errors.Is(err, fs.ErrExist) && try < 100:
			continue
		case err != nil:
			return nil, named(path, err)
		}
		t := &File{File: f, path: path}
		if exists { // whatever the umask: before there is anything in it
			err = f.Chmod(perm)
		}
		if err != nil {
			t.Abort()
			return nil, err
		}
		if !hold(f) { // Clean took it for one that was left
			t.Abort()
			continue
		}
		return t, nil
	}
}

// Commit closes the file and puts it in its place.
func (f *File) Commit() error {
	f.ended = true
	err := f.Close()
	if f.plain {
		return err
	}
	if st, e := os.Stat(f.path); err == nil && e == nil && st.IsDir() {
		err = &fs.PathError{Op: "write", Path: f.path, Err: errors.New("it is a folder, want the name of a file")}
	}
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		err = errors.Join(named(f.path, err), os.Remove(f.Name()))
	}
	return err
}

// Sync makes what was written survive a crash.
func (f *File) Sync() error {
	if f.plain {
		return nil // there is nothing that a crash could take
	}
	return named(f.path, f.File.Sync())
}

// named returns an error of the file system with the name that the caller gave:
// nobody knows the other one.
func named(path string, err error) error {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at):
		return &fs.PathError{Op: at.Op, Path: path, Err: at.Err}
	case errors.As(err, &link):
		return &fs.PathError{Op: "write", Path: path, Err: link.Err}
	}
	return err
}

// Abort removes the file, unless Commit was called.
func (f *File) Abort() {
	if !f.ended {
		f.ended = true
		f.Close()
		if !f.plain {
			os.Remove(f.Name())
		}
	}
}

// Write replaces the content of the file at path by what fill writes, see [Create]. If
// anything fails, the file is as it was.
func Write(path string, fill func(io.Writer) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := fill(f.File); err != nil {
		return err
	}
	return f.Commit()
}

// WriteBytes is Write of data.
func WriteBytes(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Clean removes what processes that were killed left under construction in a
// folder. Files that somebody is writing stay, where the system tells.
func Clean(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && e.Type().IsRegular() {
			if err := removeLeft(filepath.Join(dir, e.Name())); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
