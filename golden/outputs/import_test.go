package outputs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
)

func TestMatch(t *testing.T) {
	stored := func(names ...string) (all []Stored) {
		for i, n := range names {
			all = append(all, Stored{n, func(popef.TensorInfo) ([]byte, error) { return []byte{byte(i)}, nil }})
		}
		return all
	}
	ports := []Port{{Anchor: "a"}, {Anchor: "fc/b:0"}}
	for _, c := range []struct {
		names []string
		want  [][]byte
		err   string
	}{
		{[]string{"a", "fc/b:0"}, [][]byte{{0}, {1}}, ""},
		{[]string{"fc_b_0", "a"}, [][]byte{{1}, {0}}, ""},
		{[]string{"a"}, nil, `found outputs "a", want "a", "fc/b:0": each by its name`},
		{[]string{"a", "fc/b:0", "c"}, nil, `found outputs "a", "fc/b:0", "c", want`},
		{[]string{"a", "a"}, nil, `found outputs "a", "a", want`},
		{nil, nil, "found outputs none, want"},
	} {
		got, err := Match("output", ports, stored(c.names...))
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	// One tensor is for one anchor, also if two could be meant.
	_, err := Match("output", []Port{{Anchor: "a/b"}, {Anchor: "a:b"}}, stored("a_b"))
	require.ErrorContains(t, err, `found outputs "a_b", want "a/b", "a:b"`)
	failure := errors.New("cut")
	_, err = Match("input", ports[:1], []Stored{{"a", func(popef.TensorInfo) ([]byte, error) { return nil, failure }}})
	require.ErrorIs(t, err, failure)
	require.ErrorContains(t, err, `input "a": `)
}

// TestImport stores numbers of another program, and compares with them.
func TestImport(t *testing.T) {
	d, dir := newDoubler(), filepath.Join(t.TempDir(), "golden")
	d.fail = errors.New("nothing runs here")
	in := [][]byte{bytesOf([]float32{1, 2, 3, 4, 5, 6})}
	out := [][]byte{bytesOf([]float32{2, 4, 6, 8, 10, 12.005}), {2, 0, 0, 0, 2, 0, 0, 0}}
	require.NoError(t, Import(dir, "theirs", d.Model, in, out, nil))
	d.fail = nil
	s, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]Tolerance{"scores": {Rel: 1e-3, Abs: 1e-2}, "fc/label:0": {}}, s.Tolerances)
	r, err := s.Verify(t.Context(), d.Model)
	require.NoError(t, err)
	require.True(t, r.OK(), r)
	require.Contains(t, r.String(), "at most 0.005 off")

	d.drift = 1
	r, err = s.Verify(t.Context(), d.Model)
	require.NoError(t, err)
	require.False(t, r.OK())

	require.ErrorContains(t, Import(dir, "a/b", d.Model, in, out, nil), "want a plain file name")
	require.NoError(t, Import(dir, "more", d.Model, in, out, map[string]Tolerance{"scores": {ULP: 1}}))
	s, err = Open(dir)
	require.NoError(t, err)
	require.Equal(t, Tolerance{ULP: 1}, s.Tolerances["scores"])
	_, err = os.Stat(filepath.Join(dir, "more.npz"))
	require.NoError(t, err)
}
