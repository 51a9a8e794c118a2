package popef_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	capnp "capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/internal/wire"
)

type writeFunc = func(*popef.Writer) error

func metadata(executable string, anchors ...popef.Anchor) writeFunc {
	return func(w *popef.Writer) error {
		return w.WriteMetadata(&popef.Metadata{Executable: executable, Anchors: anchors})
	}
}

func executable(name string) writeFunc {
	return func(w *popef.Writer) error { return payload(w.CreateExecutable(name, false))([]byte(name)) }
}

func opaque(name, executable string) writeFunc {
	return func(w *popef.Writer) error { return payload(w.CreateOpaque(name, executable))([]byte(name)) }
}

func tensor(name string, info popef.TensorInfo) writeFunc {
	return func(w *popef.Writer) error {
		n, _ := info.SizeInBytes()
		return w.WriteTensor(name, info, make([]byte, n))
	}
}

func feed(name string, info popef.TensorInfo) writeFunc {
	return func(w *popef.Writer) error { _, err := w.CreateFeed(name, info, 0); return err }
}

func in(name string, info popef.TensorInfo) popef.Anchor {
	return popef.Anchor{Name: name, Handle: "h2d_" + name, Info: info, Type: popef.Input}
}

// files links one file per argument.
func files(t *testing.T, fs ...[]writeFunc) (*popef.Reader, []*popef.Model, error) {
	t.Helper()
	r := popef.NewReader()
	for i, f := range fs {
		// A Writer each, so that names may repeat.
		var all []byte
		for _, fn := range f {
			all = append(all, write(t, fn)...)
		}
		require.NoError(t, r.AddBytes(fmt.Sprintf("file%d", i), all))
	}
	m, err := r.Models()
	return r, m, err
}

func one(fs ...writeFunc) []writeFunc { return fs }

func TestLinkErrors(t *testing.T) {
	reshaped := popef.TensorInfo{Shape: []int64{2, 1}, DataType: popef.F32}
	retyped := popef.TensorInfo{Shape: []int64{1, 2}, DataType: popef.S32}
	flat := popef.TensorInfo{Shape: []int64{1}, DataType: popef.F32}
	scalar := popef.TensorInfo{DataType: popef.F32}
	cases := []struct {
		name  string
		files [][]writeFunc
		is    error
		want  string
	}{
		{"duplicate executable", [][]writeFunc{one(metadata("e"), executable("e")), one(executable("e"))},
			popef.ErrExecutableName, `file1@0x0: blob 0 (executable "e"): there is one already at file0@`},
		{"missing executable", [][]writeFunc{one(metadata("e"), executable("f"))},
			popef.ErrMissingExecutable, `its executable "e" is in none of the files (1 executables found); hint: add the file`},
		{"metadata twice", [][]writeFunc{one(metadata("e"), executable("e"), metadata("e"))},
			popef.ErrDuplicateMetadata, `executable "e" already has the metadata at 0x0: blob 0 (metadata)`},
		{"tensor and feed", [][]writeFunc{one(metadata("e", in("w", wInfo)), executable("e"), feed("w", wInfo), tensor("w", wInfo))},
			popef.ErrAmbiguousData, `(feed data "w"): its anchor has tensor data too`},
		{"other shape", [][]writeFunc{one(metadata("e", in("w", wInfo)), executable("e"), tensor("w", reshaped))},
			popef.ErrMismatch, `(tensor data "w"): data is F32 [2 1], its anchor (metadata at 0x0: blob 0 (metadata)) is F32 [1 2]; hint:`},
		{"other type", [][]writeFunc{one(metadata("e", in("w", wInfo)), executable("e"), tensor("w", retyped))},
			popef.ErrMismatch, "data is S32 [1 2]"},
		{"scalar for [1]", [][]writeFunc{one(metadata("e", in("w", flat)), executable("e"), tensor("w", scalar))},
			popef.ErrMismatch, "data is F32 [], "},
		{"feed of other shape", [][]writeFunc{one(metadata("e", in("w", wInfo)), executable("e"), feed("w", reshaped))},
			popef.ErrMismatch, `(feed data "w"): data is F32 [2 1]`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, m, err := files(t, c.files...)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, m)
			var e *popef.Error
			require.ErrorAs(t, err, &e)
		})
	}
	t.Run("all at once", func(t *testing.T) {
		_, _, err := files(t, one(metadata("e", in("w", wInfo)), executable("e"), tensor("w", retyped), metadata("f"), metadata("e")))
		require.ErrorIs(t, err, popef.ErrMismatch)
		require.ErrorIs(t, err, popef.ErrMissingExecutable)
		require.ErrorIs(t, err, popef.ErrDuplicateMetadata)
	})
	t.Run("bounded list", func(t *testing.T) {
		fs := one(executable("e"), metadata("e"))
		for range 200 {
			fs = append(fs, metadata("e"))
		}
		_, _, err := files(t, fs)
		require.Len(t, strings.Split(err.Error(), "\n"), 101)
		require.ErrorContains(t, err, "and 100 more")
	})
	t.Run("unnamed executable", func(t *testing.T) {
		parts := take(t, small(t))
		parts[1].info = message(t, func(s *capnp.Segment) {
			_, err := wire.NewRootPoplarExecutable(s)
			require.NoError(t, err)
		})
		r := popef.NewReader()
		require.NoError(t, r.AddBytes("f", put(t, asSpecified, parts...)))
		_, err := r.Models()
		require.ErrorIs(t, err, popef.ErrExecutableName)
		require.ErrorContains(t, err, "executable has no name")
	})
}

