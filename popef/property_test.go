package popef_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// drawn is a random model with everything that a file can hold.
type drawn struct {
	meta    popef.Metadata
	exe     []byte
	packed  bool
	tensors []popeftest.Tensor
	feeds   []drawnFeed
	opaques []string
	version string
	plain   bool // without alignment
	stream  bool // payloads in pieces
}

type drawnFeed struct {
	name string
	info popef.TensorInfo
	data [][]byte
}

func drawInfo(t *rapid.T) popef.TensorInfo {
	return popef.TensorInfo{
		DataType: popef.DataType(rapid.IntRange(0, 14).Draw(t, "type")),
		Shape:    orNil(rapid.SliceOfN(rapid.Int64Range(0, 5), 0, 4).Draw(t, "shape")),
	}
}

// orNil makes empty slices nil, as the reader returns them.
func orNil[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

func drawIndices(t *rapid.T) []uint32 {
	return orNil(rapid.SliceOfN(rapid.Uint32(), 0, 4).Draw(t, "programs"))
}

func drawOptions(t *rapid.T) []popef.Option {
	return orNil(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) popef.Option {
		return popef.Option{Name: rapid.String().Draw(t, "name"), Value: rapid.String().Draw(t, "value")}
	}), 0, 4).Draw(t, "options"))
}

func drawData(t *rapid.T, info popef.TensorInfo) []byte {
	n, err := info.SizeInBytes()
	if err != nil {
		t.Fatal(err)
	}
	return rapid.SliceOfN(rapid.Byte(), int(n), int(n)).Draw(t, "data")
}

func draw(t *rapid.T) *drawn {
	d := &drawn{
		meta: popef.Metadata{
			ReplicationFactor: rapid.Uint32().Draw(t, "replicas"), NumIPUs: rapid.Uint32().Draw(t, "ipus"),
			SeedHandle: rapid.String().Draw(t, "seed"), Executable: rapid.StringN(1, 20, -1).Draw(t, "executable"),
			NumProcesses: rapid.Uint32().Draw(t, "processes"), IPUVersion: rapid.Uint32().Draw(t, "version"),
			IsPOD: rapid.Bool().Draw(t, "pod"), IsInference: rapid.Bool().Draw(t, "inference"),
			EngineOptions: drawOptions(t), DeviceOptions: drawOptions(t),
			ProgramFlow:      popef.ProgramFlow{Load: drawIndices(t), Main: drawIndices(t), Save: drawIndices(t)},
			DeviceIterations: rapid.Uint32().Draw(t, "iterations"),
			Programs: orNil(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) popef.ProgramInfo {
				return popef.ProgramInfo{Index: rapid.Uint32().Draw(t, "index"), Name: rapid.String().Draw(t, "name")}
			}), 0, 3).Draw(t, "programs")),
		},
		exe: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "exe"), packed: rapid.Bool().Draw(t, "compress"),
		opaques: rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "opaques"),
		version: rapid.StringN(0, 20, -1).Draw(t, "version"),
		plain:   rapid.Bool().Draw(t, "plain"), stream: rapid.Bool().Draw(t, "stream"),
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "anchors") {
		a := popef.Anchor{
			Name: fmt.Sprint(i, rapid.String().Draw(t, "name")), Handle: rapid.String().Draw(t, "handle"),
			Programs: drawIndices(t), Info: drawInfo(t), Type: popef.TensorType(rapid.IntRange(0, 2).Draw(t, "direction")),
			PerReplica: rapid.Bool().Draw(t, "per replica"), RemoteBuffer: rapid.Bool().Draw(t, "remote"),
			Repeats: rapid.Uint32().Draw(t, "repeats"),
		}
		d.meta.Anchors = append(d.meta.Anchors, a)
		if !a.Type.TakesData() {
			continue
		}
		switch rapid.IntRange(0, 2).Draw(t, "source") {
		case 1:
			d.tensors = append(d.tensors, popeftest.Tensor{Name: a.Name, Info: a.Info, Data: drawData(t, a.Info)})
		case 2:
			f := drawnFeed{name: a.Name, info: a.Info}
			for range rapid.IntRange(0, 3).Draw(t, "tensors") {
				f.data = append(f.data, drawData(t, a.Info))
			}
			d.feeds = append(d.feeds, f)
		}
	}
	return d
}

