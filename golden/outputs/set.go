package outputs

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef"
)

// Manifest is the name of the file with the tolerances, which marks a folder
// of goldens.
const Manifest = "golden.json"

// format is the first field of a manifest.
const format = "popefgen golden 1"

// Set is a folder of goldens.
type Set struct {
	Dir string
	// Tolerances are those of the outputs, by anchor.
	Tolerances map[string]Tolerance
}

// manifestFile is a manifest as it stands in its file.
type manifestFile struct {
	Format  string               `json:"format"`
	Outputs map[string]Tolerance `json:"outputs"`
}

// Open opens the goldens in dir. It fails with [ErrNoGoldens] if there are
// none.
func Open(dir string) (*Set, error) {
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return nil, fmt.Errorf("%s is a file, want a folder of goldens, which popefgen golden record writes", dir)
	}
	path := filepath.Join(dir, Manifest)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w (popefgen golden record MODEL -o %s records some)", dir, ErrNoGoldens, dir)
	}
	if err != nil {
		return nil, err
	}
	var f manifestFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Format != format {
		return nil, fmt.Errorf("%s: found format %q, want %q", path, f.Format, format)
	}
	return &Set{Dir: dir, Tolerances: f.Outputs}, nil
}

// save writes the manifest.
func (s *Set) save() error {
	data, err := json.MarshalIndent(manifestFile{Format: format, Outputs: s.Tolerances}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(s.Dir, Manifest), []byte(printable.String(string(data))+"\n"))
}

// Cases returns the names of the cases, sorted.
func (s *Set) Cases() ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".npz"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (s *Set) path(name string) string { return filepath.Join(s.Dir, name+".npz") }

// Record runs m on what its inputs hold and adds the case to the goldens in
// dir, which are begun if there are none. An output that has no tolerance yet
// gets the one in tolerances, or one that suits its type and values. A case of
// the name is replaced.
func Record(ctx context.Context, dir, name string, m *Model, tolerances map[string]Tolerance) error {
	return record(dir, name, m, tolerances, precisions, func() error {
		if err := m.Run(ctx); err != nil {
			return fmt.Errorf("case %s: %w", name, err)
		}
		return nil
	})
}

