package contract_test

import (
	"encoding/json"
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

// verdictBase has a field in every struct.
const verdictBase = `popefgen contract 2
iterations 1
input "image" F32 [4 1 28 28]
output "logits" F32 [4 10]
load "scale" F32 []
load "seed" U32 [2]
save "w" F16 [10]
`

// edited returns the contract of the base text after edits, which are
// "old => new" within a line, "-start of a line", "+a new line" or
// "+a new line < start of the line that it goes before".
func edited(t require.TestingT, base string, edits ...string) contract.Published {
	lines := strings.Split(strings.TrimSuffix(base, "\n"), "\n")
	find := func(start string) int {
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, start) })
		require.GreaterOrEqual(t, at, 0, start)
		return at
	}
	for _, e := range edits {
		switch e[0] {
		case '-':
			at := find(e[1:])
			lines = slices.Delete(lines, at, at+1)
		case '+':
			line, before, ok := strings.Cut(e[1:], " < ")
			at := len(lines)
			if ok {
				at = find(before)
			}
			lines = slices.Insert(lines, at, line)
		default:
			was, is, ok := strings.Cut(e, " => ")
			at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, was) })
			require.True(t, ok && at >= 0, e)
			lines[at] = strings.Replace(lines[at], was, is, 1)
		}
	}
	c, err := contract.Parse(strings.Join(lines, "\n") + "\n")
	require.NoError(t, err)
	return contract.Published{Callers: c}
}

