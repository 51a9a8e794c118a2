package sizes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef/family"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"7":                   "[7]",
		"0":                   "[0]",
		"1, 4,16":             "[1 4 16]",
		"1..512:*2":           "[1 2 4 8 16 32 64 128 256 512]",
		"16..64:+16":          "[16 32 48 64]",
		"3..20:*3":            "[3 9]",
		"1,8..64:*2,100":      "[1 8 16 32 64 100]",
		"5..5:+1":             "[5]",
		"seq":                 "as seq",
		"x[1]":                "as x[1]",
		"":                    `found ""`,
		"1,,2":                `found ""`,
		"1,x":                 `found "x"`,
		"1..4":                "1..4:*2 or 1..4:+1",
		"4..1:*2":             "ends below its begin",
		"0..4:*2":             "a factor from 2 on and a begin from 1 on",
		"1..4:*1":             "a factor from 2 on",
		"1..4:+0":             "a step from 1 on",
		"1..4:-1":             "want sizes such as",
		"-1":                  "found -1, want a size",
		"2,1..4:*2":           "2 is there twice",
		"1..300:+1":           "want at most 256",
		"1..99999999999:*2":   "[1 2 4",
		"1..9999999999999:*":  "want sizes such as",
		"1..9999999999999:*2": "too large",
	} {
		l, err := Parse(text)
		got := fmt.Sprint(l.Sizes)
		if l.As != "" {
			got = "as " + l.As
		}
		if err != nil {
			got = err.Error()
		}
		require.Contains(t, got, want, text)
	}
}

// TestMembers looks at the members that flags make.
func TestMembers(t *testing.T) {
	free := func(symbols ...string) *onnx.Model {
		in := onnx.ValueInfo{Name: "x", Elem: onnx.Float, HasShape: true}
		for _, s := range symbols {
			in.Dims = append(in.Dims, onnx.Dim{Symbol: s})
		}
		return &onnx.Model{Graph: &onnx.Graph{Inputs: []onnx.ValueInfo{in}}}
	}
	for _, c := range []struct {
		name    string
		symbols string
		batch   string
		dims    []string
		sizes   []string
		want    string
	}{
		{"nothing", "N", "", nil, nil, "[{map[] 0 map[]}]"},
		{"one size", "N seq", "4", []string{"seq=7"}, nil, "[{map[seq:7] 4 map[]}]"},
		{"combinations", "N seq", "1,4", []string{"seq=16,32"}, nil, "[{map[seq:16] 1 map[]} {map[seq:16] 4 map[]} {map[seq:32] 1 map[]} {map[seq:32] 4 map[]}]"},
		{"one by one", "N seq", "", nil, []string{"batch=1,seq=16", "batch=4,seq=8"}, "[{map[seq:16] 1 map[]} {map[seq:8] 4 map[]}]"},
		{"a dimension called batch", "batch seq", "", nil, []string{"batch=1,seq=16"}, "[{map[batch:1 seq:16] 0 map[]}]"},
		{"one by one, and combined", "N seq", "1,2", nil, []string{"seq=16", "seq=8"}, "[{map[seq:16] 1 map[]} {map[seq:16] 2 map[]} {map[seq:8] 1 map[]} {map[seq:8] 2 map[]}]"},
		{"tied", "N seq past", "", []string{"seq=16,32", "past=seq", "N=1"}, nil, "[{map[N:1 past:16 seq:16] 0 map[]} {map[N:1 past:32 seq:32] 0 map[]}] past=seq"},
		{"a rule", "past total", "", []string{"past=0,4", "total=past+1"}, nil, "[{map[past:0 total:1] 0 map[]} {map[past:4 total:5] 0 map[]}] total=past+1"},
		{"rules", "a b c d e", "", []string{"a=7", "b=2*a", "c=a * 2 - 3", "d=(3*a+1)/2", "e=a/2"}, nil, "[{map[a:7 b:14 c:11 d:11 e:3] 0 map[]}] b=2*a c=2*a-3 d=(3*a+1)/2 e=a/2"},
		{"a rule of the batch", "N m", "2,3", []string{"m=batch+1"}, nil, "[{map[m:3] 2 map[]} {map[m:4] 3 map[]}] m=batch+1"},
		{"a rule of members one by one", "a b", "", []string{"b=a+1"}, []string{"a=1", "a=4"}, "[{map[a:1 b:2] 0 map[]} {map[a:4 b:5] 0 map[]}] b=a+1"},
		{"a rule of members that follow it", "a b", "", []string{"b=a+1"}, []string{"a=1,b=2", "a=4,b=5"}, "[{map[a:1 b:2] 0 map[]} {map[a:4 b:5] 0 map[]}] b=a+1"},
		{"a rule of members that do not", "a b", "", []string{"b=a+1"}, []string{"a=1,b=2", "a=4,b=6"}, "--size: one has b=6 and a=4, and --dim b=a+1 makes it 5"},
		{"a name like a rule", "past+1 b", "", []string{"past+1=1,4", "b=past+1"}, nil, "[{map[b:1 past+1:1] 0 map[]} {map[b:4 past+1:4] 0 map[]}] b=past+1"},
		{"less than nothing", "a b", "", []string{"a=1,4", "b=a-2"}, nil, "--dim b=a-2: a=1 makes it -1, want 0 or more"},
		{"divided by nothing", "a b", "", []string{"a=1,4", "b=a/0"}, nil, "want NAME=SIZE"},
		{"a rule of a rule", "a b c", "", []string{"a=1,4", "b=a+1", "c=b+1"}, nil, "of another that has sizes"},
		{"tied to the batch", "N m", "2,3", []string{"m=batch"}, nil, "[{map[m:2] 2 map[]} {map[m:3] 3 map[]}] m=batch"},
		{"tied to nothing", "N m", "2,3", []string{"m=sqe", "seq=1"}, nil, "want NAME=SIZE or INPUT[AXIS]=SIZE, one for each --dim, or NAME=OTHER or NAME=OTHER+1 of another that has sizes; did you mean \"seq\"?"},
		{"tied in a circle", "a b", "", []string{"a=b", "b=a"}, nil, "--dim "},
		{"twice", "N seq", "", []string{"seq=1"}, []string{"seq=2"}, `"seq" is given by --size and by --dim`},
		{"too many", "a b", "", []string{"a=1..100:+1", "b=1..3:+1"}, nil, "more than 256 members"},
		{"others", "a b", "", nil, []string{"a=1,b=2", "a=1"}, "one gives a,b and another a"},
		{"no batch", "N", "", nil, []string{"batch=0"}, "a batch of 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &Options{}
			var err error
			if c.batch != "" {
				o.Batch, err = ParseBatch(c.batch)
				require.NoError(t, err)
			}
			o.Dims, err = ParseDims(c.dims)
			require.NoError(t, err)
			o.Sizes, err = ParseTuples(c.sizes)
			require.NoError(t, err)
			members, rules, err := o.Members(free(strings.Fields(c.symbols)...))
			got := fmt.Sprint(members)
			for _, r := range slices.Sorted(maps.Keys(rules)) {
				got += fmt.Sprintf(" %s=%s", r, rules[r])
			}
			if err != nil {
				got = err.Error()
			}
			require.Contains(t, got, c.want)
		})
	}
}

