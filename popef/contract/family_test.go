package contract_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// familyBase is a family of three members: rows along batch are independent, and
// padding along seq is declared.
const familyBase = `popefgen contract 3
iterations 1
dims batch seq
input "tokens" S64 [batch seq]
input "mask" F32 [batch seq]
output "y" F32 [batch (seq-1)/2 3]
load "scale" F32 [2]
rows batch
pad seq "mask" "-1e9"
pad seq "tokens" "0"
member 1 16
member 4 16
member 4 32
`

// countedBase is a model of one size, of whose output data decides how much is
// filled.
const countedBase = `popefgen contract 3
iterations 1
input "image" F32 [1 3 8 8]
output "boxes" F32 [<=300 4]
`

// looseBase has a dimension with a name in quotes, and an axis that follows from
// two dimensions.
const looseBase = `popefgen contract 3
iterations 1
dims batch "seq len"
input "x" F32 [batch "seq len" 2*"seq len" 2*batch+1 (2*batch+1)/3 batch/2]
output "flat" F32 [? <=?]
member 1 16 loose 16 17
member 2 16 loose 32 34
`

// familyModel is a model of familyBase: without its blob rows are not proven, and
// nothing is declared.
func familyModel(t require.TestingT, blob string) *popef.Model {
	f := popeftest.ModelA()
	meta := &f.Metadata
	meta.ProgramFlow = popef.ProgramFlow{Load: []uint32{0}}
	meta.Anchors = nil
	info := func(t popef.DataType, shape ...int64) popef.TensorInfo {
		return popef.TensorInfo{DataType: t, Shape: shape}
	}
	for i, s := range [][2]int64{{1, 16}, {4, 16}, {4, 32}} {
		p, suffix := uint32(5), ""
		if i > 0 {
			p, suffix = uint32(9+i), fmt.Sprintf("#%d", 9+i)
		}
		meta.ProgramFlow.Main = append(meta.ProgramFlow.Main, p)
		meta.Anchors = append(meta.Anchors,
			popef.Anchor{Name: "y", Handle: "d2h_y" + suffix, Programs: []uint32{p}, Info: info(popef.F32, s[0], (s[1]-1)/2, 3), Type: popef.Output},
			popef.Anchor{Name: "tokens", Handle: "h2d_tokens" + suffix, Programs: []uint32{p}, Info: info(popef.S64, s[0], s[1]), Type: popef.Input},
			popef.Anchor{Name: "n", Handle: "d2h_n" + suffix, Programs: []uint32{p}, Info: info(popef.S64), Type: popef.Output})
	}
	meta.Anchors = append(meta.Anchors, popef.Anchor{Name: "scale", Handle: "h2d_scale", Programs: []uint32{0}, Info: info(popef.F32, 2), Type: popef.Input})
	f.Tensors = nil
	if blob != "" {
		f.Files[0].Write = sequenceWith(f.Files[0].Write, blob)
	}
	b, err := f.Bytes()
	require.NoError(t, err)
	m, err := popef.LoadBytes("family", b)
	require.NoError(t, err)
	return m
}

// sequenceWith returns a function that writes what write does, and the blob of a family.
func sequenceWith(write func(*popef.Writer) error, blob string) func(*popef.Writer) error {
	return func(w *popef.Writer) error {
		if err := write(w); err != nil {
			return err
		}
		o, err := w.CreateOpaque("popefgen.family", popeftest.ModelA().Metadata.Executable)
		if err != nil {
			return err
		}
		_, err = o.Write([]byte(blob))
		return err
	}
}

const familyBlob = `{"version":1,"dims":[{"name":"batch","rows":true},{"name":"seq","pads":[{"Input":"tokens","Value":"0"}]}],
	"members":[{"program":5,"sizes":[1,16]},{"program":10,"sizes":[4,16]},{"program":11,"sizes":[4,32]}],
	"tensors":[{"name":"tokens","axes":[{"axis":0,"dim":"batch"},{"axis":1,"dim":"seq"}]},
	{"name":"y","output":true,"axes":[{"axis":0,"dim":"batch"},{"axis":1,"dim":"seq","mul":1,"add":-1,"div":2,"count":"n"}]},{"name":"n","output":true}]}`