// verdictCases are pairs of contracts: the base and what edits make of it.
var verdictCases = []struct {
	name  string
	edits []string
	base  []string // edits of the old contract
	want  []string // verdict, kind and anchor of every finding, with a + if the old package opens the new model
}{
	{name: "nothing"},
	{name: "type of an input", edits: []string{`"image" F32 => "image" F16`}, want: []string{"breaking type image"}},
	{name: "type of an output", edits: []string{`"logits" F32 => "logits" F16`}, want: []string{"breaking type logits"}},
	{name: "type of a load input", edits: []string{`"scale" F32 => "scale" F16`}, want: []string{"breaking type scale"}},
	{name: "type of a save output", edits: []string{`"w" F16 => "w" F32`}, want: []string{"breaking type w"}},
	{name: "shape of an input", edits: []string{"[4 1 28 28] => [4 1 32 32]"}, want: []string{"breaking shape image"}},
	{name: "rank of an output", edits: []string{"[4 10] => [4 10 1]"}, want: []string{"breaking shape logits"}},
	{name: "scalar becomes a vector", edits: []string{"F32 [] => F32 [1]"}, want: []string{"breaking shape scale"}},
	{name: "batch of all", edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]"}, want: []string{"breaking batch image", "breaking batch logits"}},
	{name: "batch of the input alone", edits: []string{"[4 1 28 28] => [8 1 28 28]"}, want: []string{"breaking shape image"}},
	{name: "different batches", edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [2 10]"}, want: []string{"breaking shape image", "breaking shape logits"}},
	{name: "batch and another dimension", edits: []string{"[4 1 28 28] => [8 1 32 32]", "[4 10] => [8 10]"},
		want: []string{"breaking shape image", "breaking shape logits"}},
	{name: "batch, but one output stays", base: []string{`+output "extra" F32 [4] < load`},
		edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]", `+output "extra" F32 [4] < load`},
		want:  []string{"breaking shape image", "breaking shape logits"}},
	{name: "batch, and an input without a batch stays", base: []string{`+input "bias" F32 [10] < output`},
		edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]", `+input "bias" F32 [10] < output`},
		want:  []string{"breaking shape image", "breaking shape logits"}},
	{name: "batch, and a new output with the same", edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]", `+output "extra" F32 [8] < load`},
		want: []string{"breaking batch image", "breaking batch logits", "compatible added extra +"}},
	{name: "batch, but not of a new output", edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]", `+output "extra" F32 [4] < load`},
		want: []string{"breaking shape image", "breaking shape logits", "compatible added extra +"}},
	{name: "batch of none", edits: []string{"[4 1 28 28] => [0 1 28 28]", "[4 10] => [0 10]"}, want: []string{"breaking shape image", "breaking shape logits"}},
	{name: "batch, and an output becomes an input", edits: []string{"[4 1 28 28] => [8 1 28 28]", `-output "logits"`, `+input "logits" F32 [8 10] < load`},
		want: []string{"breaking shape image", "breaking role logits", "breaking shape logits"}},
	{name: "batch, and repeats", edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10] repeats 3"},
		want: []string{"breaking shape image", "breaking shape logits", "breaking repeats logits"}},
	{name: "input removed", base: []string{`+input "mask" S32 [4] < output`}, want: []string{"breaking removed mask"}},
	{name: "output removed", base: []string{`+output "mask" S32 [4] < load`}, want: []string{"breaking removed mask"}},
	{name: "only save output removed", edits: []string{`-save "w"`}, want: []string{"breaking removed w"}},
	{name: "load inputs removed", edits: []string{`-load "scale"`, `-load "seed"`}, want: []string{"breaking removed scale", "breaking removed seed"}},
	{name: "required input added", edits: []string{`+input "mask" S32 [4] < output`}, want: []string{"breaking added mask"}},
	{name: "required load input added", edits: []string{`+load "rate" F32 [] < save`}, want: []string{"breaking added rate"}},
	{name: "first load input added", base: []string{`-load "scale"`, `-load "seed"`}, edits: []string{`-load "seed"`}, want: []string{"breaking added scale"}},
	{name: "output added", edits: []string{`+output "mask" S32 [4] < load`}, want: []string{"compatible added mask +"}},
	{name: "output added in front", edits: []string{`+output "mask" S32 [4] < output`}, want: []string{"compatible added mask +"}},
	{name: "save output added", edits: []string{`+save "state" S32 [4]`}, want: []string{"compatible added state +"}},
	{name: "probable rename", edits: []string{`output "logits" => output "scores"`}, want: []string{"breaking renamed logits"}},
	{name: "rename and another type are two things", edits: []string{`output "logits" F32 => output "scores" F16`},
		want: []string{"breaking removed logits", "compatible added scores +"}},
	{name: "two renames of one shape", base: []string{`+input "a/in" F32 [2] < output`, `+input "b/in" F32 [2] < output`},
		edits: []string{`+input "x/a/in" F32 [2] < output`, `+input "x/b/in" F32 [2] < output`},
		want:  []string{"breaking renamed a/in", "breaking renamed b/in"}},
	{name: "two renames of one shape, the other way around", base: []string{`+input "a/in" F32 [2] < output`, `+input "b/in" F32 [2] < output`},
		edits: []string{`+input "x/b/in" F32 [2] < output`, `+input "x/a/in" F32 [2] < output`},
		want:  []string{"breaking renamed a/in", "breaking renamed b/in"}},
	{name: "rename to what has the same start and end only once", base: []string{`+output "aaaa" F32 [2] < load`},
		edits: []string{`+output "aaa" F32 [2] < load`, `+output "aaaab" F32 [2] < load`},
		want:  []string{"breaking renamed aaaa", "compatible added aaa +"}},
	{name: "input becomes an output", base: []string{`+input "mask" S32 [4] < output`}, edits: []string{`+output "mask" S32 [4] < load`}, want: []string{"breaking role mask"}},
	{name: "load input becomes a run input", edits: []string{`-load "scale"`, `+input "scale" F32 [] < output`}, want: []string{"breaking role scale"}},
	{name: "only save output becomes an output", edits: []string{`-save "w"`, `+output "w" F16 [10] < load`}, want: []string{"breaking role w"}},
	{name: "repeats of an output", edits: []string{`[4 10] => [4 10] repeats 3`}, want: []string{"breaking repeats logits"}},
	{name: "device iterations", edits: []string{"iterations 1 => iterations 16"}, want: []string{"breaking iterations "}},
	{name: "replicas", edits: []string{"+replicas 2 < iterations"}, want: []string{"breaking replicas "}},
	{name: "more replicas", base: []string{"+replicas 2 < iterations"}, edits: []string{"+replicas 4 < iterations"}, want: []string{"compatible replicas "}},
	{name: "one replica", base: []string{"+replicas 2 < iterations"}, want: []string{"compatible replicas +"}},
	{name: "order of inputs", base: []string{`+input "mask" S32 [4] < output`}, edits: []string{`+input "mask" S32 [4] < input`}, want: []string{"compatible order +"}},
	{name: "order of load inputs", edits: []string{`-load "scale"`, `+load "scale" F32 [] < save`}, want: []string{"compatible order +"}},
	{name: "order, and a new output in between", base: []string{`+output "mask" S32 [4] < load`},
		edits: []string{`+output "mask" S32 [4] < output`, `+output "more" S32 [4] < output "logits"`}, want: []string{"compatible order +", "compatible added more +"}},
	{name: "handles of one name", base: []string{`+input "x" S32 [4] handle "a" < output`, `+input "x" S32 [4] handle "b" < output`},
		edits: []string{`+input "x" S32 [4] handle "b" < output`, `+input "x" S32 [4] handle "c" < output`}, want: []string{"breaking handle x", "compatible order +"}},
	{name: "order of handles of one name", base: []string{`+input "x" S32 [4] handle "a" < output`, `+input "x" S32 [4] handle "b" < output`},
		edits: []string{`+input "x" S32 [4] handle "b" < output`, `+input "x" S32 [4] handle "a" < output`}, want: []string{"compatible order +"}},
	{name: "a name becomes that of two", base: []string{`+output "y" S32 [4] < load`},
		edits: []string{`+output "y" S32 [4] handle "b" < load`, `+output "y" S32 [4] handle "a" < load`}, want: []string{"breaking handle y", "compatible added y +"}},
}

