package npy

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// maxEntries bounds the arrays of an archive.
const maxEntries = 1 << 16

// Archive is an open .npz file: a zip archive of .npy arrays. Arrays are read
// one at a time, and no more of one than the caller expects.
type Archive struct {
	path    string
	z       *zip.ReadCloser
	names   []string
	entries map[string]*zip.File
}

// OpenArchive opens the archive at path, which the caller closes. Errors begin
// with the path.
func OpenArchive(path string) (*Archive, error) {
	// A pipe would be waited for.
	if st, err := os.Stat(path); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file (%v)", path, st.Mode())
	}
	z, err := zip.OpenReader(path)
	if err != nil {
		return nil, fmt.Errorf("%s: it is no .npz archive, or one that is cut short: %w; copy or write it again", path, err)
	}
	a := &Archive{path: path, z: z, entries: make(map[string]*zip.File, len(z.File))}
	if len(z.File) > maxEntries {
		return nil, errors.Join(fmt.Errorf("%s: %d entries, at most %d are read", path, len(z.File), maxEntries), z.Close())
	}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok {
			return nil, errors.Join(fmt.Errorf("%s: entry %q is no array: want names that end in .npy, as numpy.savez writes them", path, f.Name), z.Close())
		}
		if a.entries[name] != nil {
			return nil, errors.Join(fmt.Errorf("%s: two arrays are called %q", path, name), z.Close())
		}
		a.entries[name] = f
		a.names = append(a.names, name)
	}
	return a, nil
}

// Names returns the arrays' names, without .npy, in the order of the file.
func (a *Archive) Names() []string { return a.names }

// Close closes the file.
func (a *Archive) Close() error { return a.z.Close() }

// Read reads the array that must have the type and shape of info, see [Read].
// Errors begin with the path and what.
func (a *Archive) Read(name, what string, info popef.TensorInfo) ([]byte, error) {
	f := a.entries[name]
	if f == nil {
		return nil, fmt.Errorf("%s: there is no array %q", a.path, name)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", a.path, what, err)
	}
	defer r.Close()
	return Read(r, a.path+": "+what, info, 1)
}

// Array reads an array of any type and shape with at most limit bytes of data;
// of one that is larger it reads a byte more.
func (a *Archive) Array(name string, limit int64) (*Array, error) {
	f := a.entries[name]
	if f == nil {
		return nil, fmt.Errorf("%s: there is no array %q", a.path, name)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", a.path, name, err)
	}
	defer r.Close()
	array, err := ReadArray(r, limit)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", a.path, name, err)
	}
	return array, nil
}