// TestFamily reads the contract of a family's file: each tensor is there once, what counts is hidden,
// and every member has its streams.
func TestFamily(t *testing.T) {
	c := contract.Of(familyModel(t, familyBlob))
	require.NoError(t, c.Refused)
	require.NotNil(t, c.Family)
	callers := c.Callers()
	require.Equal(t, `popefgen contract 3
iterations 1
dims batch seq
input "tokens" S64 [batch seq]
output "y" F32 [batch <=(seq-1)/2 3]
load "scale" F32 [2]
rows batch
pad seq "tokens" "0"
member 1 16
member 4 16
member 4 32
`, callers.Text())
	require.Equal(t, []string{"h2d_tokens", "h2d_tokens#10", "h2d_tokens#11"}, callers.Fields[0].Streams)
	require.Equal(t, []int64{4, 15, 3}, callers.Shape(1, 2))
	require.Equal(t, []int64{1, 7, 3}, callers.Fields[1].Info.Shape)
	require.Equal(t, []int64{2}, callers.Shape(2, 1))
	require.Equal(t, 1, callers.Member([]int64{4, 16}))
	require.Equal(t, -1, callers.Member([]int64{2, 16}))
	require.Len(t, c.Visible(), 3)
	counts := 0
	for _, a := range c.Anchors {
		if strings.HasPrefix(a.Name, "n") {
			require.True(t, a.Counts && a.Group() == contract.Hidden && a.Role == contract.RunOutput)
			counts++
		}
		if strings.HasSuffix(a.Handle, "#11") {
			require.Equal(t, 2, a.Member)
		}
	}
	require.Equal(t, 3, counts)

	back, err := contract.Parse(callers.Text())
	require.NoError(t, err)
	require.Equal(t, callers.Text(), back.Text())
	compared := contract.Compare(contract.Published{Callers: back}, c.Published())
	require.Empty(t, compared.Findings)
	require.Equal(t, []int{0, 1, 2}, compared.Members)
	for i := range back.Fields {
		for m := range back.Members {
			require.Equal(t, callers.Shape(i, m), back.Shape(i, m))
		}
	}

	foreign := contract.Of(familyModel(t, "")).Callers()
	require.Equal(t, "dims batch tokens1", strings.Split(foreign.Text(), "\n")[2], "no blob, but a family all the same")
	refused := contract.Of(familyModel(t, `{"version":1}`))
	require.Nil(t, refused.Family)
	require.ErrorContains(t, refused.Refused, "0 members")
}

// TestFamilyHash adds a member, which is another text of the same hash, and renames a dimension.
func TestFamilyHash(t *testing.T) {
	base := edited(t, familyBase)
	require.Equal(t, base.Hash(), edited(t, familyBase, "+member 8 64").Hash())
	require.Equal(t, base.Hash(), edited(t, familyBase, "-rows", "-pad", "-pad").Hash())
	require.NotEqual(t, base.Hash(), edited(t, strings.ReplaceAll(familyBase, "seq", "length")).Hash())
	require.NotEqual(t, base.Hash(), edited(t, familyBase, "[batch (seq => [batch (2*seq").Hash())
}

