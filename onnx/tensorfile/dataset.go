package tensorfile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
)

// DataSet is the inputs and outputs of one run of a model, as somebody stored
// them: a folder with input_N.pb and output_N.pb, the layout of ONNX's tests,
// or a .npz file.
type DataSet struct {
	Path    string
	Stored  []Stored
	archive *npy.Archive // nil for a folder
}

// Role says which side of a model a stored tensor is on.
type Role int

// The roles. A .npz file need not tell them.
const (
	AnyRole Role = iota
	InputRole
	OutputRole
)

// Stored is a tensor of a [DataSet].
type Stored struct {
	Name   string // what the model calls it; "" if the file does not tell
	Role   Role
	Number int    // its place among those of its role; -1 if the file does not tell
	Where  string // the file, or the entry of the archive, for messages

	entry  string
	tensor *onnx.Tensor
}

// FindDataSets returns the data sets that path stands for: itself, or those in
// it: test_data_set_N folders, sorted by number, and .npz files, sorted by name.
func FindDataSets(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		if strings.EqualFold(filepath.Ext(path), ".npz") {
			return []string{path}, nil
		}
		return nil, fmt.Errorf("%s: want a .npz file, or a folder with input_N.pb and output_N.pb, test_data_set_N folders or .npz files", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var folders, archives []string
	for _, e := range entries {
		switch {
		case protoFile.MatchString(e.Name()):
			return []string{path}, nil
		case e.IsDir() && setFolder.MatchString(e.Name()):
			folders = append(folders, filepath.Join(path, e.Name()))
		case strings.EqualFold(filepath.Ext(e.Name()), ".npz"):
			archives = append(archives, filepath.Join(path, e.Name()))
		}
	}
	slices.SortStableFunc(folders, func(a, b string) int { return numberOf(setFolder, a) - numberOf(setFolder, b) })
	all := append(folders, archives...)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: there is nothing to import in it: want input_N.pb and output_N.pb, test_data_set_N folders, or .npz files", path)
	}
	return all, nil
}

var (
	protoFile = regexp.MustCompile(`^(input|output)_([0-9]{1,6})\.pb$`)
	setFolder = regexp.MustCompile(`^(test_data_set)_([0-9]{1,6})$`)
	// arrayName is the name of an array whose role is given, as popefgen's own goldens and numbered ones have it.
	arrayName = regexp.MustCompile(`(?s)^(input|output)(?:_([0-9]{1,6})|/(.*))$`)
)

// numberOf returns the number at the end of a name, -1 if there is none.
func numberOf(pattern *regexp.Regexp, path string) int {
	m := pattern.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return -1
	}
	return n
}

var roles = map[string]Role{"input": InputRole, "output": OutputRole}

// OpenDataSet opens the data set at path, which the caller closes.
func OpenDataSet(path string) (*DataSet, error) {
	d := &DataSet{Path: path}
	if st, err := os.Stat(path); err != nil {
		return nil, err
	} else if !st.IsDir() {
		var err error
		if d.archive, err = npy.OpenArchive(path); err != nil {
			return nil, err
		}
		for _, name := range d.archive.Names() {
			s := Stored{Name: name, Number: -1, Where: path + ": " + name, entry: name}
			if m := arrayName.FindStringSubmatch(name); m != nil {
				s.Role, s.Name = roles[m[1]], m[3]
				if n, err := strconv.Atoi(m[2]); err == nil {
					s.Number = n
				}
			}
			d.Stored = append(d.Stored, s)
		}
		return d, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		m := protoFile.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		file := filepath.Join(path, e.Name())
		t, err := onnx.ReadTensor(file)
		if err != nil {
			return nil, err
		}
		d.Stored = append(d.Stored, Stored{Name: t.Name, Role: roles[m[1]], Number: numberOf(protoFile, file), Where: file, tensor: t})
	}
	slices.SortStableFunc(d.Stored, func(a, b Stored) int { return a.Number - b.Number })
	return d, nil
}

// Close closes the data set.
func (d *DataSet) Close() error {
	if d.archive == nil {
		return nil
	}
	return d.archive.Close()
}

// Read returns a stored tensor, which must have the type and shape of info.
func (d *DataSet) Read(s Stored, info popef.TensorInfo) ([]byte, error) {
	if d.archive != nil {
		return d.archive.Read(s.entry, s.entry, info)
	}
	return checked(s.Where, s.tensor, info, 1)
}

// Tensor returns a stored tensor as it is.
func (d *DataSet) Tensor(s Stored) (*onnx.Tensor, error) {
	if d.archive == nil {
		return s.tensor, nil
	}
	a, err := d.archive.Array(s.entry, maxONNX)
	if err != nil {
		return nil, err
	}
	return fromArray(s.Where, a)
}
