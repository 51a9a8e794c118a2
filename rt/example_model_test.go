package rt_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// The model of the examples computes y = w·x + b, for batches of four samples
// of two elements. Its file has data for w and b. Program 0 loads both, program
// 1 computes, program 2 saves w.
const (
	exampleBatch  = 4
	exampleSample = 8 // bytes
)

func exampleMetadata() popef.Metadata {
	a := func(t popef.TensorType, name, handle string, program uint32, shape ...int64) popef.Anchor {
		return popef.Anchor{Name: name, Handle: handle, Type: t, Programs: []uint32{program},
			Info: popef.TensorInfo{DataType: popef.F32, Shape: shape}}
	}
	return popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, Executable: "line", IsInference: true,
		ProgramFlow: popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{1}, Save: []uint32{2}},
		Anchors: []popef.Anchor{
			a(popef.Input, "x", "h2d_x", 1, exampleBatch, 2),
			a(popef.Output, "y", "d2h_y", 1, exampleBatch, 2),
			a(popef.Input, "w", "h2d_w", 0, 2),
			a(popef.Input, "b", "h2d_b", 0, 2),
			a(popef.Output, "w", "d2h_w", 2, 2),
		},
	}
}

// exampleExecutable is the model for any engine that runs portable executables.
func exampleExecutable() []byte {
	g := graph.NewBuilder("line")
	f32 := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	w, b, x := g.AddPersistent("w", f32(2)), g.AddPersistent("b", f32(2)), g.AddLocal("x", f32(exampleBatch, 2))
	main := g.BeginGraph("main")
	wx, err := g.Node(&graph.Binary{Fn: graph.Mul}, "wx", x, w)
	must(err)
	y, err := g.Node(&graph.Binary{Fn: graph.Add}, "y", wx[0], b)
	must(err)
	g.AddProgram(0, "load", g.CopyIn("h2d_w", w), g.CopyIn("h2d_b", b))
	g.AddProgram(1, "main", g.CopyIn("h2d_x", x), g.Call(main), g.CopyOut("d2h_y", y[0]))
	g.AddProgram(2, "save", g.CopyOut("d2h_w", w))
	exe, err := g.Finish()
	must(err)
	var out bytes.Buffer
	must(encoding.Encode(&out, exe))
	return out.Bytes()
}

// exampleFiles writes the model to two files, as a compiler may: one with the
// executable, one with the weights.
func exampleFiles() (paths []string, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	must(err)
	for name, write := range map[string]func(*popef.Writer){"line.popef": writeProgram, "weights.popef": writeWeights} {
		var buf popeftest.Buffer
		w := popef.NewWriter(&buf)
		write(w)
		must(w.Close())
		must(os.WriteFile(filepath.Join(dir, name), buf.Bytes(), 0o600))
	}
	paths = []string{filepath.Join(dir, "line.popef"), filepath.Join(dir, "weights.popef")}
	return paths, func() { must(os.RemoveAll(dir)) }
}

func writeProgram(w *popef.Writer) {
	meta := exampleMetadata()
	must(w.WriteMetadata(&meta))
	e, err := w.CreateExecutable(meta.Executable, false)
	must(err)
	_, err = e.Write(exampleExecutable())
	must(errors.Join(err, e.Close()))
}

func writeWeights(w *popef.Writer) {
	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{2}}
	must(w.WriteTensor("w", info, floats(2, 3)))
	must(w.WriteTensor("b", info, floats(10, 20)))
}

// exampleModel loads the model from memory.
func exampleModel() *popef.Model {
	var buf popeftest.Buffer
	w := popef.NewWriter(&buf)
	writeProgram(w)
	writeWeights(w)
	must(w.Close())
	m, err := popef.LoadBytes("line.popef", buf.Bytes())
	must(err)
	return m
}

// exampleSession is a session of the model on the cpu, for examples whose topic
// comes later.
func exampleSession(opts ...modelrt.SessionOption) rt.Session {
	s, err := modelrt.NewSession(context.Background(), exampleModel(), opts...)
	must(err)
	return s
}

// exampleSystem is a machine with so many IPUs.
func exampleSystem(devices int) *testSystem {
	return newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, devices)})
}

// connectExample connects memory to x and y.
func connectExample(s rt.Session) (x, y *modelrt.Buffer) {
	var buffers [2]*modelrt.Buffer
	for i, handle := range []string{"h2d_x", "d2h_y"} {
		info, _ := s.Stream(handle)
		var err error
		buffers[i], err = modelrt.NewBuffer(info, s.DeviceIterations())
		must(err)
		must(s.Connect(context.Background(), handle, buffers[i]))
	}
	copy(buffers[0].Bytes(), floats(1, 1, 2, 2, 3, 3, 4, 4))
	return buffers[0], buffers[1]
}

// values views memory as numbers.
func values(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// printEvents prints what happened in a test system, without what only concerns
// the data of streams.
func printEvents(sys *testSystem) {
	for _, line := range sys.Trace(iputest.EventAttach, iputest.EventDetach, iputest.EventLoad, iputest.EventRun, iputest.EventStop) {
		fmt.Println(strings.TrimPrefix(line, "line.popef: "))
	}
	sys.ClearLog()
}

// exampleTB lets examples use the helpers of tests: what would fail a test
// panics.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                         {}
func (exampleTB) Errorf(text string, args ...any) { panic(fmt.Sprintf(text, args...)) }
func (exampleTB) FailNow()                        { panic("the example failed") }

// openExample opens the runner of the model "affine", for examples whose topic
// comes later. It computes y = w·x + b, in two iterations of two elements each,
// with the w in its file and this b.
func openExample(opts ...rt.RunnerOption) *Runner {
	t := exampleTB{}
	model := file(t, affineMetadata(), affinePortable(t), affineData)
	r, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: &B{Data: [2]float32{10, 20}}}, genrt.Source{Name: "affine.popef", Bytes: model}, opts...)
	must(err)
	return r
}

// must ends an example that can't go on.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
