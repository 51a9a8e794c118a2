package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/bench"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
)

// benchTarget returns the model that the arguments name, with data for its
// inputs, and how long it took to compile it if it is an ONNX model. Of a family, which is
// returned too, its run inputs have no data.
func benchTarget(c *cli.Context) (t *bench.Target, f *family.Family, compile time.Duration, err error) {
	t = &bench.Target{Backend: backendName(c), Threads: benchThreads(c)}
	if t.Options, err = engineOptions(c); err != nil {
		return nil, nil, 0, err
	}
	paths, size := c.Args().Slice(), int64(0)
	if onnx := slices.IndexFunc(paths, kind.IsONNX); onnx >= 0 {
		if len(paths) > 1 {
			return nil, nil, 0, fmt.Errorf("found %d files, want one ONNX model, or PopEF files that form one model", len(paths))
		}
		start := time.Now()
		r, err := compileONNX(c, paths[0])
		if err != nil {
			return nil, nil, 0, err
		}
		if t.Bytes, err = r.Bytes(); err != nil {
			return nil, nil, 0, err
		}
		size = r.Size
		t.Name, compile = filepath.Base(paths[0]), time.Since(start)
	} else {
		if err := noModelFlags(c, paths[0]); err != nil {
			return nil, nil, 0, err
		}
		t.Files, size = paths, dynamic.SizeOf(paths...)
	}
	m, err := t.Model(c.Context)
	if err != nil {
		return nil, nil, 0, kind.NotPopEF(err, t.Files...)
	}
	defer m.Close()
	model := contract.Of(m)
	if model.Refused != nil {
		return nil, nil, 0, model.Refused
	}
	if n := len(model.Branches); n > 0 {
		return nil, nil, 0, fmt.Errorf("the model has %d branches, and requests to one are what can be measured: compile its model by itself, or run the benchmarks of the generated package (go test -bench Run)", n)
	}
	t.Options = append(dynamic.BoundWork(t.Backend, m, size), t.Options...)
	if model.Family != nil {
		return t, model.Family, compile, benchInputs(c, t, givenOnce(model))
	}
	return t, nil, compile, benchInputs(c, t, model)
}

// givenOnce returns the contract without what runs move.
func givenOnce(c contract.Contract) contract.Contract {
	c.Anchors = slices.DeleteFunc(slices.Clone(c.Anchors), func(a contract.Anchor) bool {
		return a.Role == contract.RunInput || a.Role == contract.RunOutput
	})
	return c
}

// benchInputs gives every input data from the files or at random.
func benchInputs(c *cli.Context, t *bench.Target, model contract.Contract) error {
	files, err := assignments("input", c.StringSlice("input"))
	if err != nil {
		return err
	}
	var names []string
	used := make([]bool, len(files))
	for i, a := range dynamic.UserInputs(model) {
		names = append(names, a.Name)
		in := bench.Input{Anchor: a}
		times := int64(model.Transfers(&a))
		if k := slices.IndexFunc(files, func(f [2]string) bool { return f[0] == a.Name || f[0] == a.Handle }); k >= 0 {
			used[k] = true
			if in.Requests, err = readRequests(files[k][1], a.Info, times); err != nil {
				return fmt.Errorf("input %q: %w", files[k][0], err)
			}
		} else {
			size, err := a.Info.SizeInBytes()
			if err != nil {
				return fmt.Errorf("input %q: %w", a.Name, err)
			}
			data := make([]byte, size*times)
			dynamic.FillRandom(a.Info.DataType, data, c.Uint64("random")+uint64(i))
			in.Requests = [][]byte{data}
		}
		switch {
		case a.Role == contract.RunInput:
			t.Inputs = append(t.Inputs, in)
		case len(in.Requests) > 1:
			return fmt.Errorf("input %q is given once, before the first request; found data for %d times", a.Name, len(in.Requests))
		default:
			t.Given = append(t.Given, in)
		}
	}
	if k := slices.Index(used, false); k >= 0 {
		return dynamic.UnknownInput(files[k], names)
	}
	return sameTurns(t.Inputs)
}

// sameTurns refuses inputs with data of different numbers of requests: nobody
// could say which belong together.
func sameTurns(inputs []bench.Input) error {
	several := -1
	for i, in := range inputs {
		n := len(in.Requests)
		if n == 1 {
			continue
		}
		if several >= 0 && len(inputs[several].Requests) != n {
			return fmt.Errorf("input %q has data of %d requests and input %q of %d: want the same number, or one for all",
				inputs[several].Anchor.Name, len(inputs[several].Requests), in.Anchor.Name, n)
		}
		several = i
	}
	return nil
}

// readRequests reads the data of one request, or of several that lie behind
// each other in one more leading dimension, or in the first one.
func readRequests(value string, info popef.TensorInfo, iterations int64) ([][]byte, error) {
	path, ok := tensorfile.Path(value)
	if !ok {
		data, err := tensorfile.ReadValue(value, info, iterations)
		return [][]byte{data}, err
	}
	n := iterations // what Read then misses it says
	if found := transfersIn(path, info); found > 0 && found%iterations == 0 {
		n = found
	}
	data, err := tensorfile.Read(path, info, n)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for size := len(data) / int(n/iterations); len(all) < int(n/iterations); {
		all = append(all, data[len(all)*size:][:size:size])
	}
	return all, nil
}

// transfersIn returns how many tensors of a type are in a file, 0 if that can't
// be told.
func transfersIn(path string, info popef.TensorInfo) int64 {
	if strings.EqualFold(filepath.Ext(path), ".bin") {
		size, err := info.SizeInBytes()
		f, e := os.Stat(path)
		if err != nil || e != nil || size == 0 || f.Size()%size != 0 {
			return 0
		}
		return f.Size() / size
	}
	t, err := tensorfile.ReadONNX(path)
	if err != nil {
		return 0
	}
	shape, want := t.Dims, info.Shape
	switch {
	case slices.Equal(shape, want):
		return 1
	case len(shape) == len(want)+1 && slices.Equal(shape[1:], want):
		return shape[0]
	case len(shape) == len(want) && len(want) > 0 && slices.Equal(shape[1:], want[1:]) && want[0] > 0 && shape[0]%want[0] == 0:
		return shape[0] / want[0]
	}
	return 0
}
