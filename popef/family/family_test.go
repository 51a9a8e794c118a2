package family_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// metadata is that of a model of batch × seq tokens, with a weight, whose members are
// programs 5, 10, 11 …; the output y has half as many rows as there are tokens, less one.
func metadata(sizes ...[2]int64) *popef.Metadata {
	m := &popef.Metadata{Executable: "1", ReplicationFactor: 1, DeviceIterations: 1}
	m.ProgramFlow.Load = []uint32{0}
	info := func(t popef.DataType, shape ...int64) popef.TensorInfo {
		return popef.TensorInfo{DataType: t, Shape: shape}
	}
	for i, s := range sizes {
		p := uint32(5)
		suffix := ""
		if i > 0 {
			p = uint32(9 + i)
			suffix = fmt.Sprintf("#%d", p)
		}
		m.ProgramFlow.Main = append(m.ProgramFlow.Main, p)
		m.Anchors = append(m.Anchors,
			popef.Anchor{Name: "y", Handle: "anchor_d2h_y" + suffix, Programs: []uint32{p}, Info: info(popef.F32, s[0], (s[1]-1)/2, 3), Type: popef.Output},
			popef.Anchor{Name: "tokens", Handle: "h2d_tokens" + suffix, Programs: []uint32{p}, Info: info(popef.S64, s[0], s[1]), Type: popef.Input},
			popef.Anchor{Name: "mask", Handle: "h2d_mask" + suffix, Programs: []uint32{p}, Info: info(popef.F32, s[0], s[1]), Type: popef.Input},
			popef.Anchor{Name: "n", Handle: "anchor_d2h_n" + suffix, Programs: []uint32{p}, Info: info(popef.S64), Type: popef.Output})
	}
	m.Anchors = append(m.Anchors, popef.Anchor{Name: "w", Handle: "h2d_w", Programs: []uint32{0}, Info: info(popef.F32, 3), Type: popef.Input})
	return m
}

func carries(name string) bool { return name == "w" }

const described = `{"version":1,
	"dims":[{"name":"batch","rows":true},{"name":"seq","pads":[{"Input":"tokens","Value":"0"},{"Input":"mask","Value":"-1e9"}]}],
	"members":[{"program":5,"sizes":[1,16],"cost":10},{"program":10,"sizes":[4,16],"cost":40},{"program":11,"sizes":[4,32],"cost":80}],
	"tensors":[
		{"name":"tokens","axes":[{"axis":0,"dim":"batch"},{"axis":1,"dim":"seq"}]},
		{"name":"mask","axes":[{"axis":0,"dim":"batch"},{"axis":1,"dim":"seq"}]},
		{"name":"y","output":true,"axes":[{"axis":0,"dim":"batch"},{"axis":1,"dim":"seq","mul":1,"add":-1,"div":2,"count":"n"}]},
		{"name":"n","output":true}]}`

func three() *popef.Metadata {
	return metadata([2]int64{1, 16}, [2]int64{4, 16}, [2]int64{4, 32})
}

func want() *family.Family {
	axis := func(d int, sizes ...int64) family.Axis { return family.Axis{Sizes: sizes, Dim: d, Mul: 1, Div: 1} }
	in := []family.Axis{axis(0, 1, 4, 4), axis(1, 16, 16, 32)}
	return &family.Family{
		Dims: []family.Dim{{Name: "batch", Rows: true}, {Name: "seq", Pads: []family.Pad{{Input: "tokens", Value: "0"}, {Input: "mask", Value: "-1e9"}}}},
		Members: []family.Member{{Program: 5, Sizes: []int64{1, 16}, Cost: 10}, {Program: 10, Sizes: []int64{4, 16}, Cost: 40},
			{Program: 11, Sizes: []int64{4, 32}, Cost: 80}},
		Tensors: []family.Tensor{
			{Name: "tokens", Type: popef.Input, Elem: popef.S64, Axes: in, Anchors: []int{1, 5, 9}},
			{Name: "mask", Type: popef.Input, Elem: popef.F32, Axes: in, Anchors: []int{2, 6, 10}},
			{Name: "y", Type: popef.Output, Elem: popef.F32, Anchors: []int{0, 4, 8}, Axes: []family.Axis{axis(0, 1, 4, 4),
				{Sizes: []int64{7, 7, 15}, Dim: 1, Mul: 1, Add: -1, Div: 2, Count: "n"}, {Size: 3, Dim: -1}}},
			{Name: "n", Type: popef.Output, Elem: popef.S64, Anchors: []int{3, 7, 11}},
		},
	}
}

