package popef_test

import (
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// FuzzReader reads everything out of arbitrary bytes, from memory and through
// an io.ReaderAt, which must agree.
func FuzzReader(f *testing.F) {
	file := small(f)
	f.Add([]byte(nil))
	f.Add(file)
	f.Add(small(f, popef.WithoutAlignment()))
	parts := take(f, file)
	for _, how := range []reading{{intoIt: true}, {}, {packed: true, header: true, intoIt: true}, {packed: true}} {
		f.Add(put(f, how, parts...))
	}
	parts[len(parts)-1].noSize = true
	f.Add(put(f, asSpecified, parts...))
	for _, m := range []*popeftest.Fixture{popeftest.ModelA(), popeftest.ModelC()} {
		b, err := m.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	plain := []byte("hello, hello, hello")
	for _, z := range [][]byte{pack(f, plain, lz4Writer), pack(f, plain, zstdWriter), pack(f, plain, gzipWriter), pack(f, plain, zlibWriter(6))} {
		f.Add(compressed(f, uint64(len(plain)), z))
	}
	f.Fuzz(func(t *testing.T, b []byte) { useAll(t, "f", b) })
}

// FuzzRoundTrip writes a model that the input describes and reads it back.
func FuzzRoundTrip(f *testing.F) {
	for n := range 8 {
		seed := make([]byte, 512<<n)
		for i := range seed {
			seed[i] = byte(i * (2*n + 1) >> 2)
		}
		f.Add(seed)
	}
	f.Fuzz(rapid.MakeFuzz(roundTrip))
}

// TestFileRoundTrip takes the fixtures through the file system.
func TestFileRoundTrip(t *testing.T) {
	for _, f := range popeftest.All() {
		m := f.Load(t)
		path := filepath.Join(t.TempDir(), "again.popef")
		// Written again out of what was read.
		err := popef.WriteFile(path, func(w *popef.Writer) error {
			if err := w.WriteMetadata(&m.Metadata); err != nil {
				return err
			}
			exe, err := m.Executable()
			if err != nil {
				return err
			}
			if err := payload(w.CreateExecutable(m.Metadata.Executable, true))(exe); err != nil {
				return err
			}
			for _, b := range m.Tensors() {
				p, err := m.ReadTensor(b.Name)
				if err != nil {
					return err
				}
				if err := w.WriteTensor(b.Name, b.Info, p); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		again, err := popef.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		checkModel(t, f, again)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal("a closed model holds its file: ", err)
		}
	}
}