// TestJudge compares the verdicts on pairs of contracts with the rules, and
// everything that is said about them with testdata/verdicts.txt.
func TestJudge(t *testing.T) {
	var all strings.Builder
	for _, c := range verdictCases {
		t.Run(c.name, func(t *testing.T) {
			old, new := edited(t, verdictBase, c.base...), edited(t, verdictBase, c.edits...)
			found := contract.Judge(old, new)
			var got []string
			worst := contract.Identical
			fmt.Fprintf(&all, "== %s\n", c.name)
			for _, f := range found {
				got = append(got, fmt.Sprint(f.Verdict, " ", f.Kind, " ", f.Anchor))
				if f.Opens {
					got[len(got)-1] = strings.TrimSpace(got[len(got)-1]) + " +"
				}
				fmt.Fprintf(&all, "%v: %v\n", f.Verdict, f)
				worst = max(worst, f.Verdict)
				require.NotEmpty(t, f.Why)
				require.NotEmpty(t, f.Do)
				require.NotContains(t, f.String(), "\n")
			}
			require.Empty(t, cmp.Diff(c.want, got))
			require.Equal(t, worst, contract.Worst(found))
			require.Equal(t, old.Text() == new.Text(), len(found) == 0)
		})
	}
	golden(t, "verdicts.txt", all.String())
}

