package iputest

import (
	"bytes"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// suiteStreams are the streams of the suite's model; each is f32[4].
var suiteStreams = []ipu.StreamInfo{
	{Handle: "w", Direction: ipu.HostToDevice, Programs: []int{0}},
	{Handle: "a", Direction: ipu.HostToDevice, Programs: []int{1, 3}},
	{Handle: "b", Direction: ipu.HostToDevice, Programs: []int{1, 3}},
	{Handle: "sum", Direction: ipu.DeviceToHost, Programs: []int{1, 3}},
	{Handle: "state", Direction: ipu.DeviceToHost, Programs: []int{2}},
}

// suiteRepeats is how often program 3 does what program 1 does.
const suiteRepeats = 3

// SuiteScript returns the model that [RunEngineSuite] runs, as a script.
func SuiteScript() Script {
	s := Script{}
	for _, st := range suiteStreams {
		s.Streams = append(s.Streams, Stream{Handle: st.Handle, Output: st.Direction == ipu.DeviceToHost, Type: "f32", Shape: []int64{4}})
	}
	main := []Step{
		Read("a"), Read("b"),
		Call("add", []string{"a", "b"}, []string{"sum"}), Call("mul", []string{"sum", "w"}, []string{"sum"}),
		Write("sum"),
	}
	s.Programs = []Program{
		{Index: 0, Name: "load", Steps: []Step{Read("w")}},
		{Index: 1, Name: "main", Steps: main},
		{Index: 2, Name: "save", Steps: []Step{Call("copy", []string{"w"}, []string{"state"}), Write("state")}},
		{Index: 3, Name: "repeat", Steps: []Step{Repeat(suiteRepeats, main...)}},
	}
	return s
}

// SuitePortable returns the model that [RunEngineSuite] runs, as a portable
// executable.
func SuitePortable() []byte {
	f32 := graph.TensorType{DType: graph.F32, Shape: []int64{4}}
	b := graph.NewBuilder("engine suite")
	w, x, y := b.AddPersistent("w", f32), b.AddLocal("a", f32), b.AddLocal("b", f32)
	g := b.BeginGraph("main")
	node := func(fn graph.BinaryFn, name string, in ...graph.TensorID) graph.TensorID {
		out, err := b.Node(&graph.Binary{Fn: fn}, name, in...)
		if err != nil {
			panic(fmt.Sprintf("iputest: the suite's model: %v", err))
		}
		return out[0]
	}
	sum := node(graph.Mul, "mul", node(graph.Add, "add", x, y), w)
	main := []graph.Step{b.CopyIn("a", x), b.CopyIn("b", y), b.Call(g), b.CopyOut("sum", sum)}
	b.AddProgram(0, "load", b.CopyIn("w", w))
	b.AddProgram(1, "main", main...)
	b.AddProgram(2, "save", b.CopyOut("state", w))
	b.AddProgram(3, "repeat", b.Repeat(suiteRepeats, main...))
	exe, err := b.Finish()
	var out bytes.Buffer
	if err == nil {
		err = encoding.Encode(&out, exe)
	}
	if err != nil {
		panic(fmt.Sprintf("iputest: the suite's model: %v", err))
	}
	return out.Bytes()
}
