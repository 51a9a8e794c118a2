package popef_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
)

// joinedAnchors are those of a model that moves b and a as one: in its file, and as they are seen.
func joinedAnchors() (seen []popef.Anchor, all []popef.JoinedInput) {
	info := func(t popef.DataType, shape ...int64) popef.TensorInfo {
		return popef.TensorInfo{DataType: t, Shape: shape}
	}
	run := func(name string, i popef.TensorInfo) popef.Anchor {
		a := in(name, i)
		a.Programs = []uint32{5}
		return a
	}
	out := run("y", info(popef.F32, 2))
	out.Type, out.Handle = popef.Output, "d2h_y"
	seen = []popef.Anchor{run("b", info(popef.F32)), run("big", info(popef.F32, 100)), run("a", info(popef.S64, 2)), out, run("z", info(popef.U8, 0))}
	return seen, []popef.JoinedInput{{Anchor: run("all", info(popef.U64, 3)), Fields: []popef.JoinedField{{Anchor: 0, Offset: 16}, {Anchor: 2}, {Anchor: 4}}}}
}

// joinedFile writes such a model, with a plan and anchors that may be changed.
func joinedFile(t *testing.T, change func(*popef.Metadata, *string), more ...writeFunc) (*popef.Model, error) {
	t.Helper()
	seen, all := joinedAnchors()
	file, data := popef.JoinInputs(&popef.Metadata{Executable: "e", Anchors: seen, ProgramFlow: popef.ProgramFlow{Main: []uint32{5}}}, all)
	plan := string(data)
	if change != nil {
		change(&file, &plan)
	}
	blob := func(w *popef.Writer) error { return payload(w.CreateOpaque(popef.JoinedBlob, "e"))([]byte(plan)) }
	_, m, err := files(t, append([]writeFunc{func(w *popef.Writer) error { return w.WriteMetadata(&file) }, executable("e"), blob}, more...))
	if err != nil {
		return nil, err
	}
	return m[0], nil
}

// TestJoinedInputs reads inputs that a file moves as one.
func TestJoinedInputs(t *testing.T) {
	m, err := joinedFile(t, nil)
	require.NoError(t, err)
	seen, all := joinedAnchors()
	for i := range seen {
		seen[i].Repeats = m.Metadata.Anchors[i].Repeats
		require.True(t, seen[i].Info.Equal(m.Metadata.Anchors[i].Info))
		seen[i].Info = m.Metadata.Anchors[i].Info
	}
	require.Equal(t, seen, m.Metadata.Anchors)
	require.Equal(t, all[0].Fields, m.Joined()[0].Fields)
	require.Equal(t, "h2d_all", m.Joined()[0].Anchor.Handle)
	var names []string
	for _, a := range m.MetadataBlob().Metadata.Anchors {
		names = append(names, a.Name)
	}
	require.Equal(t, []string{"all", "big", "y"}, names)
	require.Equal(t, m.Joined(), m.Select(5).Joined(), "who runs one program needs the plan too")
}

// TestJoinedInputsRefused holds plans against files that they do not fit.
func TestJoinedInputsRefused(t *testing.T) {
	edit := func(from, to string) func(*popef.Metadata, *string) {
		return func(_ *popef.Metadata, plan *string) {
			if !strings.Contains(*plan, from) {
				t.Errorf("%s is not in %s", from, *plan)
			}
			*plan = strings.Replace(*plan, from, to, 1)
		}
	}
	anchor := func(change func(*popef.Anchor)) func(*popef.Metadata, *string) {
		return func(m *popef.Metadata, _ *string) { change(&m.Anchors[0]) }
	}
	tests := []struct {
		name   string
		change func(*popef.Metadata, *string)
		more   []writeFunc
		want   string
	}{
		{"no JSON", func(_ *popef.Metadata, plan *string) { *plan = "{" }, nil, `it is not read as JSON`},
		{"too long", func(_ *popef.Metadata, plan *string) { *plan += strings.Repeat(" ", 4<<20) }, nil, "want at most 4194304"},
		{"no such anchor", edit(`"h2d_all"`, `"h2d_none"`), nil, `joined input "all": the metadata has no anchor of this name alone with the handle "h2d_none"`},
		{"anchor of another name", edit(`"all"`, `"none"`), nil, `joined input "none": the metadata has no anchor`},
		{"two anchors of the handle", func(m *popef.Metadata, _ *string) { m.Anchors[1].Handle = "h2d_all" }, nil, `joined input "all": the metadata has no anchor of this name alone`},
		{"an output", edit(`"anchor":"all","handle":"h2d_all"`, `"anchor":"y","handle":"d2h_y"`), nil, `joined input "y": its anchor is an output, want an input`},
		{"other bytes", anchor(func(a *popef.Anchor) { a.Info.Shape = []int64{4} }), nil, `joined input "all": its anchor is U64 [4], 32 bytes, and the blob says 24`},
		{"a remote buffer", anchor(func(a *popef.Anchor) { a.RemoteBuffer = true }), nil, "its anchor is a remote buffer or the seed"},
		{"the seed", func(m *popef.Metadata, _ *string) { m.SeedHandle = "h2d_all" }, nil, "its anchor is a remote buffer or the seed"},
		{"data for all", nil, []writeFunc{tensor("all", popef.TensorInfo{DataType: popef.U64, Shape: []int64{3}})}, "the files carry data for its anchor"},
		{"data for a field", func(m *popef.Metadata, plan *string) { m.Anchors[1].Name = "a" },
			[]writeFunc{tensor("a", popef.TensorInfo{DataType: popef.F32, Shape: []int64{100}})}, `field "a": the files carry data of this name`},
		{"handle of an anchor", edit(`"h2d_a"`, `"h2d_big"`), nil, `field "a": its handle "h2d_big" is that of anchor "big" too`},
		{"name of an anchor", edit(`"name":"a"`, `"name":"big"`), nil, `field "big": 2 inputs that program 5 moves have this name`},
		{"no such place", edit(`"place":4`, `"place":5`), nil, `field "z": it is anchor 5, and there are 5 with the fields`},
		{"past the end", edit(`"offset":16`, `"offset":24`), nil, `field "b": 4 bytes from byte 24 on run past the end`},
		{"type without a size", edit(`"S64"`, `"DataType(99)"`), nil, `field "a": there is no element type "DataType(99)"`},
		{"two plans", nil, []writeFunc{opaque(popef.JoinedBlob, "e")}, "there is one already at"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := joinedFile(t, tt.change, tt.more...)
			require.ErrorIs(t, err, popef.ErrJoined)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, `(opaque "popefgen.concat")`)
			require.ErrorContains(t, err, "hint: compile the model again, with or without --concat-inputs")
		})
	}
}