// TestJudgeGoNames judges what becomes of Go names.
func TestJudgeGoNames(t *testing.T) {
	names := func(p contract.Published, all string) contract.Published {
		p.GoNames = strings.Fields(all)
		require.Len(t, p.GoNames, len(p.Fields))
		return p
	}
	sampled := func(p contract.Published) contract.Published {
		p.Samples = true
		return p
	}
	named := func(p contract.Published, field int, stream string) contract.Published {
		p.Fields[field].Stream = stream
		return p
	}
	const usual = "Image Logits Scale Seed W"
	base := edited(t, verdictBase)
	extra := edited(t, verdictBase, `+output "extra" F32 [4] < load`)
	twoInputs := edited(t, verdictBase, `+input "mask" F32 [4] < output`)
	swapped := edited(t, verdictBase, `+input "mask" F32 [4] < input`)
	for _, c := range []struct {
		name     string
		old, new contract.Published
		want     string
		text     string
	}{
		{"same", names(base, usual), names(base, usual), "", ""},
		{"one side unknown", names(base, usual), base, "", ""},
		{"another Go name", names(base, usual), names(base, "Image2 Logits Scale Seed W"), "breaking go-name +", "generate with --rename image=Image"},
		{"two anchors of one name are told apart by handle",
			names(edited(t, verdictBase, `save "w" F16 [10] => save "w" F16 [10] handle "a"`, `+save "w" F16 [11] handle "b"`), usual+" W2"),
			names(edited(t, verdictBase, `save "w" F16 [10] => save "w" F16 [10] handle "a"`, `+save "w" F16 [11] handle "b"`), "Image Logits Scale Seed W2 W"),
			"breaking go-name +, breaking go-name +", "generate with --rename a=W"},
		{"renamed anchor, same Go name", names(base, usual), names(edited(t, verdictBase, `"logits" => "logits_"`), usual),
			"compatible renamed", "its Go name Logits stays, only the constant AnchorLogits has another value"},
		{"renamed anchor", names(base, usual), names(edited(t, verdictBase, `"logits" => "the scores"`), "Image TheScores Scale Seed W"),
			"breaking renamed", `Outputs.Logits gets another name, and so do its type and constants); to do: adapt the callers, or keep the Go name: generate with --rename 'the scores=Logits'`},
		{"a name that the flag can't say", names(base, usual), names(edited(t, verdictBase, `"logits" => "a=b"`), "Image AB Scale Seed W"),
			"breaking renamed", "to do: adapt the callers"},
		{"output added to samples", sampled(names(base, usual)), sampled(names(extra, "Image Logits Extra Scale Seed W")),
			"breaking added +", "RunSamples gets another argument"},
		{"save output added to samples", sampled(names(base, usual)), sampled(names(edited(t, verdictBase, `+save "extra" F32 [4]`), usual+" Extra")),
			"compatible added +", ""},
		{"order of samples", sampled(names(twoInputs, "Image Mask Logits Scale Seed W")), sampled(names(swapped, "Mask Image Logits Scale Seed W")),
			"breaking order +", `order of Inputs: was ["image" "mask"], is ["mask" "image"] (RunSamples takes its slices in this order)`},
		{"order of what comes with samples", names(twoInputs, "Image Mask Logits Scale Seed W"), sampled(names(swapped, "Mask Image Logits Scale Seed W")),
			"breaking order +, compatible samples +", "RunSamples takes its slices in this order"},
		{"order of load inputs, with samples", sampled(names(base, usual)),
			sampled(names(edited(t, verdictBase, `-load "scale"`, `+load "scale" F32 [] < save`), "Image Logits Seed Scale W")), "compatible order +", ""},
		{"a name with a comma, and a handle", names(base, usual), named(names(edited(t, verdictBase, `"logits" => "a,b"`), "Image AB Scale Seed W"), 1, "d2h"),
			"breaking renamed", "to do: adapt the callers, or keep the Go name: generate with --rename d2h=Logits"},
		{"a name with a comma", names(base, usual), names(edited(t, verdictBase, `"logits" => "a,b"`), "Image AB Scale Seed W"),
			"breaking renamed", "to do: adapt the callers"},
		{"samples go", sampled(names(base, usual)), names(base, usual), "breaking samples +", "RunSamples and the types of one sample are gone"},
		{"samples come", names(base, usual), sampled(names(base, usual)), "compatible samples +", ""},
		{"samples and a model", sampled(names(base, usual)), base, "", ""},
		{"quoted", names(base, usual), names(edited(t, verdictBase, `"logits" => "it's"`), "Image ItS Scale Seed W"), "breaking renamed", `--rename 'it'\''s=Logits'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got, text []string
			for _, f := range contract.Judge(c.old, c.new) {
				line := fmt.Sprint(f.Verdict, " ", f.Kind)
				if f.Opens {
					line += " +"
				}
				got, text = append(got, line), append(text, f.String())
			}
			require.Equal(t, c.want, strings.Join(got, ", "))
			require.Contains(t, strings.Join(text, "\n"), c.text)
			if strings.HasSuffix(c.text, "adapt the callers") {
				require.True(t, strings.HasSuffix(text[0], c.text), "nothing else helps: %s", text[0])
			}
		})
	}
}

// TestJudgeAny compares random contracts: a verdict is identical if and only
// if the texts are the same, and every field that a package opened for has one
// of its own in the model.
func TestJudgeAny(t *testing.T) {
	draw := func(t *rapid.T, label string) contract.Published {
		var meta popef.Metadata
		meta.ReplicationFactor, meta.DeviceIterations = rapid.Uint32Range(0, 2).Draw(t, label), rapid.Uint32Range(0, 2).Draw(t, label)
		meta.SeedHandle = rapid.SampledFrom([]string{"", "h0"}).Draw(t, label)
		meta.ProgramFlow = popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{1}, Save: rapid.SliceOfN(rapid.Uint32Range(2, 3), 0, 2).Draw(t, label)}
		for range rapid.IntRange(0, 5).Draw(t, label) {
			meta.Anchors = append(meta.Anchors, popef.Anchor{
				Name: rapid.SampledFrom([]string{"", "a", "b", "a/b"}).Draw(t, label), Handle: rapid.SampledFrom([]string{"", "h0", "h1", "h2"}).Draw(t, label),
				Type: popef.TensorType(rapid.Uint16Range(0, 3).Draw(t, label)), Programs: rapid.SliceOfN(rapid.Uint32Range(0, 3), 0, 2).Draw(t, label),
				Info:       popef.TensorInfo{DataType: popef.F32, Shape: rapid.SliceOfN(rapid.Int64Range(0, 2), 0, 2).Draw(t, label)},
				PerReplica: rapid.Bool().Draw(t, label), RemoteBuffer: rapid.Bool().Draw(t, label), Repeats: rapid.Uint32Range(0, 2).Draw(t, label),
			})
		}
		return contract.Of(&popef.Model{Metadata: meta}).Published()
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "old"), draw(t, "new")
		found := contract.Judge(a, b)
		require.Equal(t, a.Text() == b.Text(), contract.Worst(found) == contract.Identical)
		require.Equal(t, a.Text() == b.Text(), len(found) == 0)
		require.Empty(t, contract.Judge(a, a))
		back, err := contract.ParseFile(a.FileText())
		require.NoError(t, err)
		require.Equal(t, a.FileText(), back.FileText())
		require.Empty(t, contract.Judge(a, back))
		pairs := contract.Compare(a, b).Fields
		if contract.Opens(found) {
			seen := map[int]bool{}
			for i, at := range pairs {
				require.False(t, at < 0 || seen[at])
				seen[at] = true
				was, is := a.Fields[i], b.Fields[at]
				require.Equal(t, was.Name, is.Name)
				require.Equal(t, was.Group, is.Group)
				require.Equal(t, was.Info, is.Info)
			}
		}
	})
}

func TestFindingJSON(t *testing.T) {
	found := contract.Judge(edited(t, verdictBase), edited(t, verdictBase, `+save "state" S32 [4]`))
	b, err := json.Marshal(found)
	require.NoError(t, err)
	require.Equal(t, `[{"kind":"added","verdict":"compatible","opens":true,"what":"save output \"state\"","anchor":"state","old":"","new":"S32 [4]",`+
		`"why":"callers may ignore it: NewSaveOutputs allocates it","do":"generate the package again to see it; code that fills SaveOutputs without NewSaveOutputs must then set the field"}]`, string(b))
	require.Equal(t, "verdict(9)", contract.Verdict(9).String())
}

func TestParseFile(t *testing.T) {
	p := edited(t, verdictBase)
	p.GoNames, p.Samples = strings.Fields("Image Logits É Seed W"), true
	good := p.FileText()
	require.True(t, contract.IsFile([]byte(good)))
	back, err := contract.ParseFile(good)
	require.NoError(t, err)
	require.Equal(t, good, back.FileText())
	require.Empty(t, contract.Judge(p, back))
	again, err := contract.ParseFile(strings.ReplaceAll(good, "\n", "\r\n"))
	require.NoError(t, err)
	require.Equal(t, back, again)

	for _, c := range []struct{ name, text, want string }{
		{"empty", "", `line 1: found "", want "popefgen contract 2"`},
		{"no hash", p.Text(), "line 8: want the line # hash"},
		{"edited", strings.Replace(good, "iterations 1", "iterations 2", 1), "line 8: the hash is"},
		{"cut hash", good[:strings.Index(good, "# hash")+20], "line 8: want the line # hash"},
		{"names out of order", strings.Replace(good, "# go \"image\" Image\n# go \"logits\" Logits\n", "# go \"logits\" Logits\n# go \"image\" Image\n", 1), "out of order"},
		{"names missing", strings.Replace(good, "# go \"image\" Image\n", "", 1), "4 Go names for 5 fields"},
		{"no name", strings.Replace(good, "\" Image\n", "\"\n", 1), `want the like of # go "image" Image`},
		{"no anchor", strings.Replace(good, "# go \"image\"", "# go image", 1), "line 10: found"},
		{"other comment", good + "# hello\n", "line 15: found"},
		{"cut name", good[:len(good)-1], "line 14: found"},
		{"damaged contract", strings.Replace(good, "F32", "F33", 1), "line 3: "},
		{"a newer format", strings.Replace(good, "contract 2", "contract 8", 1), `line 1: found "popefgen contract 8"`},
		{"that of fused models", strings.Replace(good, "contract 2", "contract 4", 1), `line 3: found "input`},
		{"that of families", strings.Replace(good, "contract 2", "contract 3", 1), "neither a dimension nor a length is open"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := contract.ParseFile(c.text)
			require.ErrorIs(t, err, contract.ErrText)
			require.ErrorContains(t, err, c.want)
		})
	}
	for _, text := range []string{"", "popefgen contract 1", "popefgen contract 2\r\n", "popefgen contract 1\n", "popefgen contract 10\n", " popefgen contract 1\n", "popefgen contract 3\n", "popefgen contract 4\n", "popefgen contract 5\n", "popefgen contract 6\n", "popefgen contract 8\n"} {
		line := strings.TrimRight(text, "\r\n")
		require.Equal(t, slices.Contains([]string{"popefgen contract 1", "popefgen contract 2", "popefgen contract 3", "popefgen contract 4", "popefgen contract 5", "popefgen contract 6"}, line), contract.IsFile([]byte(text)), "%q", text)
	}
}