func TestParseFamilyErrors(t *testing.T) {
	for _, base := range []string{familyBase, countedBase, looseBase} {
		c, err := contract.Parse(base)
		require.NoError(t, err)
		require.Equal(t, base, c.Text())
	}
	for _, c := range []struct{ base, old, new, want string }{
		{familyBase, "dims batch seq\n", "", "line 3: found \" seq]\", want a dimension of the line dims"},
		{familyBase, "dims batch seq", "dims batch batch", "line 3: found \"\", want every dimension once"},
		{familyBase, "dims batch seq", "dims batch \"seq\"", "line 3: written in another way"},
		{familyBase, "dims batch seq", "dims batch 1", "the name of a dimension"},
		{familyBase, "rows batch", "rows seq batch", "written in another way"},
		{familyBase, "rows batch", "rows width", `in the place of "width"`},
		{familyBase, "pad seq \"tokens\" \"0\"\n", "pad seq \"tokens\" \"0\"\npad seq \"tokens\" \"1\"\n", `padding of "tokens": out of order`},
		{familyBase, "member 4 16\n", "member 4 16\nmember 4 16\n", "members in ascending order"},
		{familyBase, "member 4 16\nmember 4 32\n", "member 4 32\nmember 4 16\n", "members in ascending order"},
		{familyBase, "member 4 32\n", "member 4\n", `found "", want " "`},
		{familyBase, "member 4 32\n", "member 4 -32\n", "sizes from 0 to 2^40"},
		{familyBase, "member 4 32\n", "member 4 1099511627777\n", "sizes from 0 to 2^40"},
		{familyBase, "member 1 16\n", "member 1 0\n", `axis 1 of "y" is smaller than nothing in member 1 0`},
		{familyBase, "member 1 16\nmember 4 16\nmember 4 32\n", "", "want a member"},
		{familyBase, "(seq-1)/2", "(seq-1)/0", "factors of 1 to 2^20"},
		{familyBase, "(seq-1)/2", "(0*seq-1)/2", "factors of 1 to 2^20"},
		{familyBase, "(seq-1)/2", "(1*seq-1)/2", "written in another way"},
		{familyBase, "(seq-1)/2", "(seq-1/2", `want ")"`},
		{familyBase, "(seq-1)/2", "(7)/2", `want *`},
		{familyBase, "(seq-1)/2", "(seq-1)/1048577", "factors"},
		{familyBase, "rows batch\n", "rows batch\nhello\n", "a member"},
		{familyBase, "member 4 32\n", "member 4 32\nrows batch\n", "in this order"},
		{countedBase, "<=300", "300", "neither a dimension nor a length is open"},
		{countedBase, "<=300", "<=?", "want a member"},
		{countedBase, "4]\n", "4]\nmember\n", "in this order"},
		{looseBase, "member 2 16 loose 32 34", "member 2 16 loose 32", `want " "`},
		{looseBase, "member 2 16 loose 32 34", "member 1 16 loose 32 34", "every size once"},
		{looseBase, " loose 32 34", "", `want " loose"`},
	} {
		text := strings.Replace(c.base, c.old, c.new, 1)
		require.NotEqual(t, c.base, text, c.old)
		_, err := contract.Parse(text)
		require.ErrorIs(t, err, contract.ErrText, c.new)
		require.ErrorContains(t, err, c.want)
	}
}

