package family_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

func TestSizesOfInputs(t *testing.T) {
	f := want()
	for _, c := range []struct {
		shapes map[string][]int64
		want   []int64
		err    string
	}{
		{map[string][]int64{"tokens": {4, 16}, "mask": {4, 16}, "other": {1}}, []int64{4, 16}, ""},
		{nil, []int64{-1, -1}, ""},
		{map[string][]int64{"tokens": {4, 16}, "mask": {4, 32}}, nil, `input "mask" is [4 32], which makes "seq" 32, and input "tokens" makes it 16`},
		{map[string][]int64{"tokens": {4}}, nil, "found 1 dimensions, want 2"},
	} {
		got, err := f.Sizes(c.shapes)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

// TestSizesThatFollow checks inputs whose sizes follow from a dimension.
func TestSizesThatFollow(t *testing.T) {
	axis := func(mul, add, div int64) []family.Axis {
		return []family.Axis{{Sizes: []int64{0, 0}, Mul: mul, Add: add, Div: div}}
	}
	f := &family.Family{Dims: []family.Dim{{Name: "past"}}, Members: []family.Member{{Sizes: []int64{4}}, {Sizes: []int64{8}}}, Tensors: []family.Tensor{
		{Name: "mask", Type: popef.Input, Axes: axis(1, 1, 1)}, {Name: "past_key", Type: popef.Input, Axes: axis(1, 0, 1)},
		{Name: "pairs", Type: popef.Input, Axes: axis(2, 0, 1)}, {Name: "half", Type: popef.Input, Axes: axis(1, 1, 2)},
	}}
	for _, c := range []struct {
		shapes map[string][]int64
		want   int64
		err    string
	}{
		{map[string][]int64{"mask": {5}, "past_key": {4}}, 4, ""},
		{map[string][]int64{"mask": {6}, "past_key": {4}}, 0, `input "mask" is [6]: dimension 0 is 6, and input "past_key" makes "past" 4, from which it follows as 5: give sizes that agree`},
		{map[string][]int64{"mask": {5}}, 4, ""},
		{map[string][]int64{"pairs": {8}}, 4, ""},
		{map[string][]int64{"pairs": {7}}, 0, `no size of "past" makes dimension 0 7`},
		{map[string][]int64{"half": {3}}, 5, ""},
		{map[string][]int64{"half": {3}, "mask": {7}, "past_key": {6}}, 6, ""},
		{map[string][]int64{"mask": {0}}, 0, `no size of "past" makes dimension 0 0`},
		{map[string][]int64{"mask": {5}, "pairs": {10}}, 0, `input "mask" makes "past" 4, from which it follows as 8`},
	} {
		got, err := f.Sizes(c.shapes)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []int64{c.want}, got)
	}
}

func TestChooseMember(t *testing.T) {
	f := want()
	for _, c := range []struct {
		sizes  []int64
		member int
		exact  []int64
	}{
		{[]int64{1, 16}, 0, []int64{1, 16}},
		{[]int64{2, 16}, 1, []int64{2, 16}},
		{[]int64{2, 17}, 2, []int64{2, 17}},
		{[]int64{-1, -1}, 0, []int64{1, 16}},
		{[]int64{-1, 20}, 2, []int64{4, 20}},
		{[]int64{5, 16}, -1, nil},
		{[]int64{0, 16}, -1, nil},
	} {
		m, exact, err := f.Choose(c.sizes)
		require.Equal(t, c.member, m, c.sizes)
		require.Equal(t, c.exact, exact)
		require.Equal(t, c.member < 0, err != nil)
	}
	_, _, err := f.Choose([]int64{5, 16})
	require.ErrorContains(t, err, "the model has no size for batch=5 seq=16, but batch=1 seq=16; batch=4 seq=16; batch=4 seq=32: give one of these")
	f.Dims[1].Pads = nil
	_, _, err = f.Choose([]int64{4, 20})
	require.ErrorContains(t, err, `along "seq" nothing may be filled up`)
	f = want()
	f.Tensors[2].Axes[1].Dim = -1
	_, _, err = f.Choose([]int64{2, 16})
	require.ErrorContains(t, err, "no size for", "nobody could cut y back")
	f = want() // a window of six over tokens: four have none
	f.Tensors[2].Axes[1].Mul, f.Tensors[2].Axes[1].Add, f.Tensors[2].Axes[1].Div = 1, -5, 1
	require.EqualValues(t, 5, f.Least(1))
	_, _, err = f.Choose([]int64{1, 5})
	require.NoError(t, err)
	_, _, err = f.Choose([]int64{1, 4})
	require.ErrorContains(t, err, `along "seq" nothing smaller than 5 is filled up`)
	y := want().Tensor("y", popef.Output)
	require.Equal(t, []int64{2, 9, 3}, y.Shape(2, []int64{2, 20}))
}

func TestMove(t *testing.T) {
	big := make([]byte, 12)
	family.Move(big, []int64{3, 4}, []byte{1, 2, 3, 4}, []int64{2, 2}, 1, []byte{9})
	require.Equal(t, []byte{1, 2, 9, 9, 3, 4, 9, 9, 9, 9, 9, 9}, big)
	small := []byte{7, 7, 7, 7}
	family.Move(small, []int64{2, 2}, big, []int64{3, 4}, 1, nil)
	require.Equal(t, []byte{1, 2, 3, 4}, small)
	one := make([]byte, 2)
	family.Move(one, nil, []byte{5, 6}, nil, 2, nil)
	require.Equal(t, []byte{5, 6}, one)
	none := []byte{}
	family.Move(none, []int64{0, 4}, big, []int64{3, 4}, 1, []byte{9})
	wide := make([]byte, 4)
	family.Move(wide, []int64{1, 2}, nil, []int64{0, 2}, 2, []byte{1, 2})
	require.Equal(t, []byte{1, 2, 1, 2}, wide)
}

// TestSelect has a member's model be one of a single size.
func TestSelect(t *testing.T) {
	m := &popef.Model{Metadata: *three()}
	f, err := family.Of(m)
	require.NoError(t, err)
	one := f.Single(m, 1)
	require.Equal(t, []uint32{10}, one.Metadata.ProgramFlow.Main)
	require.Len(t, m.Metadata.ProgramFlow.Main, 3)
	none, err := family.Of(one)
	require.NoError(t, err)
	require.Nil(t, none)
}