// format1 is a contract.txt as it was before format 2.
const format1 = `popefgen contract 1
replicas 1
ipus 1
iterations 0
seed "h2d_seed"
load 0 2
main 5
save 7
anchor "image" input F32 [4 1 28 28] handle "h2d_image" programs [5]
anchor "logits" output F32 [4 10] handle "d2h_logits" programs [5]
anchor "scale" input F32 [] handle "h2d_scale" programs [0]
anchor "seed" input U32 [2] handle "h2d_seed" programs [2]
anchor "w" input F16 [10] handle "h2d_w" programs [0] per-replica remote repeats 2 data
anchor "w" output F16 [10] handle "d2h_w" programs [7]
# hash 7b96fe6f4f27f0a38ae1ae57c8d4b69ab1c72ddde93722869d279cdacdbadfec
# go "d2h_logits" Logits
# go "d2h_w" W
# go "h2d_image" Image
# go "h2d_scale" Scale
# go "h2d_seed" Seed
`

// TestFormat1 reads what older packages have beside them: the fields are those
// of the base, and all that differs is the format.
func TestFormat1(t *testing.T) {
	require.True(t, contract.IsFile([]byte(format1)))
	old, err := contract.ParseFile(format1)
	require.NoError(t, err)
	require.Equal(t, strings.Fields("Image Logits Scale Seed W"), old.GoNames)
	require.Equal(t, "7b96fe6f", old.Hash()[:8])
	new := edited(t, verdictBase, `-load "seed"`, `+load "seed" U32 [2] < load`)
	found := contract.Judge(old, new)
	require.Len(t, found, 1, "%v", found)
	require.Equal(t, contract.KindFormat, found[0].Kind)
	require.Equal(t, contract.Compatible, found[0].Verdict)
	require.False(t, contract.Opens(found), "its package compares all of a model")
	require.Empty(t, contract.Judge(old, old))
	require.Equal(t, contract.Breaking, contract.Worst(contract.Judge(old, edited(t, verdictBase, "[4 10] => [4 11]"))))

	for _, c := range []struct{ name, text, want string }{
		{"edited", strings.Replace(format1, "ipus 1", "ipus 2", 1), "line 15: the hash is"},
		{"damaged", strings.Replace(format1, "input F32", "input F33", 1), "line 9: "},
		{"cut", format1[:strings.Index(format1, "# hash")-1], "line 14: found \"\", want the end of the line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := contract.ParseFile(c.text)
			require.ErrorIs(t, err, contract.ErrText)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// FuzzParseFile checks that every text is refused, or is what FileText writes.
func FuzzParseFile(f *testing.F) {
	p := edited(f, verdictBase)
	f.Add(p.FileText())
	p.GoNames = strings.Fields("Image Logits Scale Seed W")
	f.Add(p.FileText())
	f.Add(p.Text())
	f.Add(format1)
	f.Add(edited(f, fusedBase).FileText())
	of := edited(f, familyBase)
	of.SizeNames = strings.Fields("Batch1Seq16 Batch4Seq16 Batch4Seq32")
	f.Add(of.FileText())
	f.Add("popefgen contract 1\n# hash \n# go \"\" X")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := contract.ParseFile(text)
		if err != nil {
			require.ErrorIs(t, err, contract.ErrText)
			return
		}
		if strings.HasPrefix(text, "popefgen contract 1") {
			require.Empty(t, contract.Judge(p, p))
			return // its text is not written any more
		}
		require.Equal(t, strings.ReplaceAll(text, "\r\n", "\n"), p.FileText())
	})
}

// TestNotes compares models that differ in nothing that the contract has.
func TestNotes(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(f *popeftest.Fixture)
		want   []string
	}{
		{"nothing", func(*popeftest.Fixture) {}, nil},
		{"weights", func(f *popeftest.Fixture) { f.Tensors[0].Data[0]++ }, []string{`weights: was 2 tensors, is other data in 1 of them: "init_input"`}},
		{"engine option", func(f *popeftest.Fixture) {
			o := slices.Clone(f.Metadata.EngineOptions)
			o[0].Value = "changed"
			f.Metadata.EngineOptions = o
		}, []string{`is "changed"`}},
		{"option added and removed", func(f *popeftest.Fixture) {
			f.Metadata.DeviceOptions = append(slices.Clone(f.Metadata.DeviceOptions), popef.Option{Name: "x", Value: "1"}, popef.Option{Name: "x", Value: "2"})
		}, []string{`device option "x": was not set, is "1, 2"`}},
		{"program names", func(f *popeftest.Fixture) { f.Metadata.Programs = f.Metadata.Programs[1:] }, []string{"name of program 0: was "}},
		{"hardware", func(f *popeftest.Fixture) {
			f.Metadata.IPUVersion, f.Metadata.IsPOD, f.Metadata.NumProcesses = 21, true, 3
		},
			[]string{"IPU version: was ", "pod: was no, is yes", "processes: was 1, is 3"}},
		{"IPUs and programs", func(f *popeftest.Fixture) {
			f.Metadata.NumIPUs, f.Metadata.ProgramFlow.Load = 2, append(slices.Clone(f.Metadata.ProgramFlow.Load), 9)
		}, []string{"load programs: was ", "IPUs: was 1, is 2"}},
		{"handle", func(f *popeftest.Fixture) {
			for i := range f.Metadata.Anchors {
				if f.Metadata.Anchors[i].Name == "input" {
					f.Metadata.Anchors[i].Handle = "fed"
				}
			}
		}, []string{`stream handle of run input "input": was "h2d_input", is "fed"`}},
		{"renamed weight", func(f *popeftest.Fixture) {
			for i := range f.Metadata.Anchors {
				if f.Metadata.Anchors[i].Name == "init_input" {
					f.Metadata.Anchors[i].Name = "onnx::MatMul_7"
				}
			}
			f.Tensors[0].Name = "onnx::MatMul_7"
		}, []string{`hidden inputs: was 2, is 2: without "init_input"; with the new "onnx::MatMul_7"`}},
		{"training", func(f *popeftest.Fixture) { f.Metadata.IsInference = false }, []string{"inference: was yes, is no"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := popeftest.ModelA()
			c.change(f)
			old, new := popeftest.ModelA().Load(t), f.Load(t)
			found, err := contract.Notes(old, new)
			require.NoError(t, err)
			require.Len(t, found, len(c.want))
			for i, n := range found {
				require.Contains(t, n.String(), c.want[i])
				require.True(t, n.Kind.Outside())
				require.Equal(t, contract.Compatible, n.Verdict)
				require.NotContains(t, n.String(), "\n")
			}
			require.Equal(t, contract.Identical, contract.Worst(found))
			require.True(t, contract.Opens(found))
			require.Equal(t, contract.Of(old).Callers().Hash(), contract.Of(new).Callers().Hash())
		})
	}
	found, err := contract.Notes(popeftest.ModelA().Load(t), popeftest.ModelB().Load(t))
	require.NoError(t, err)
	require.Equal(t, contract.KindExecutable, found[0].Kind)
}
