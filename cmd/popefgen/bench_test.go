package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/popefgen/popefgen/popef"
)

// feedData FILE N writes a file with data for N requests of the diabetes model,
// as feeds.
func feedData(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(popef.WriteFile(ts.MkAbs(args[0]), func(w *popef.Writer) error {
		for _, in := range []struct {
			name string
			info popef.TensorInfo
		}{
			{"age", popef.TensorInfo{DataType: popef.S32, Shape: []int64{1, 1}}},
			{"sex", popef.TensorInfo{DataType: popef.S64, Shape: []int64{1}}},
			{"measurements", popef.TensorInfo{DataType: popef.F32, Shape: []int64{1, 8}}},
		} {
			size, err := in.info.SizeInBytes()
			if err != nil {
				return err
			}
			f, err := w.CreateFeed(in.name, in.info, uint32(n))
			if err != nil {
				return err
			}
			for i := range n {
				if err := f.WriteTensor(i, make([]byte, size)); err != nil {
					return err
				}
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return nil
	}))
}

// jsonHas FILE PATH… wants FILE to be one JSON document in which every PATH,
// such as list.0.name, leads to a number above 0, a text or a list that is not
// empty, or true.
func jsonHas(ts *testscript.TestScript, neg bool, args []string) {
	var doc any
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(d.Decode(&doc))
	if d.More() {
		ts.Fatalf("%s: more than one JSON document", args[0])
	}
	for _, path := range args[1:] {
		at := doc
		for key := range strings.SplitSeq(path, ".") {
			switch v := at.(type) {
			case map[string]any:
				at = v[key]
			case []any:
				i, err := strconv.Atoi(key)
				ts.Check(err)
				if at = nil; i < len(v) {
					at = v[i]
				}
			default:
				at = nil
			}
		}
		found := false
		switch v := at.(type) {
		case float64:
			found = v > 0
		case string:
			found = v != ""
		case bool:
			found = v
		case []any:
			found = len(v) > 0
		}
		if found == neg {
			ts.Fatalf("%s: %s is %v", args[0], path, at)
		}
	}
}

// zeros FILE N writes N zero bytes.
func zeros(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), make([]byte, n), 0o666))
}
