package gen

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/popefgen/popefgen/gen/emit"
	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/popef/contract"
)

// ErrForeign marks a refusal to touch a file that popefgen did not write.
var ErrForeign = errors.New("not written by popefgen")

// Write brings dir to hold exactly files, as far as popefgen is concerned: it
// writes those whose content differs, each through a temporary file and a
// rename, and removes Go files that begin with [emit.Header] and are not among files.
// It may be killed at any point: what is in dir then builds, and the next call
// removes temporary files that were left. It returns the base names of what it wrote or removed, sorted; nothing is
// written when nothing differs, which spares the build cache.
//
// A Go file without the header is never touched, nor is a contract.txt that does
// not begin like one: if one stands where a file must go, Write changes nothing
// and returns an error that wraps [ErrForeign]. A model copy (any other file) replaces an existing file only
// if a Go file with the header in dir already embeds that name; model copies
// that are no longer embedded stay.
func Write(dir string, files []File) (changed []string, err error) {
	stale, err := compare(dir, files)
	if err != nil {
		return nil, err
	}
	for _, s := range stale {
		if s.foreign {
			return nil, fmt.Errorf("writing generated code: %s exists and was %w; move it away or generate into another directory",
				filepath.Join(dir, s.name), ErrForeign)
		}
	}
	fail := func(err error) ([]string, error) {
		slices.Sort(changed)
		return changed, fmt.Errorf("writing generated code: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fail(err)
	}
	if err := atomicfile.Clean(dir); err != nil {
		return fail(err)
	}
	for _, s := range inSteps(stale) {
		path := filepath.Join(dir, s.name)
		if err := beforeStep(path); err != nil {
			return fail(err)
		}
		if s.want == nil {
			err = os.Remove(path)
		} else {
			err = atomicfile.WriteBytes(path, s.want.Data)
		}
		if err != nil {
			return fail(err)
		}
		if !slices.Contains(changed, s.name) {
			changed = append(changed, s.name)
		}
	}
	slices.Sort(changed)
	return changed, nil
}

// Check compares dir with files the way [Write] would and returns what Write
// would change as a unified diff, from what is in dir to what is wanted. An
// empty text means that dir is up to date. Files that are not text are
// reported by a line each.
func Check(dir string, files []File) (diff string, err error) {
	stale, err := compare(dir, files)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, s := range stale {
		path := filepath.ToSlash(filepath.Join(dir, s.name))
		from, to, new := path, path, []byte(nil)
		if !s.exists {
			from = os.DevNull
		}
		if s.want == nil {
			to = os.DevNull
		} else {
			new = s.want.Data
		}
		if !utf8.Valid(s.have) || !utf8.Valid(new) || filepath.Ext(s.name) != ".go" && s.name != contract.FileName {
			fmt.Fprintf(&b, "Binary files %s and %s differ\n", from, to)
			continue
		}
		text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
			A: lines(s.have), B: lines(new), FromFile: from, ToFile: to, Context: 3,
		})
		if err != nil {
			return "", fmt.Errorf("comparing %s: %w", path, err)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Stale returns the base names of the files in dir that [Write] would write or
// remove, sorted.
func Stale(dir string, files []File) (names []string, err error) {
	stale, err := compare(dir, files)
	for _, s := range stale {
		names = append(names, s.name)
	}
	return names, err
}

// difference is one file of a directory that is not as wanted.
type difference struct {
	name    string
	want    *File // nil: to be removed
	have    []byte
	exists  bool
	foreign bool // in the way, and not ours
}

// compare returns the differences between dir and files, sorted by name.
func compare(dir string, files []File) ([]difference, error) {
	wanted := map[string]bool{}
	for _, f := range files {
		if f.Name == "" || f.Name != filepath.Base(f.Name) || strings.HasPrefix(f.Name, ".") || strings.ContainsAny(f.Name, `/\`) {
			return nil, fmt.Errorf("generated file %q: want a plain file name", f.Name)
		}
		if wanted[f.Name] {
			return nil, fmt.Errorf("generated file %q: listed twice", f.Name)
		}
		wanted[f.Name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the package directory: %w", err)
	}
	var out []difference
	embedded := map[string]bool{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".go" || !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("the package directory: %w", err)
		}
		if !ours(data) {
			continue
		}
		for line := range bytes.Lines(data) {
			if name, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("//go:embed ")); ok {
				embedded[string(name)] = true
			}
		}
		if !wanted[e.Name()] {
			out = append(out, difference{name: e.Name(), have: data, exists: true})
		}
	}
	for i, f := range files {
		have, err := os.ReadFile(filepath.Join(dir, f.Name))
		exists := err == nil
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the package directory: %w", err)
		}
		isText := filepath.Ext(f.Name) == ".go" || f.Name == contract.FileName
		if exists && (bytes.Equal(have, f.Data) || isText && bytes.Equal(bytes.ReplaceAll(have, []byte("\r\n"), []byte("\n")), f.Data)) {
			continue // version control may have made its line ends those of Windows
		}
		d := difference{name: f.Name, want: &files[i], have: have, exists: exists}
		switch {
		case filepath.Ext(f.Name) == ".go":
			d.foreign = exists && !ours(have)
		case f.Name == contract.FileName:
			d.foreign = exists && !contract.IsFile(have)
		default:
			d.foreign = exists && !embedded[f.Name]
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b difference) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// ours reports whether data begins with the line [emit.Header].
func ours(data []byte) bool {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return string(bytes.TrimSuffix(line, []byte("\r"))) == emit.Header
}

// lines splits text after each newline, without an empty last line.
func lines(text []byte) []string {
	var out []string
	for line := range bytes.Lines(text) {
		out = append(out, string(line))
	}
	return out
}
