// Package repository finds models in files and folders, and keeps a server's models as they are there: it opens what is
// new or changed beside what serves, and hands it over once it is ready. It knows neither what a
// model is nor what serves it.
package repository

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Found is a version of a model as it lies on disk.
type Found struct {
	Name    string
	Version string   // the number of its folder, "1" of a file without one
	Paths   []string // of its files: several .popef make one model
	Root    int      // index in [Options.Roots]
	Err     error    // why it can not be opened, for people; nil if that is to be tried

	stamp string // of all files: it changes when they do
}

// endings are those of models.
var endings = []string{".popef", ".onnx"}

func isModel(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains(endings, strings.ToLower(filepath.Ext(name)))
}

// BaseName returns what a model's file is called, without folder and ending.
func BaseName(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// Scan lists the models of a file or folder, by name. A file is a model of its own name. In a folder are files, and folders
// that are called as their model: with its files in them, or a folder for each version, which is a
// number: the newest of them is the model, or all are. What begins with a dot is none. Links that lead out of a folder are refused, each as the
// model that it would be.
func Scan(r Root) ([]Found, error) {
	root := r.Path
	st, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		f := Found{Name: cmp.Or(r.Name, BaseName(root)), Version: "1", Paths: []string{root}}
		f.look("")
		return []Found{f}, nil
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var out []Found
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case isDir(path, e):
			if err := within(real, path); err != nil {
				out = append(out, Found{Name: e.Name(), Version: "1", Paths: []string{path}, Err: err, stamp: err.Error()})
			} else {
				out = append(out, folder(real, path, r.All)...)
			}
		case isModel(e.Name()):
			f := Found{Name: BaseName(e.Name()), Version: "1", Paths: []string{path}}
			f.look(real)
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b Found) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(out); i++ {
		if a, b := &out[i-1], &out[i]; a.Name == b.Name && a.Version == b.Version {
			return nil, fmt.Errorf("%s: the model %q is there twice: %s and %s; remove one", root, a.Name, a.Paths[0], b.Paths[0])
		}
	}
	return out, nil
}

// isDir reports whether an entry is a folder, or a link to one.
func isDir(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// folder returns the model of a folder, in its newest version or in all, if there is one in it.
func folder(real, dir string, all bool) []Found {
	name := filepath.Base(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []Found{{Name: name, Version: "1", Paths: []string{dir}, Err: err, stamp: err.Error()}}
	}
	var versions []int64
	for _, e := range entries {
		if n, ok := versionOf(e.Name()); ok && isDir(filepath.Join(dir, e.Name()), e) {
			versions = append(versions, n)
		}
	}
	if len(versions) == 0 {
		f := inside(real, dir, Found{Name: name, Version: "1"}, entries)
		if len(f.Paths) == 0 {
			return nil // a folder of something else, such as testdata
		}
		return []Found{f}
	}
	slices.Sort(versions)
	if !all {
		versions = versions[len(versions)-1:]
	}
	var out []Found
	for _, n := range versions {
		f := Found{Name: name, Version: strconv.FormatInt(n, 10)}
		at := filepath.Join(dir, f.Version)
		entries, err := os.ReadDir(at)
		if f = inside(real, at, f, entries); len(f.Paths) == 0 {
			if f.Paths, f.Err = []string{at}, err; err == nil {
				f.Err = fmt.Errorf("%s: there is no .popef or .onnx file in it", at)
			}
			f.stamp = f.Err.Error()
		}
		out = append(out, f)
	}
	return out
}

// inside gives f the files of a folder.
func inside(real, dir string, f Found, entries []fs.DirEntry) Found {
	for _, e := range entries {
		if isModel(e.Name()) {
			f.Paths = append(f.Paths, filepath.Join(dir, e.Name()))
		}
	}
	f.look(real)
	return f
}

// versionOf returns the number that a folder of a version is called.
func versionOf(name string) (int64, bool) {
	n, err := strconv.ParseInt(name, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == name
}

// look reads what tells the state of the files from others. real is the folder that they have to be in, "" for any.
func (f *Found) look(real string) {
	var stamp strings.Builder
	var errs []error
	for _, path := range f.Paths {
		if real != "" {
			if err := within(real, path); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		st, err := os.Stat(path)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !st.Mode().IsRegular():
			errs = append(errs, fmt.Errorf("%s: it is no regular file, want a model", path))
		default:
			fmt.Fprintf(&stamp, "%s %d %d %s\n", path, st.Size(), st.ModTime().UnixNano(), identity(st))
		}
	}
	if f.Err = errors.Join(errs...); f.Err != nil {
		stamp.WriteString(f.Err.Error())
	}
	f.stamp = stamp.String()
}

// within returns an error if a path leads out of the folder real.
func within(real, path string) error {
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(real, at)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return fmt.Errorf("%s: it is a link to %s, outside of the folder that is served; put the file into the folder", path, at)
	}
	return nil
}