// TestJudgeFamilies compares the verdicts on pairs of families with the rules, and what is said about them
// with testdata/families.txt.
func TestJudgeFamilies(t *testing.T) {
	single := `popefgen contract 2
iterations 1
input "tokens" S64 [4 16]
input "mask" F32 [4 16]
output "y" F32 [4 7 3]
load "scale" F32 [2]
`
	var all strings.Builder
	for _, c := range []struct {
		name     string
		old, new contract.Published
		want     []string
	}{
		{"nothing", edited(t, familyBase), edited(t, familyBase), nil},
		{"member added", edited(t, familyBase), edited(t, familyBase, "+member 8 32"), []string{"compatible member-added +"}},
		{"member taken away", edited(t, familyBase), edited(t, familyBase, "-member 4 16"), []string{"breaking member-removed"}},
		{"other members", edited(t, familyBase), edited(t, familyBase, "member 4 16 => member 2 16"), []string{"breaking member-removed", "compatible member-added +"}},
		{"one size becomes a family", edited(t, single), edited(t, familyBase), []string{"breaking opened", "breaking opened", "breaking opened", "breaking dimensions"}},
		{"a family becomes one size", edited(t, familyBase), edited(t, single), []string{"breaking fixed", "breaking fixed", "breaking fixed", "breaking dimensions"}},
		{"one dimension is fixed", edited(t, familyBase), edited(t, strings.NewReplacer("dims batch seq", "dims batch", "batch seq]", "batch 16]", "(seq-1)/2", "7",
			"pad seq \"mask\" \"-1e9\"\npad seq \"tokens\" \"0\"\n", "", " 16\nmember 4 16\nmember 4 32\n", "\nmember 4\n").Replace(familyBase)),
			[]string{"breaking fixed", "breaking fixed", "breaking fixed", "breaking dimensions"}},
		{"one more dimension is open", edited(t, strings.NewReplacer("dims batch seq", "dims seq", "[batch", "[4", "rows batch\n", "", "member 1 16\nmember 4 16\nmember 4 32\n", "member 16\nmember 32\n").Replace(familyBase)),
			edited(t, familyBase), []string{"breaking opened", "breaking opened", "breaking opened", "breaking dimensions"}},
		{"a dimension has another name", edited(t, familyBase), edited(t, strings.ReplaceAll(familyBase, "seq", "length")),
			[]string{"breaking shape", "breaking shape", "breaking shape", "breaking dimensions"}},
		{"another rule", edited(t, familyBase), edited(t, familyBase, "(seq-1)/2 => seq/2"), []string{"breaking shape"}},
		{"another rank", edited(t, familyBase), edited(t, familyBase, "(seq-1)/2 3 => (seq-1)/2"), []string{"breaking shape"}},
		{"another fixed length", edited(t, familyBase), edited(t, familyBase, "(seq-1)/2 3 => (seq-1)/2 4"), []string{"breaking shape"}},
		{"another length that is no open one's", edited(t, familyBase), edited(t, familyBase, `"scale" F32 [2] => "scale" F32 [3]`), []string{"breaking shape"}},
		{"dimensions in another order", edited(t, familyBase), edited(t, strings.NewReplacer("dims batch seq", "dims seq batch", "member 1 16\nmember 4 16\nmember 4 32", "member 16 1\nmember 16 4\nmember 32 4").Replace(familyBase)),
			[]string{"breaking dimensions"}},
		{"rows no longer proven", edited(t, familyBase), edited(t, familyBase, "-rows"), []string{"breaking rows"}},
		{"rows proven", edited(t, familyBase, "-rows"), edited(t, familyBase), []string{"compatible rows +"}},
		{"padding no longer declared", edited(t, familyBase), edited(t, familyBase, "-pad seq \"mask\""), []string{"breaking pad"}},
		{"padding declared", edited(t, familyBase, "-pad", "-pad"), edited(t, familyBase), []string{"compatible pad +", "compatible pad +"}},
		{"another value", edited(t, familyBase), edited(t, familyBase, `"-1e9" => "-1e4"`), []string{"compatible pad +"}},
		{"renamed", edited(t, familyBase), edited(t, familyBase, `output "y" => output "z"`), []string{"breaking renamed"}},
		{"an open output more", edited(t, familyBase), edited(t, familyBase, `+output "more" F32 [seq] < load`), []string{"compatible added +"}},
		{"more may be found", edited(t, countedBase), edited(t, countedBase, "300 => 400"), []string{"compatible bound"}},
		{"counted now", edited(t, "popefgen contract 2\niterations 1\ninput \"image\" F32 [1 3 8 8]\noutput \"boxes\" F32 [300 4]\n"), edited(t, countedBase), []string{"breaking opened"}},
		{"counted no more", edited(t, countedBase), edited(t, "popefgen contract 2\niterations 1\ninput \"image\" F32 [1 3 8 8]\noutput \"boxes\" F32 [300 4]\n"), []string{"breaking fixed"}},
		{"loose lengths", edited(t, looseBase), edited(t, looseBase, "32 34 => 32 35"), []string{"breaking shape"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			fmt.Fprintf(&all, "== %s\n", c.name)
			found := contract.Judge(c.old, c.new)
			for _, f := range found {
				got = append(got, fmt.Sprint(f.Verdict, " ", f.Kind))
				if f.Opens {
					got[len(got)-1] += " +"
				}
				fmt.Fprintf(&all, "%v: %v\n", f.Verdict, f)
				require.NotEmpty(t, f.Why)
				require.NotEmpty(t, f.Do)
			}
			require.Empty(t, cmp.Diff(c.want, got))
			require.Equal(t, c.old.Text() == c.new.Text(), len(found) == 0)
		})
	}
	golden(t, "families.txt", all.String())
}