func TestBlob(t *testing.T) {
	got, err := family.OfMetadata(three(), carries, []byte(described))
	require.NoError(t, err)
	if diff := cmp.Diff(want(), got); diff != "" {
		t.Fatal(diff)
	}
	again, err := family.OfMetadata(three(), carries, got.Encode())
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(got, again))
	y := got.Tensor("y", popef.Output)
	require.EqualValues(t, 3, y.Axes[1].At(8))
	require.EqualValues(t, 15, y.Axes[1].Of(2))
	require.True(t, y.Open())
	require.False(t, got.Tensor("n", popef.Output).Open())
	require.Nil(t, got.Tensor("n", popef.Input))
	require.Equal(t, 1, got.Member([]int64{4, 16}))
	require.Equal(t, -1, got.Member([]int64{2, 16}))
	require.Equal(t, 2, got.Program(11))
	require.True(t, got.Dims[0].Padded() && got.Dims[1].Padded() && got.Members[2].Fits([]int64{2, 17}) && !got.Members[1].Fits([]int64{2, 17}))
}

// TestBlobRefused changes one thing of a blob that is right, and wants its fault named.
func TestBlobRefused(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"version":1`, `"version":2`, "of version 2"},
		{`"version":1`, `"version":2,"version":1`, `the name "version" twice`},
		{`"program":5`, `"program":5,"Program":5`, `the name "program" twice`},
		{`"version":1`, `"version":1,"x":[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]`, "in each other, 17 deep"},
		{`"version":1`, `"version":1,"x":[` + strings.Repeat("{},", 1<<18) + `{}]`, "more than 262144 values"},
		{`"tensors":[`, `"tensors":[` + strings.Repeat("{},", 4096), "it has 4100 run inputs and outputs, want at most 4096"},
		{`{"version"`, `["version"`, "JSON"},
		{`{"name":"n","output":true}]}`, `{"name":"n","output":true}]}}`, "more behind the JSON"},
		{`"program":11`, `"program":7`, "program 7, which is no main program"},
		{`"program":11`, `"program":10`, "two members are program 10"},
		{`{"program":5,"sizes":[1,16],"cost":10},`, ``, "main program 5 is no member"},
		{`[4,32]`, `[4]`, "1 sizes for 2 dimensions"},
		{`[4,32]`, `[4,-1]`, "size -1 of dimension \"seq\""},
		{`[4,32]`, `[4,16]`, "two members have the sizes [4 16]"},
		{`[4,32]`, `[4,33]`, "dimension \"seq\" of 33 elements makes 33, and program 11 has 32"},
		{`"cost":80`, `"cost":-1`, "costs -1"},
		{`{"program":5,"sizes":[1,16],"cost":10},{"program":10,"sizes":[4,16],"cost":40}`, `{"program":10,"sizes":[4,16],"cost":40},{"program":5,"sizes":[1,16],"cost":10}`,
			"sizes [1 16] stands behind that of [4 16]"},
		{`"name":"seq",`, `"name":"batch",`, `dimension 1 is called "batch"`},
		{`{"axis":1,"dim":"seq"}]},
		{"name":"mask"`, `{"axis":1,"dim":"width"}]},
		{"name":"mask"`, `no dimension "width"`},
		{`"mul":1,"add":-1,"div":2`, `"mul":1,"add":-1,"div":0`, "the rule"},
		{`"mul":1,"add":-1,"div":2`, `"mul":1,"add":1,"div":2`, "makes 8, and program 5 has 7"},
		{`"mul":1,"add":-1,"div":2`, `"mul":99999999,"add":-1,"div":2`, "the rule"},
		{`"count":"n"`, `"count":"y"`, "is counted by \"y\""},
		{`"count":"n"`, `"count":"m"`, "is counted by \"m\""},
		{`{"name":"mask","axes":[{"axis":0,"dim":"batch"},{"axis":1,"dim":"seq"}]},`, ``, "moves 4 run inputs and outputs, and the blob names 3"},
		{`"name":"mask","axes"`, `"name":"w","axes"`, `has no input "w"`},
		{`{"name":"mask","axes"`, `{"name":"tokens","axes"`, `"tokens" is there twice`},
		{`"Input":"mask"`, `"Input":"w"`, `pads "w", want an input`},
		{`"Input":"mask"`, `"Input":"tokens"`, `pads "tokens", want an input, once`},
		{`,{"Input":"mask","Value":"-1e9"}`, ``, `no padding for the input "mask"`},
		{`"-1e9"`, `"zero"`, `with "zero", want a number of type F32`},
		{`"-1e9"`, `"1e300"`, `with "1e300", want a number of type F32`},
		{`"Input":"tokens","Value":"0"`, `"Input":"tokens","Value":"0.5"`, `pads "tokens" with "0.5", want a number of type S64`},
		{`"name":"batch","rows":true`, `"name":"batch","pads":[{"Input":"tokens","Value":"1"},{"Input":"mask","Value":"-1e9"}]`,
			`dimension "seq" pads "tokens" with 0, and dimension "batch" with 1: what lies behind both can't be both`},
		{`{"axis":0,"dim":"batch"},{"axis":1,"dim":"seq"}]},
		{"name":"mask"`, `{"axis":1,"dim":"seq"},{"axis":0,"dim":"batch"}]},
		{"name":"mask"`, "axis 0, of 2, is out of order"},
	} {
		text := strings.Replace(described, c.old, c.new, 1)
		require.NotEqual(t, described, text, c.old)
		_, err := family.OfMetadata(three(), carries, []byte(text))
		require.ErrorIs(t, err, family.ErrFamily, c.new)
		require.ErrorContains(t, err, c.want)
	}
}

// TestManyPrograms has errors name a few of many programs, and bounds what many members with many
// tensors take.
func TestManyPrograms(t *testing.T) {
	m := three()
	for p := range uint32(1000) {
		m.ProgramFlow.Main = append(m.ProgramFlow.Main, 100+p)
	}
	_, err := family.OfMetadata(m, carries, []byte(strings.Replace(described, `"program":5`, `"program":7`, 1)))
	require.EqualError(t, err, `opaque blob "popefgen.family": the file does not hold the family that it claims: member 0 is program 7, which is no main program of `+
		`the program flow (8 of 1003: [5 10 11 100 101 102 103 104]); compile the model again, or write the file without the blob`)

	var members, tensors []string
	m = &popef.Metadata{}
	for i := range uint32(1000) {
		m.ProgramFlow.Main = append(m.ProgramFlow.Main, i+1)
		members = append(members, fmt.Sprintf(`{"program":%d,"sizes":[%d]}`, i+1, i))
		m.Anchors = append(m.Anchors, popef.Anchor{Name: "n", Handle: fmt.Sprint(i), Type: popef.Input, Programs: []uint32{i + 1}, Info: popef.TensorInfo{DataType: popef.F32, Shape: []int64{int64(i)}}})
	}
	tensors = append(tensors, `{"name":"n","axes":[{"axis":0,"dim":"n"}]}`)
	for i := range 700 {
		name := fmt.Sprint("x", i)
		m.Anchors = append(m.Anchors, popef.Anchor{Name: name, Handle: name, Type: popef.Input, Programs: m.ProgramFlow.Main, Info: popef.TensorInfo{DataType: popef.F32, Shape: make([]int64, 7)}})
		tensors = append(tensors, fmt.Sprintf(`{"name":%q}`, name))
	}
	_, err = family.OfMetadata(m, carries, fmt.Appendf(nil, `{"version":1,"dims":[{"name":"n"}],"members":[%s],"tensors":[%s]}`, strings.Join(members, ","), strings.Join(tensors, ",")))
	require.ErrorIs(t, err, family.ErrFamily)
	require.ErrorContains(t, err, "its 1000 members have tensors of more than 4194304 axes")
	found, err := family.OfMetadata(m, carries, nil)
	require.NoError(t, err)
	require.Nil(t, found)
}

// TestFound finds families in files without the blob.
func TestFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*popef.Metadata)
		want   string
	}{
		{"as it is", func(*popef.Metadata) {}, "[batch tokens1] [5 [1 16]] [10 [4 16]] [11 [4 32]]"},
		{"another order", func(m *popef.Metadata) { slices.Reverse(m.ProgramFlow.Main) }, "[batch tokens1] [5 [1 16]] [10 [4 16]] [11 [4 32]]"},
		{"one program", func(m *popef.Metadata) { m.ProgramFlow.Main = m.ProgramFlow.Main[:1] }, "none"},
		{"a program twice", func(m *popef.Metadata) { m.ProgramFlow.Main[1] = 5 }, "none"},
		{"another name", func(m *popef.Metadata) { m.Anchors[4].Name = "z" }, "none"},
		{"another type", func(m *popef.Metadata) { m.Anchors[4].Info.DataType = popef.F16 }, "none"},
		{"another rank", func(m *popef.Metadata) { m.Anchors[4].Info.Shape = []int64{4, 7} }, "none"},
		{"an anchor less", func(m *popef.Metadata) { m.Anchors = slices.Delete(m.Anchors, 4, 5) }, "none"},
		{"two of a name", func(m *popef.Metadata) { m.Anchors[5].Name = "mask" }, "none"},
		{"the same sizes", func(m *popef.Metadata) { m.Anchors[9].Info, m.Anchors[10].Info = m.Anchors[5].Info, m.Anchors[6].Info }, "none"},
		{"other batches", func(m *popef.Metadata) {
			for _, i := range []int{2, 6, 10} {
				m.Anchors[i].Info.Shape = []int64{8, int64(i)}
			}
		}, "[tokens0 tokens1 mask1] [5 [1 16 2]] [10 [4 16 6]] [11 [4 32 10]]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := three()
			c.change(m)
			f, err := family.OfMetadata(m, carries, nil)
			require.NoError(t, err)
			got := "none"
			if f != nil {
				var names []string
				for _, d := range f.Dims {
					names = append(names, d.Name)
				}
				got = fmt.Sprint(names)
				for _, m := range f.Members {
					got += fmt.Sprintf(" [%d %v]", m.Program, m.Sizes)
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}

// TestFoundIsHeld writes a found family as a blob, which must hold.
func TestFoundIsHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) [2]int64 {
			return [2]int64{rapid.Int64Range(0, 4).Draw(t, "batch"), rapid.Int64Range(1, 9).Draw(t, "seq")}
		}), 2, 8, rapid.ID).Draw(t, "sizes")
		m := metadata(sizes...)
		f, err := family.OfMetadata(m, carries, nil)
		require.NoError(t, err)
		if f == nil { // sizes with empty tensors may not be in order by the bytes that they move
			return
		}
		again, err := family.OfMetadata(m, carries, f.Encode())
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(f, again))
	})
}

func FuzzBlob(f *testing.F) {
	f.Add([]byte(described))
	f.Add([]byte(`{"version":1,"members":[{"program":5}],"tensors":[]}`))
	f.Add([]byte(strings.Replace(described, "-1,\"div\":2", "-1099511627776,\"div\":1048576", 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := three()
		got, err := family.OfMetadata(m, carries, data)
		if err != nil {
			require.ErrorIs(t, err, family.ErrFamily)
			return
		}
		again, err := family.OfMetadata(m, carries, got.Encode())
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(got, again))
	})
}