func (d *drawn) write(w *popef.Writer) error {
	if err := w.WriteMetadata(&d.meta); err != nil {
		return err
	}
	var feeds []*popef.FeedWriter
	for _, f := range d.feeds {
		x, err := w.CreateFeed(f.name, f.info, uint32(len(f.data)))
		if err != nil {
			return err
		}
		feeds = append(feeds, x)
	}
	if err := payload(w.CreateExecutable(d.meta.Executable, d.packed))(d.exe); err != nil {
		return err
	}
	for _, x := range d.tensors {
		if !d.stream {
			if err := w.WriteTensor(x.Name, x.Info, x.Data); err != nil {
				return err
			}
			continue
		}
		b, err := w.CreateTensor(x.Name, x.Info)
		if err != nil {
			return err
		}
		for _, p := range [][]byte{x.Data[:len(x.Data)/2], x.Data[len(x.Data)/2:]} {
			if _, err := b.Write(p); err != nil {
				return err
			}
		}
	}
	for _, name := range d.opaques {
		if err := payload(w.CreateOpaque(name, d.meta.Executable))([]byte(name)); err != nil {
			return err
		}
	}
	for i, f := range d.feeds {
		for j := range f.data {
			j = len(f.data) - 1 - j
			if err := feeds[i].WriteTensor(j, f.data[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// bytes returns the model as a file.
func (d *drawn) bytes() ([]byte, error) {
	opts := []popef.WriterOption{popef.WithVersion(d.version)}
	if d.plain {
		opts = append(opts, popef.WithoutAlignment())
	}
	var b popeftest.Buffer
	w := popef.NewWriter(&b, opts...)
	err := errors.Join(d.write(w), w.Close())
	return b.Bytes(), err
}

// check compares the model that was read with what was drawn.
func (d *drawn) check(m *popef.Model) error {
	if diff := cmp.Diff(d.meta, m.Metadata); diff != "" {
		return fmt.Errorf("metadata (-written +read):\n%s", diff)
	}
	exe, err := m.Executable()
	if err != nil || !bytes.Equal(exe, d.exe) {
		return fmt.Errorf("executable %q, want %q: %w", exe, d.exe, err)
	}
	if len(m.Tensors()) != len(d.tensors) || len(m.Feeds()) != len(d.feeds) || len(m.Opaques()) != len(d.opaques) {
		return fmt.Errorf("%d tensors, %d feeds, %d opaque blobs", len(m.Tensors()), len(m.Feeds()), len(m.Opaques()))
	}
	for _, x := range d.tensors {
		if p, err := m.ReadTensor(x.Name); err != nil || !bytes.Equal(p, x.Data) {
			return fmt.Errorf("tensor %q: %v, want %v: %w", x.Name, p, x.Data, err)
		}
	}
	for _, f := range d.feeds {
		g, ok := m.Feed(f.name)
		if !ok || g.Len() != len(f.data) || g.Name() != f.name || !g.Info().Equal(f.info) {
			return fmt.Errorf("feed %q: %v", f.name, g)
		}
		for i, want := range f.data {
			if p, err := g.Tensor(i); err != nil || !bytes.Equal(p, want) {
				return fmt.Errorf("feed %q, tensor %d: %v, want %v: %w", f.name, i, p, want, err)
			}
		}
	}
	for i, name := range d.opaques {
		o := m.Opaques()[i]
		if p, err := o.Bytes(); err != nil || o.Name != name || string(p) != name || o.Version != d.version {
			return fmt.Errorf("opaque %q: %q, want %q: %w", o.Name, p, name, err)
		}
	}
	for _, w := range m.Warnings() {
		return errors.New(w.String())
	}
	return nil
}

func roundTrip(t *rapid.T) {
	d := draw(t)
	file, err := d.bytes()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.bytes(); err != nil || !bytes.Equal(file, again) {
		t.Fatal("written differently the second time", err)
	}
	m, err := popef.LoadBytes("f", file)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.check(m); err != nil {
		t.Fatal(err)
	}
	r := popef.NewReader()
	if err := r.AddReaderAt("f", strings.NewReader(string(file)), int64(len(file))); err != nil {
		t.Fatal(err)
	}
	models, err := r.Models()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.check(models[0]); err != nil {
		t.Fatal(err)
	}
	for _, b := range r.Blobs() {
		hasData := b.Kind == popef.ExecutableBlob || b.Kind == popef.TensorBlob || b.Kind == popef.FeedBlob
		if hasData && !d.plain && b.Offset%8 == 0 && b.PayloadOffset%popef.Alignment != 0 {
			t.Fatalf("payload of blob %d is at %#x", b.Index, b.PayloadOffset)
		}
	}
}

func TestRoundTrip(t *testing.T) { rapid.Check(t, roundTrip) }