// TestFamilyFile writes and reads a family's contract.txt, with the constants of its sizes.
func TestFamilyFile(t *testing.T) {
	p := edited(t, familyBase)
	p.GoNames, p.SizeNames = strings.Fields("Tokens Mask Y Scale"), strings.Fields("Batch1Seq16 Batch4Seq16 Batch4Seq32")
	good := p.FileText()
	back, err := contract.ParseFile(good)
	require.NoError(t, err)
	require.Equal(t, p, back)
	now := p
	now.SizeNames = strings.Fields("Batch1Seq16 B4S16 Batch4Seq32")
	found := contract.Judge(p, now)
	require.Len(t, found, 1)
	require.Equal(t, contract.KindMemberName, found[0].Kind)
	gone := contract.Judge(p, edited(t, familyBase, "-member 4 32"))
	require.Len(t, gone, 1)
	require.Contains(t, gone[0].String(), "callers that use the constant Batch4Seq32 do not build")
	for _, c := range []struct{ old, new, want string }{
		{"member 4 32", "member 4 64", "the hash is"},
		{"iterations 1", "iterations 2", "the hash is"},
		{"# text ", "# texts ", "want the line # text"},
		{"# size Batch1Seq16\n", "", "2 Go names for 3 sizes"},
		{"# size Batch1Seq16", "# size Batch1 Seq16", "want the like of # size"},
		{"# size Batch1Seq16\n", "# size\n", "want the like of # go"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		require.NotEqual(t, good, text)
		_, err := contract.ParseFile(text)
		require.ErrorIs(t, err, contract.ErrText)
		require.ErrorContains(t, err, c.want)
	}
}

// families draws the text of a family.
func families() *rapid.Generator[contract.Published] {
	return rapid.Custom(func(t *rapid.T) contract.Published {
		names := []string{"batch", "seq", "a b", "", "é"}
		dims := names[:rapid.IntRange(0, len(names)).Draw(t, "dims")]
		dims = slices.Clone(rapid.Permutation(dims).Draw(t, "order"))
		var b strings.Builder
		b.WriteString("popefgen contract 3\niterations 1\n")
		word := func(s string) string {
			if s == "batch" || s == "seq" {
				return s
			}
			return fmt.Sprintf("%+q", s)
		}
		var line []string
		for _, d := range dims {
			line = append(line, " "+word(d))
		}
		if dims != nil {
			b.WriteString("dims" + strings.Join(line, "") + "\n")
		}
		loose := 0
		axis := func() string {
			s := rapid.SampledFrom([]string{"", "<="}).Draw(t, "counted")
			switch k := rapid.IntRange(0, 9).Draw(t, "axis"); {
			case k == 0:
				loose++
				return s + "?"
			case k < 4 || len(dims) == 0:
				return s + fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "size"))
			}
			name := word(rapid.SampledFrom(dims).Draw(t, "dim"))
			rule := rapid.SampledFrom([]string{"%s", "2*%s", "%s+1", "%s/2", "(2*%s+1)/3", "(%s+2)/2", "(4*%s)/3"}).Draw(t, "rule")
			return s + fmt.Sprintf(rule, name)
		}
		for _, group := range []string{"input", "output"} {
			for i := range rapid.IntRange(0, 2).Draw(t, "fields") {
				var axes []string
				for range rapid.IntRange(0, 3).Draw(t, "rank") {
					axes = append(axes, axis())
				}
				fmt.Fprintf(&b, "%s %+q F32 [%s]\n", group, fmt.Sprint(group[:1], i), strings.Join(axes, " "))
			}
		}
		var rows string
		for _, d := range dims {
			if rapid.Bool().Draw(t, "rows") {
				rows += " " + word(d)
			}
		}
		if rows != "" {
			b.WriteString("rows" + rows + "\n")
		}
		for _, d := range dims {
			if rapid.Bool().Draw(t, "padded") {
				fmt.Fprintf(&b, "pad %s \"i0\" %+q\n", word(d), rapid.SampledFrom([]string{"0", "-1"}).Draw(t, "value"))
			}
		}
		if len(dims) > 0 || loose > 0 {
			first := rapid.Int64Range(0, 2).Draw(t, "first")
			for i := range rapid.Int64Range(1, 3).Draw(t, "members") {
				b.WriteString("member" + strings.Repeat(fmt.Sprintf(" %d", first+i), len(dims)))
				if loose > 0 {
					b.WriteString(" loose" + strings.Repeat(fmt.Sprintf(" %d", first+i+rapid.Int64Range(0, 1).Draw(t, "loose")*int64(min(1, len(dims)))), loose))
				}
				b.WriteString("\n")
			}
		}
		c, err := contract.Parse(b.String())
		if err != nil {
			require.ErrorContains(t, err, "neither a dimension nor a length is open", b.String())
			c, err = contract.Parse(strings.Replace(b.String(), "contract 3", "contract 2", 1))
			require.NoError(t, err)
		}
		return contract.Published{Callers: c}
	})
}

// TestJudgeAnyFamilies compares random families: nothing is found if and only if the texts are the same, and
// what opens has every field in its old shape in every old size.
func TestJudgeAnyFamilies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := families().Draw(t, "old"), families().Draw(t, "new")
		compared := contract.Compare(a, b)
		require.Equal(t, a.Text() == b.Text(), len(compared.Findings) == 0, "%s\n%s\n%v", a.Text(), b.Text(), compared.Findings)
		require.Empty(t, contract.Judge(a, a))
		back, err := contract.ParseFile(a.FileText())
		require.NoError(t, err)
		require.Equal(t, a.FileText(), back.FileText())
		if !contract.Opens(compared.Findings) {
			return
		}
		for i, at := range compared.Fields {
			for m := range a.Members {
				require.Equal(t, a.Shape(i, m), b.Shape(at, compared.Members[m]))
			}
		}
	})
}