func TestLinkWarnings(t *testing.T) {
	out := in("y", wInfo)
	out.Type = popef.Output
	_, models, err := files(t, one(
		metadata("e", in("w", wInfo), out), executable("e"), executable("unused"),
		tensor("w", wInfo), func(w *popef.Writer) error { return w.WriteTensor("w", wInfo, wData) },
		tensor("y", wInfo), feed("stray", wInfo), opaque("popart", "elsewhere"), opaque("popart", "e"),
	))
	require.NoError(t, err)
	require.Len(t, models, 1)
	m := models[0]
	for _, want := range []string{
		`(tensor data "w"): ignored: tensor data of that name is already at file0@`,
		`(executable "unused"): no metadata describes it`,
		`(tensor data "y"): no input anchor of that name takes it`,
		`(feed data "stray"): no input anchor of that name takes it`,
		`(opaque "popart"): it belongs to the executable "elsewhere", of which there is no model`,
	} {
		require.Contains(t, texts(m.Warnings()), want)
	}
	require.Len(t, m.Warnings(), 5)
	p, ok := m.TensorData("w")
	require.True(t, ok)
	require.Equal(t, make([]byte, 8), p, "the first wins")
	_, ok = m.TensorData("y")
	require.False(t, ok)
	require.Len(t, m.Opaques(), 1)
	require.Len(t, m.Tensors(), 1)
	require.Empty(t, m.Feeds())
}

func TestSeveralModels(t *testing.T) {
	r, models, err := files(t,
		one(metadata("a", in("w", wInfo), in("v", xInfo)), executable("a"), opaque("popart", "b")),
		one(executable("b"), metadata("b", in("w", wInfo))),
		one(tensor("w", wInfo), tensor("v", xInfo)))
	require.NoError(t, err)
	require.Len(t, models, 2)
	require.Empty(t, r.Warnings())
	for i, name := range []string{"a", "b"} {
		require.Equal(t, name, models[i].Metadata.Executable)
		exe, err := models[i].Executable()
		require.NoError(t, err)
		require.Equal(t, name, string(exe))
		_, ok := models[i].TensorData("w")
		require.True(t, ok)
		require.Len(t, models[i].Opaques(), i)
		require.NoError(t, models[i].Close(), "the reader owns the files")
	}
	_, ok := models[1].TensorData("v")
	require.False(t, ok)

	both := append(write(t, func(w *popef.Writer) error { return errors.Join(metadata("a")(w), executable("a")(w)) }),
		write(t, func(w *popef.Writer) error { return errors.Join(metadata("b")(w), executable("b")(w)) })...)
	_, err = popef.LoadBytes("both", both)
	require.ErrorIs(t, err, popef.ErrSeveralModels)
	require.ErrorContains(t, err, `second of 2 models (executables "a" and "b")`)
}

