package popeftest

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/popefgen/popefgen/popef"
)

// Fixture is one example model: its metadata, what its files hold, and in
// which order. Files without a name of their own are a model's only file.
type Fixture struct {
	Name     string // "A" to "D"
	Metadata popef.Metadata
	Tensors  []Tensor // in the order of the file
	Files    []File
}

// Tensor is the data for the input anchors of one name.
type Tensor struct {
	Name string
	Info popef.TensorInfo
	Data []byte
}

// File is one file of a fixture.
type File struct {
	Name  string
	Write func(*popef.Writer) error
}

// WriteTo writes the fixture's blobs, all files one after the other, which
// gives one file with the same content.
func (f *Fixture) WriteTo(ws io.WriteSeeker, opts ...popef.WriterOption) error {
	w := popef.NewWriter(ws, opts...)
	for _, file := range f.Files {
		if err := file.Write(w); err != nil {
			return err
		}
	}
	return w.Close()
}

// Bytes returns the fixture as one file.
func (f *Fixture) Bytes(opts ...popef.WriterOption) ([]byte, error) {
	var b Buffer
	err := f.WriteTo(&b, opts...)
	return b.Bytes(), err
}

// WriteDir writes the fixture's files into dir and returns their paths.
func (f *Fixture) WriteDir(dir string, opts ...popef.WriterOption) ([]string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	var paths []string
	for _, file := range f.Files {
		path := filepath.Join(dir, file.Name)
		if err := popef.WriteFile(path, file.Write, opts...); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// Load returns the fixture as a model read from memory, and fails the test if
// it can't.
func (f *Fixture) Load(t testing.TB) *popef.Model {
	t.Helper()
	b, err := f.Bytes()
	if err != nil {
		t.Fatalf("write model %s: %v", f.Name, err)
	}
	m, err := popef.LoadBytes(f.Name+".popef", b)
	if err != nil {
		t.Fatalf("read model %s: %v", f.Name, err)
	}
	return m
}

// All returns the four fixtures.
func All() []*Fixture { return []*Fixture{ModelA(), ModelB(), ModelC(), ModelD()} }

// The programs that PopART and PopTorch always list.
var map10 = []string{
	"WeightsFromHost", "OptimizerFromHost", "RandomSeedFromHost", "RandomSeedToHost", "RngStateFromHost",
	"Program", "RngStateToHost", "WeightsToHost", "CycleCountTensorToHost", "CustomProgramsStart",
}

// base returns what the four models have in common.
func base(executable string, programs []string) popef.Metadata {
	m := popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2,
		Executable: executable,
	}
	for i, p := range programs {
		m.Programs = append(m.Programs, popef.ProgramInfo{Index: uint32(i), Name: p})
	}
	return m
}

// engineOptions are what PopART sets unless told otherwise.
func engineOptions() []popef.Option {
	return []popef.Option{
		{Name: "debug.retainDebugInformation", Value: "false"},
		{Name: "exchange.streamBufferOverlap", Value: "hostRearrangeOnly"},
		{Name: "exchange.enablePrefetch", Value: "true"},
		{Name: "target.deterministicWorkers", Value: "false"},
	}
}

func info(t popef.DataType, shape ...int64) popef.TensorInfo {
	return popef.TensorInfo{Shape: shape, DataType: t}
}

func anchor(t popef.TensorType, name, handle string, i popef.TensorInfo, programs ...uint32) popef.Anchor {
	return popef.Anchor{Name: name, Handle: handle, Programs: programs, Info: i, Type: t}
}

// Fill returns deterministic data for a tensor: floats between -1 and 1, small
// integers, pseudo-random bytes for what is neither. seed tells tensors apart.
func Fill(i popef.TensorInfo, seed uint32) []byte {
	n, err := i.Elements()
	if err != nil {
		panic(fmt.Sprintf("popeftest: %v", err))
	}
	b := make([]byte, 0, n*int64(i.DataType.Size()))
	x := seed*2654435761 + 12345
	for range n {
		x = x*1664525 + 1013904223
		v := x >> 16
		switch i.DataType {
		case popef.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)/32768-1))
		case popef.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)/32768-1))
		case popef.F16:
			// Sign and mantissa at an exponent that keeps it within (-1, 1).
			b = binary.LittleEndian.AppendUint16(b, uint16(v)&0x83ff|14<<10&0x3800)
		case popef.S32, popef.U32:
			b = binary.LittleEndian.AppendUint32(b, v%10)
		default:
			for range i.DataType.Size() {
				b = append(b, byte(v))
			}
		}
	}
	return b
}

// Executable returns bytes in the form of a Poplar executable, with nothing in
// it that could run: the 40-byte header, two empty LZ4 frames, and a frame to
// skip that makes the length a multiple of 8, so that what follows in the file
// can be aligned.
func Executable() []byte {
	empty := []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 0, 0, 0, 0}
	skip := []byte{0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 0, 0}
	b := []byte("GC_EXE_3")
	for _, n := range []int{0, len(empty), 0, len(empty) + len(skip)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return slices.Concat(b, empty, empty, skip)
}

func (f *Fixture) writeMetadata(w *popef.Writer) error { return w.WriteMetadata(&f.Metadata) }

func (f *Fixture) writeExecutable(w *popef.Writer) error {
	e, err := w.CreateExecutable(f.Metadata.Executable, false)
	if err != nil {
		return err
	}
	if _, err := e.Write(Executable()); err != nil {
		return err
	}
	return e.Close()
}

func (f *Fixture) writeOpaque(name string) func(*popef.Writer) error {
	return func(w *popef.Writer) error {
		o, err := w.CreateOpaque(name, f.Metadata.Executable)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(o, "%-16s", name); err != nil {
			return err
		}
		return o.Close()
	}
}

func (f *Fixture) writeTensors(w *popef.Writer) error {
	for _, t := range f.Tensors {
		if err := w.WriteTensor(t.Name, t.Info, t.Data); err != nil {
			return err
		}
	}
	return nil
}

// sequence returns a function that calls several in turn.
func sequence(fs ...func(*popef.Writer) error) func(*popef.Writer) error {
	return func(w *popef.Writer) error {
		for _, f := range fs {
			if err := f(w); err != nil {
				return err
			}
		}
		return nil
	}
}

// data gives the input anchors that some program other than the main one
// moves their tensors, in the order of the anchors.
func (f *Fixture) data() {
	main := f.Metadata.ProgramFlow.Main[0]
	for i, a := range f.Metadata.Anchors {
		if a.Type == popef.Input && a.Programs[0] != main {
			f.Tensors = append(f.Tensors, Tensor{a.Name, a.Info, Fill(a.Info, uint32(i))})
		}
	}
}
