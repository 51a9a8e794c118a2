package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/oip"
)

// write makes a file, with the folders above it.
func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestScan finds the models of a folder in all its forms.
func TestScan(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret.popef")
	write(t, outside, "x")
	for _, name := range []string{
		"flat.popef", "upper.ONNX", "notes.txt", ".hidden.popef", "plain/any.onnx",
		"many/2/a.popef", "many/10/a.popef", "many/10/b.popef", "many/010/c.popef", "many/x/d.popef",
		"testdata/golden/golden.json", "hollow/3/readme", "linked/1/m.popef", "zeros/007/a.popef",
	} {
		write(t, filepath.Join(dir, name), "x")
	}
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "escape.popef")))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(dir, "escapes")))
	require.NoError(t, os.Symlink(filepath.Dir(dir), filepath.Join(dir, "above")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "linked", "1"), filepath.Join(dir, "linked", "2")))
	found, err := Scan(Root{Path: dir})
	require.NoError(t, err)
	var got []string
	for _, f := range found {
		line := f.Name + " " + f.Version
		for _, p := range f.Paths {
			rel, err := filepath.Rel(dir, p)
			require.NoError(t, err)
			line += " " + rel
		}
		if f.Err != nil {
			line += " REFUSED"
		}
		got = append(got, line)
	}
	require.Equal(t, []string{
		"above 1 above REFUSED", "escape 1 escape.popef REFUSED", "escapes 1 escapes REFUSED", "flat 1 flat.popef", "hollow 3 hollow/3 REFUSED",
		"linked 2 linked/2/m.popef", "many 10 many/10/a.popef many/10/b.popef", "plain 1 plain/any.onnx", "upper 1 upper.ONNX",
	}, got)
	for _, f := range found[:3] {
		require.ErrorContains(t, f.Err, "outside of the folder that is served")
	}

	one, err := Scan(Root{Path: filepath.Join(dir, "flat.popef")})
	require.NoError(t, err)
	require.Equal(t, "flat", one[0].Name)
	_, err = Scan(Root{Path: filepath.Join(dir, "nothing")})
	require.Error(t, err)
	write(t, filepath.Join(dir, "flat.onnx"), "x")
	_, err = Scan(Root{Path: dir})
	require.ErrorContains(t, err, `the model "flat" is there twice`)
}

// server is a Server that remembers what it was asked.
type server struct {
	serving map[string]string // name: what is in the model's file
	refused map[string]string
	closed  []string

	forgotten []string
}

func (s *server) Load(ctx context.Context, m oip.Model, version string) error {
	text, name := m.(*model).text, m.(*model).name
	if strings.Contains(text, "breaking") {
		s.Refuse(name, version, errors.New("its contract is another"))
		return errors.Join(errors.New("its contract is another"), m.Shutdown(ctx))
	}
	s.serving[name+version] = text
	return nil
}

func (s *server) Unload(name, version string) error {
	delete(s.serving, name+version)
	return nil
}

func (s *server) Refuse(name, version string, reason error) { s.refused[name+version] = reason.Error() }

func (s *server) Forget(name, version string) { s.forgotten = append(s.forgotten, name+version) }

// model is what is in a file.
type model struct {
	oip.Model
	name   string
	text   string
	server *server
}

func (m *model) Shutdown(context.Context) error {
	m.server.closed = append(m.server.closed, m.text)
	return nil
}

func start(t *testing.T, dir string) (*Repository, *server) {
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".more"), 0o700))
	s := &server{serving: map[string]string{}, refused: map[string]string{}}
	return New(s, Options{
		Roots: []Root{{Path: dir}, {Path: filepath.Join(dir, ".more"), All: true}}, Poll: time.Millisecond, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Open: func(_ context.Context, f Found) (oip.Model, error) {
			var text []byte
			for _, p := range f.Paths {
				part, err := os.ReadFile(p)
				if err != nil {
					return nil, err
				}
				text = append(text, part...)
			}
			switch {
			case strings.Contains(string(text), "half"):
				return nil, errors.New("unexpected end of file")
			case strings.Contains(string(text), "moving"):
				if err := os.WriteFile(f.Paths[0], []byte("moved on"), 0o600); err != nil {
					return nil, err
				}
			}
			return &model{name: f.Name, text: string(text), server: s}, nil
		},
	}), s
}

