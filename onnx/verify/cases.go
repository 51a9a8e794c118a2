package verify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/onnx"
)

// Case is a model with stored inputs and reference outputs: a folder with
// model.onnx and test_data_set_N folders, in the layout of ONNX's own tests.
type Case struct {
	Dir  string
	Sets []string // the data sets' folders, sorted by number
}

// Find returns the cases in dirs: each dir must be one, or with recursive
// hold some at any depth.
func Find(dirs []string, recursive bool) ([]Case, error) {
	var cases []Case
	for _, dir := range dirs {
		if !recursive {
			c, err := newCase(dir)
			if err != nil {
				return nil, err
			}
			if len(c.Sets) == 0 {
				return nil, fmt.Errorf("%s: there is no data beside model.onnx: want folders test_data_set_N with input_I.pb and output_I.pb", dir)
			}
			cases = append(cases, c)
			continue
		}
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("looking for cases: %w", err)
		}
		n := len(cases)
		// The separator makes it follow a link that dir is. Names need not be
		// UTF-8, as those of an fs.FS.
		err := filepath.WalkDir(dir+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() != modelFile {
				return err
			}
			c, err := newCase(filepath.Dir(path))
			if err == nil && len(c.Sets) > 0 {
				cases = append(cases, c)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("looking for cases in %s: %w", dir, err)
		}
		if len(cases) == n {
			return nil, fmt.Errorf("%s: no folder in it holds model.onnx and test_data_set_N", dir)
		}
	}
	return cases, nil
}

const (
	modelFile = "model.onnx"
	setPrefix = "test_data_set_"
)

func newCase(dir string) (Case, error) {
	c := Case{Dir: dir}
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return c, fmt.Errorf("%s is a file, want a folder in the layout of ONNX's tests: model.onnx and test_data_set_N with input_I.pb and output_I.pb; popefgen run runs a single model", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, modelFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return c, fmt.Errorf("%s: no model.onnx in it (want a folder in the layout of ONNX's tests; --recursive looks in folders below)", dir)
		}
		return c, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return c, err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), setPrefix) {
			c.Sets = append(c.Sets, filepath.Join(dir, e.Name()))
		}
	}
	number := func(path string) int {
		n, err := strconv.Atoi(path[strings.LastIndexByte(path, '_')+1:])
		if err != nil {
			return -1
		}
		return n
	}
	slices.SortFunc(c.Sets, func(a, b string) int { return number(a) - number(b) })
	return c, nil
}

// readTensors reads prefix_0.pb, prefix_1.pb, … of a data set.
func readTensors(dir, prefix string) ([]*onnx.Tensor, error) {
	var out []*onnx.Tensor
	for i := 0; ; i++ {
		path := filepath.Join(dir, fmt.Sprintf("%s_%d.pb", prefix, i))
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return out, nil
		}
		t, err := onnx.ReadTensor(path)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
}