// record adds the case that fill puts into m's memory.
func record(dir, name string, m *Model, tolerances map[string]Tolerance, precisions map[popef.DataType]Tolerance, fill func() error) error {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return fmt.Errorf("case %q: want a plain file name", name)
	}
	s, err := Open(dir)
	if errors.Is(err, ErrNoGoldens) {
		s, err = &Set{Dir: dir, Tolerances: map[string]Tolerance{}}, nil
	}
	if err != nil {
		return err
	}
	if err := distinctEntries(m); err != nil {
		return fmt.Errorf("case %s: %w", name, err)
	}
	if err := fill(); err != nil {
		return err
	}
	for _, p := range m.Outputs {
		given, ok := tolerances[p.Anchor]
		if _, has := s.Tolerances[p.Anchor]; ok {
			s.Tolerances[p.Anchor] = given
		} else if !has {
			s.Tolerances[p.Anchor] = suit(precisions, p.Info, p.bytes())
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := s.write(name, m); err != nil {
		return err
	}
	return s.save()
}

// write stores what the inputs and outputs of m hold as a case.
func (s *Set) write(name string, m *Model) error {
	return atomicfile.Write(s.path(name), func(w io.Writer) error {
		z := zip.NewWriter(w)
		for _, group := range []struct {
			folder string
			ports  []Port
		}{{"input", m.Inputs}, {"output", m.Outputs}} {
			for i, p := range group.ports {
				entry, err := entryOf(group.folder, group.ports, i)
				if err != nil {
					return err
				}
				// Without a time, so that the same arrays make the same file.
				f, err := z.CreateHeader(&zip.FileHeader{Name: entry + ".npy", Method: zip.Deflate})
				if err != nil {
					return err
				}
				if err := npy.Write(f, p.Info, p.bytes()); err != nil {
					return fmt.Errorf("%s %q: %w", group.folder, p.Anchor, err)
				}
			}
		}
		return z.Close()
	})
}

// distinctEntries returns which inputs or outputs would have the same name in a
// case.
func distinctEntries(m *Model) error {
	for i := range m.Inputs {
		if _, err := entryOf("input", m.Inputs, i); err != nil {
			return err
		}
	}
	for i := range m.Outputs {
		if _, err := entryOf("output", m.Outputs, i); err != nil {
			return err
		}
	}
	return nil
}

// entryOf returns the name of a port's array in a case. Anchors may have names
// that differ only where file names can't.
func entryOf(folder string, ports []Port, i int) (string, error) {
	name := npy.FileName(ports[i].Anchor, "")
	for _, p := range ports[:i] {
		if npy.FileName(p.Anchor, "") == name {
			return "", fmt.Errorf("%ss %q and %q would both be stored as %s.npy", folder, p.Anchor, ports[i].Anchor, name)
		}
	}
	return folder + "/" + name, nil
}

// load reads a case: inputs go to m's memory, the outputs that are expected
// are returned, in m's order.
func (s *Set) load(name string, m *Model) (want []expected, err error) {
	z, err := npy.OpenArchive(s.path(name))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	left := map[string]bool{}
	for _, entry := range z.Names() {
		left[entry] = true
	}
	read := func(folder string, ports []Port, i int, info popef.TensorInfo) ([]byte, error) {
		entry, err := entryOf(folder, ports, i)
		if err != nil {
			return nil, err
		}
		if !left[entry] {
			return nil, fmt.Errorf("%s: there is no %s %q; record the case again", s.path(name), folder, ports[i].Anchor)
		}
		delete(left, entry)
		return z.Read(entry, folder+" "+ports[i].Anchor, info)
	}
	for i := range m.Inputs {
		data, err := read("input", m.Inputs, i, m.Inputs[i].Info)
		if err != nil {
			return nil, err
		}
		m.Inputs[i].fill(data)
	}
	for i := range m.Outputs {
		info := m.Outputs[i].Info
		if m.Outputs[i].Counted {
			entry, err := entryOf("output", m.Outputs, i)
			if err != nil {
				return nil, err
			}
			if left[entry] {
				if info, err = counted(z, entry, info); err != nil {
					return nil, err
				}
			}
		}
		data, err := read("output", m.Outputs, i, info)
		if err != nil {
			return nil, err
		}
		want = append(want, expected{info, data})
	}
	for entry := range left {
		return nil, fmt.Errorf("%s: the model has no anchor for %s; record the case again", s.path(name), entry)
	}
	return want, nil
}

// Verify runs m on every case and compares its outputs with those stored.
func (s *Set) Verify(ctx context.Context, m *Model) (*Report, error) { return s.verify(ctx, m, false) }

// Update is [Set.Verify] that then stores the outputs of m as those expected.
func (s *Set) Update(ctx context.Context, m *Model) (*Report, error) { return s.verify(ctx, m, true) }

func (s *Set) verify(ctx context.Context, m *Model, update bool) (*Report, error) {
	cases, err := s.Cases()
	if err != nil {
		return nil, err
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("%s: %w", s.Dir, ErrNoGoldens)
	}
	r := newReport(m, s.Tolerances)
	for _, name := range cases {
		m := m
		if m.Sized != nil {
			if m, err = s.sized(ctx, name, m); err != nil {
				return nil, err
			}
		}
		want, err := s.load(name, m)
		if err != nil {
			return nil, err
		}
		if err := m.Run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", s.path(name), err)
		}
		r.Cases++
		for i := range m.Outputs {
			r.Outputs[i].add(name, &m.Outputs[i], want[i])
		}
		if update {
			if err := s.write(name, m); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}
