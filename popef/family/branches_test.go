package family_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// fused is the metadata of two models, a detector and a reader, in one file, with a weight.
func fused() *popef.Metadata {
	info := func(t popef.DataType, shape ...int64) popef.TensorInfo {
		return popef.TensorInfo{DataType: t, Shape: shape}
	}
	m := &popef.Metadata{Executable: "1", ReplicationFactor: 1, DeviceIterations: 1}
	m.ProgramFlow = popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5, 10}}
	m.Anchors = []popef.Anchor{
		{Name: "detector/boxes", Handle: "b", Programs: []uint32{5}, Info: info(popef.F32, 4), Type: popef.Output},
		{Name: "detector/image", Handle: "i", Programs: []uint32{5}, Info: info(popef.F32, 8, 8), Type: popef.Input},
		{Name: "reader/image", Handle: "r", Programs: []uint32{10}, Info: info(popef.U8, 8), Type: popef.Input},
		{Name: "reader/text", Handle: "t", Programs: []uint32{10}, Info: info(popef.S64), Type: popef.Output},
		{Name: "w", Handle: "w", Programs: []uint32{0}, Info: info(popef.F32, 3), Type: popef.Input},
	}
	return m
}

const branches = `{"version":1,"branches":[{"name":"reader","program":10},{"name":"detector","program":5}]}`

func TestBranches(t *testing.T) {
	got, err := family.BranchesOfMetadata(fused(), carries, []byte(branches))
	require.NoError(t, err)
	// Inputs stand before outputs, and branches as in the blob.
	require.Equal(t, []family.Branch{{Name: "reader", Program: 10, Anchors: []int{2, 3}}, {Name: "detector", Program: 5, Anchors: []int{1, 0}}}, got)
	again, err := family.BranchesOfMetadata(fused(), carries, family.EncodeBranches(got))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(got, again))

	m := &popef.Model{Metadata: *fused()}
	one := got[0].Single(m)
	require.Equal(t, []uint32{10}, one.Metadata.ProgramFlow.Main)
	require.Equal(t, "image", one.Metadata.Anchors[2].Name)
	require.Equal(t, "detector/image", one.Metadata.Anchors[1].Name, "of another branch")
	require.Equal(t, fused().Anchors, m.Metadata.Anchors, "the model stays as it is")

	// Without the blob it is no family of the two, whatever their shapes are.
	f, err := family.OfMetadata(fused(), carries, nil)
	require.NoError(t, err)
	require.Nil(t, f)
}

// TestBranchesRefused changes one thing of a file that is right, and wants its fault named.
func TestBranchesRefused(t *testing.T) {
	for _, c := range []struct {
		old, new, want string
		change         func(m *popef.Metadata)
	}{
		{old: `"version":1`, new: `"version":2`, want: "of version 2"},
		{old: `{"version"`, new: `["version"`, want: "JSON"},
		{old: `"program":10`, new: `"programm":10`, want: `unknown field "programm"`},
		{old: "]}", new: "]}{}", want: "more behind"},
		{old: `[{"name":"reader","program":10},{"name":"detector","program":5}]`, new: "[]", want: "no branch"},
		{old: `"program":10`, new: `"program":11`, want: `branch "reader" is program 11, which is no main program of the program flow [5 10]`},
		{old: `"program":10`, new: `"program":5`, want: `branches "reader" and "detector" are both program 5`},
		{old: `,{"name":"detector","program":5}`, new: "", want: "main program 5 is no branch"},
		{old: `"reader"`, new: `"detector"`, want: `two branches are called "detector"`},
		{old: `"reader"`, new: `"de_Tector"`, want: "the same name in Go"},
		{old: `"reader"`, new: `"1st"`, want: "want a letter"},
		{old: `"reader"`, new: `"réader"`, want: "want a letter"},
		{old: `"reader"`, new: `""`, want: "is empty"},
		{old: `"reader"`, new: `"` + strings.Repeat("r", 65) + `"`, want: "65 characters"},
		{old: `"reader"`, new: `"writer"`, want: `branch "writer" moves the input "reader/image", which is not called writer/NAME`},
		{want: `not called reader/NAME`, change: func(m *popef.Metadata) { m.Anchors[3].Name = "text" }},
		{want: `not called reader/NAME`, change: func(m *popef.Metadata) { m.Anchors[3].Name = "reader/" }},
		{want: `branch "reader" moves the input "detector/image"`, change: func(m *popef.Metadata) { m.Anchors[1].Programs = []uint32{5, 10} }},
		{want: `moves two inputs "reader/image"`, change: func(m *popef.Metadata) { m.Anchors[3].Name, m.Anchors[3].Type = "reader/image", popef.Input }},
		{want: "2 device iterations", change: func(m *popef.Metadata) { m.DeviceIterations = 2 }},
		{want: "has a program twice", change: func(m *popef.Metadata) { m.ProgramFlow.Main = []uint32{5, 10, 10} }},
	} {
		t.Run(c.want, func(t *testing.T) {
			m := fused()
			if c.change != nil {
				c.change(m)
			}
			text := strings.Replace(branches, c.old, c.new, 1)
			_, err := family.BranchesOfMetadata(m, carries, []byte(text))
			require.ErrorIs(t, err, family.ErrBranches)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "compile the model again")
		})
	}
}

func FuzzBranches(f *testing.F) {
	f.Add([]byte(branches))
	f.Add([]byte(`{"version":1,"branches":[{"name":"detector","program":5}]}`))
	f.Add([]byte(strings.Replace(branches, "10", "4294967296", 1)))
	f.Add([]byte(strings.Replace(branches, "reader", "re\\u0061der", 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := family.BranchesOfMetadata(fused(), carries, data)
		if err != nil {
			require.ErrorIs(t, err, family.ErrBranches)
			return
		}
		again, err := family.BranchesOfMetadata(fused(), carries, family.EncodeBranches(got))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(got, again))
	})
}