func TestAddingLinksAnew(t *testing.T) {
	r := popef.NewReader()
	m, err := r.Models()
	require.NoError(t, err)
	require.Empty(t, m)
	require.NoError(t, r.AddBytes("empty", nil))
	require.NoError(t, r.AddBytes("meta", write(t, metadata("e", in("w", wInfo)))))
	_, err = r.Models()
	require.ErrorIs(t, err, popef.ErrMissingExecutable)
	require.NoError(t, r.AddBytes("exe", write(t, executable("e"))))
	require.Error(t, r.AddBytes("bad", []byte("not a model")))
	m, err = r.Models()
	require.NoError(t, err)
	require.Len(t, m, 1)
	require.NotContains(t, m[0].Files(), "bad")
	_, ok := m[0].TensorData("w")
	require.False(t, ok)
	require.NoError(t, r.AddBytes("data", write(t, tensor("w", wInfo))))
	m, err = r.Models()
	require.NoError(t, err)
	_, ok = m[0].TensorData("w")
	require.True(t, ok)
	require.Equal(t, []string{"empty", "meta", "exe", "data"}, m[0].Files())
}

func TestLoadWithoutModel(t *testing.T) {
	_, err := popef.Load()
	require.ErrorIs(t, err, popef.ErrNoModel)
	_, err = popef.LoadBytes("empty.popef", nil)
	require.ErrorIs(t, err, popef.ErrNoModel)
	require.EqualError(t, err, "empty.popef: no metadata among 0 blobs, hence no model; hint: add the file that holds the metadata and the executable")
	_, err = popef.Load(filepath.Join(t.TempDir(), "absent.popef"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = popef.Load(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
	dir := t.TempDir()
	for name, b := range map[string][]byte{"a": write(t, executable("e")), "b": write(t, tensor("w", wInfo)), "c": nil} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
	}
	_, err = popef.Load(filepath.Join(dir, "c"), filepath.Join(dir, "a"), filepath.Join(dir, "b"))
	require.ErrorIs(t, err, popef.ErrNoModel)
	require.ErrorContains(t, err, "and 2 more: no metadata among 2 blobs")
}

func TestDataLengths(t *testing.T) {
	remote := in("w", wInfo)
	remote.RemoteBuffer, remote.Repeats = true, 3
	base := one(metadata("e", in("w", wInfo)), executable("e"))
	info := tensorInfoMessage(t, "w", popef.F32, 1, 2)
	cases := []struct {
		name    string
		base    []writeFunc
		n, want int
		err     error
		warn    string
	}{
		{name: "exact", base: base, n: 8, want: 8},
		{name: "longer", base: base, n: 11, want: 8, warn: "11 bytes of data, F32 [1 2] needs 8; the rest is ignored"},
		{name: "shorter", base: base, n: 7, err: popef.ErrShortData},
		{name: "empty", base: base, n: 0, err: popef.ErrShortData},
		{name: "remote, all blocks", base: one(metadata("e", remote), executable("e")), n: 24, want: 24},
		{name: "remote, one block", base: one(metadata("e", remote), executable("e")), n: 8, want: 8},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var file []byte
			for _, fn := range c.base {
				file = append(file, write(t, fn)...)
			}
			file = append(file, put(t, asSpecified, part{kind: 2, info: info, payload: make([]byte, c.n)})...)
			m, err := popef.LoadBytes("f", file)
			require.ErrorIs(t, err, c.err)
			if c.err != nil {
				require.ErrorContains(t, err, fmt.Sprintf("%d bytes of data, F32 [1 2] needs 8", c.n))
				return
			}
			p, ok := m.TensorData("w")
			require.True(t, ok)
			require.Len(t, p, c.want)
			s, ok := m.OpenTensor("w")
			require.True(t, ok)
			require.EqualValues(t, c.want, s.Size())
			require.Equal(t, c.warn == "", len(m.Warnings()) == 0)
			require.Contains(t, texts(m.Warnings()), c.warn)
		})
	}
}