// TestChanges changes files step by step: what serves after one look, when files may still be written, and after the second.
func TestChanges(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.popef")
	write(t, a, "one")
	r, s := start(t, dir)
	ctx := context.Background()
	require.NoError(t, r.LoadAll(ctx))
	require.Equal(t, map[string]string{"a1": "one"}, s.serving)
	for i, c := range []struct {
		change      func()
		first, then string // what serves after the first look and after the second
		refused     string
	}{
		{func() { write(t, a, "longer") }, "a1=one", "a1=longer", ""},
		{func() { write(t, filepath.Join(dir, "b", "1", "m.popef"), "b1") }, "a1=longer", "a1=longer b1=b1", ""},
		{func() { write(t, filepath.Join(dir, "b", "2", "m.popef"), "b2") }, "a1=longer b1=b1", "a1=longer b2=b2", ""},
		{func() { write(t, filepath.Join(dir, "b", "3", "m.popef"), "half of it") }, "a1=longer b2=b2", "a1=longer b2=b2", "b3=unexpected end of file"},
		{func() { require.NoError(t, os.RemoveAll(filepath.Join(dir, "b", "3"))) }, "a1=longer b2=b2", "a1=longer b2=b2", ""},
		{func() { write(t, filepath.Join(dir, "b", "3", "m.popef"), "whole") }, "a1=longer b2=b2", "a1=longer b3=whole", ""},
		{func() { require.NoError(t, os.RemoveAll(filepath.Join(dir, "b", "3"))) }, "a1=longer b3=whole", "a1=longer b2=b2", ""},
		{func() { write(t, a, "breaking change") }, "a1=longer b2=b2", "a1=longer b2=b2", "a1=its contract is another"},
		{func() { write(t, a, "back again") }, "a1=longer b2=b2", "a1=back again b2=b2", ""},
		{func() { require.NoError(t, os.RemoveAll(filepath.Join(dir, "b"))) }, "a1=back again b2=b2", "a1=back again", ""},
		{func() { write(t, a, "moving") }, "a1=back again", "a1=back again", "a1=its files changed while they were read"},
		{func() {}, "a1=back again", "a1=moved on", ""}, // what it was changed to meanwhile
		{func() {
			for _, v := range []string{"1", "2", "3"} {
				write(t, filepath.Join(dir, ".more", "all", v, "m.popef"), "v"+v)
			}
		}, "a1=moved on", "a1=moved on all1=v1 all2=v2 all3=v3", ""},
		{func() { require.NoError(t, os.RemoveAll(filepath.Join(dir, ".more", "all", "2"))) }, "a1=moved on all1=v1 all2=v2 all3=v3", "a1=moved on all1=v1 all3=v3", ""},
	} {
		clear(s.refused)
		c.change()
		require.NoError(t, r.look(ctx))
		require.Equal(t, c.first, text(s.serving), "step %d", i)
		require.NoError(t, r.look(ctx))
		require.Equal(t, c.then, text(s.serving), "step %d", i)
		require.Equal(t, c.refused, text(s.refused), "step %d", i)
	}
	require.Equal(t, []string{"breaking change", "moving"}, s.closed)
	require.Equal(t, []string{"b3"}, s.forgotten, "of those that were refused and are gone")
	before := s.serving["a1"]
	for range 3 {
		require.NoError(t, r.look(ctx))
	}
	require.Equal(t, before, s.serving["a1"])
}

func text(m map[string]string) string {
	var all []string
	for k, v := range m {
		all = append(all, fmt.Sprintf("%s=%s", k, v))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestExplicit loads and unloads by name, also while the files are watched.
func TestExplicit(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.popef"), "one")
	r, s := start(t, dir)
	ctx := context.Background()
	require.ErrorContains(t, r.Load(ctx, "../a"), "there is no such model")
	require.ErrorContains(t, r.Unload(ctx, "a"), "not loaded")
	require.NoError(t, r.Load(ctx, "a"))
	require.Equal(t, "a1=one", text(s.serving))
	require.NoError(t, r.Unload(ctx, "a"))
	require.Empty(t, s.serving)
	for range 3 {
		require.NoError(t, r.look(ctx))
	}
	require.Empty(t, s.serving, "what was unloaded stays so")
	require.NoError(t, r.Load(ctx, "a"))
	require.Equal(t, "a1=one", text(s.serving))

	b := filepath.Join(dir, "b.popef")
	write(t, b, "half of it")
	require.EqualError(t, r.Load(ctx, "b"), `model "b": unexpected end of file`)
	require.Equal(t, "b1=unexpected end of file", text(s.refused))
	require.NoError(t, os.Remove(b))
	require.ErrorContains(t, r.Load(ctx, "b"), "there is no such model")
	require.Equal(t, []string{"b1"}, s.forgotten)
}

// TestLoadNamed loads what is named. Versions of a model that serves all of them go with their files once it is loaded again.
func TestLoadNamed(t *testing.T) {
	dir := t.TempDir()
	r, s := start(t, dir)
	ctx := context.Background()
	for _, v := range []string{"1", "2"} {
		write(t, filepath.Join(dir, ".more", "all", v, "m.popef"), "v"+v)
		write(t, filepath.Join(dir, "new", v, "m.popef"), "v"+v)
	}
	write(t, filepath.Join(dir, "a.popef"), "one")
	require.NoError(t, r.LoadNamed(ctx, nil))
	require.Empty(t, s.serving)
	require.NoError(t, r.LoadNamed(ctx, []string{"all", "none"}))
	require.Equal(t, "all1=v1 all2=v2", text(s.serving))
	versions, err := r.Versions()
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"a": {"1"}, "all": {"1", "2"}, "new": {"1", "2"}}, versions)

	require.NoError(t, os.RemoveAll(filepath.Join(dir, ".more", "all", "1")))
	require.NoError(t, r.Load(ctx, "all"))
	require.Equal(t, "all2=v2", text(s.serving))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, ".more", "all")))
	require.ErrorContains(t, r.Load(ctx, "all"), "failed to load 'all'")
	require.Equal(t, "all2=v2", text(s.serving), "it serves until it is unloaded")
	require.NoError(t, r.Load(ctx, "new"))
	require.Equal(t, "all2=v2 new2=v2", text(s.serving))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "new", "2")))
	require.NoError(t, r.Load(ctx, "new"))
	require.Equal(t, "all2=v2 new1=v1", text(s.serving))
}

// TestWatch sees a change without being asked, and ends with its context.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.popef")
	write(t, a, "one")
	r, s := start(t, dir)
	require.NoError(t, r.LoadAll(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { r.Watch(ctx); close(over) }()
	write(t, a, "other")
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return s.serving["a1"] == "other"
	}, 10*time.Second, time.Millisecond)
	cancel()
	<-over
}
