package main

import (
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/popefgen/popefgen/popef"
)

// poplarModel FILE writes a model whose executable is for the Poplar runtime.
func poplarModel(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(writePoplar(ts.MkAbs(args[0])))
}

func writePoplar(path string) error {
	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{4}}
	return popef.WriteFile(path, func(w *popef.Writer) error {
		err := w.WriteMetadata(&popef.Metadata{
			ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, IsInference: true, Executable: "42", DeviceIterations: 1,
			ProgramFlow: popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}},
			Anchors: []popef.Anchor{
				{Name: "x", Handle: "h2d_x", Programs: []uint32{5}, Info: info, Type: popef.Input},
				{Name: "y", Handle: "anchor_d2h_y", Programs: []uint32{5}, Info: info, Type: popef.Output},
			},
		})
		if err != nil {
			return err
		}
		e, err := w.CreateExecutable("42", false)
		if err != nil {
			return err
		}
		if _, err := e.Write(append([]byte("GC_EXE_3"), make([]byte, 32)...)); err != nil {
			return err
		}
		return e.Close()
	})
}

// verifyCase DIR SCALE writes a case in ONNX's layout: y = |x| over two
// elements, with a reference output that is off by the factor SCALE.
func verifyCase(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	set := filepath.Join(dir, "test_data_set_0")
	ts.Check(os.MkdirAll(set, 0o777))
	op := "Abs"
	if len(args) > 2 {
		op = args[2]
	}
	message := func(num byte, body ...byte) []byte { return append([]byte{num<<3 | 2, byte(len(body))}, body...) }
	text := func(num byte, s string) []byte { return message(num, []byte(s)...) }
	cat := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	value := func(name string) []byte {
		shape := message(2, message(1, 0x08, 2)...)
		return cat(text(1, name), message(2, message(1, cat([]byte{0x08, 1}, shape)...)...))
	}
	node := cat(text(1, "x"), text(2, "y"), text(4, op))
	graph := cat(message(1, node...), message(11, value("x")...), message(12, value("y")...))
	model := cat([]byte{0x08, 8}, message(7, graph...), message(8, 0x10, 13))
	tensor := func(name string, data ...byte) []byte {
		return cat([]byte{0x08, 2, 0x10, 1}, text(8, name), message(9, data...))
	}
	y := tensor("y", 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40)
	if args[1] == "2" {
		y = tensor("y", 0, 0, 0, 0x40, 0, 0, 0, 0x40)
	}
	ts.Check(os.WriteFile(filepath.Join(dir, "model.onnx"), model, 0o666))
	ts.Check(os.WriteFile(filepath.Join(set, "input_0.pb"), tensor("x", 0, 0, 0x80, 0xbf, 0, 0, 0, 0x40), 0o666))
	ts.Check(os.WriteFile(filepath.Join(set, "output_0.pb"), y, 0o666))
}