func TestParsePads(t *testing.T) {
	pads, err := ParsePads([]string{"seq=tokens:0:7,mask:-1e9", "batch=x:1"})
	require.NoError(t, err)
	require.Equal(t, map[string][]family.Pad{"seq": {{Input: "tokens:0", Value: "7"}, {Input: "mask", Value: "-1e9"}}, "batch": {{Input: "x", Value: "1"}}}, pads)
	for text, want := range map[string]string{
		"seq": "want DIM=INPUT:VALUE", "seq=": "want DIM=INPUT:VALUE", "seq=x": "want DIM=INPUT:VALUE", "seq=x:": "want DIM=INPUT:VALUE", "=x:0": "want DIM=INPUT:VALUE", "seq=:0": "want DIM=INPUT:VALUE",
	} {
		_, err := ParsePads([]string{text})
		require.ErrorContains(t, err, want, text)
	}
	_, err = ParsePads([]string{"seq=x:0", "seq=y:0"})
	require.ErrorContains(t, err, "given twice")
}

// FuzzSizes gives the readers of sizes any text.
func FuzzSizes(f *testing.F) {
	for _, text := range []string{"1,4,16", "1..512:*2", "16..64:+16", "seq", "a=1,b=2", "seq=x:0,y:1", "total=(2*past+1)/2", "2*a", "9223372036854775807..9223372036854775807:*9"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if l, err := Parse(text); err == nil {
			parseRule(l.As)
			require.LessOrEqual(t, len(l.Sizes), compile.MaxMembers)
			require.True(t, (l.As == "") == (len(l.Sizes) > 0))
			for _, n := range l.Sizes {
				require.GreaterOrEqual(t, n, int64(0))
			}
		}
		ParseDims([]string{text})
		ParseTuples([]string{text})
		ParsePads([]string{text})
		ParseBatch(text)
	})
}
