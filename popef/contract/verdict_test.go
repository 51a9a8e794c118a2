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

// verdictBase has an anchor of every role that callers see, and one that they
// don't.
const verdictBase = `popefgen contract 1
replicas 1
ipus 1
iterations 1
seed "h2d_seed"
load 0 2
main 5
save 7
anchor "image" input F32 [4 1 28 28] handle "h2d_image" programs [5]
anchor "logits" output F32 [4 10] handle "d2h_logits" programs [5]
anchor "scale" input F32 [] handle "h2d_scale" programs [0]
anchor "seed" input U32 [2] handle "h2d_seed" programs [2]
anchor "w" input F16 [10] handle "h2d_w" programs [0] data
anchor "w" output F16 [10] handle "d2h_w" programs [7]
`

// edited returns the contract of the base text after edits, which are
// "old => new" within a line, "-start of a line" or "+a new line".
func edited(t require.TestingT, base string, edits ...string) contract.Published {
	lines := strings.Split(strings.TrimSuffix(base, "\n"), "\n")
	for _, e := range edits {
		switch e[0] {
		case '-':
			n := len(lines)
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "anchor "+e[1:]) })
			require.Less(t, len(lines), n, e)
		case '+':
			lines = append(lines, "anchor "+e[1:])
		default:
			was, is, ok := strings.Cut(e, " => ")
			at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, was) })
			require.True(t, ok && at >= 0, e)
			lines[at] = strings.Replace(lines[at], was, is, 1)
		}
	}
	slices.Sort(lines[8:])
	c, err := contract.Parse(strings.Join(lines, "\n") + "\n")
	require.NoError(t, err)
	return contract.Published{Contract: c}
}

// verdictCases are pairs of contracts: the base and what edits make of it.
var verdictCases = []struct {
	name  string
	edits []string
	base  []string // edits of the old contract
	want  []string // verdict, kind and anchor of every finding
}{
	{name: "nothing"},
	{name: "type of an input", edits: []string{`"image" input F32 => "image" input F16`}, want: []string{"breaking type image"}},
	{name: "type of an output", edits: []string{`"logits" output F32 => "logits" output F16`}, want: []string{"breaking type logits"}},
	{name: "type of a load input", edits: []string{`"scale" input F32 => "scale" input F16`}, want: []string{"breaking type scale"}},
	{name: "type of a weight", edits: []string{`"w" input F16 => "w" input F32`, `"w" output F16 => "w" output F32`},
		want: []string{"breaking type w", "compatible type w"}},
	{name: "shape of an input", edits: []string{"[4 1 28 28] => [4 1 32 32]"}, want: []string{"breaking shape image"}},
	{name: "rank of an output", edits: []string{"[4 10] => [4 10 1]"}, want: []string{"breaking shape logits"}},
	{name: "scalar becomes a vector", edits: []string{"F32 [] => F32 [1]"}, want: []string{"breaking shape scale"}},
	{name: "batch of all", edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]"}, want: []string{"breaking batch image", "breaking batch logits"}},
	{name: "batch of the input alone", edits: []string{"[4 1 28 28] => [8 1 28 28]"}, want: []string{"breaking shape image"}},
	{name: "different batches", edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [2 10]"}, want: []string{"breaking shape image", "breaking shape logits"}},
	{name: "batch and another dimension", edits: []string{"[4 1 28 28] => [8 1 32 32]", "[4 10] => [8 10]"},
		want: []string{"breaking shape image", "breaking shape logits"}},
	{name: "batch, but one output stays", base: []string{`+"extra" output F32 [4] handle "d2h_extra" programs [5]`},
		edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]", `+"extra" output F32 [4] handle "d2h_extra" programs [5]`},
		want:  []string{"breaking shape image", "breaking shape logits"}},
	{name: "batch, and an input without a batch stays", base: []string{`+"bias" input F32 [10] handle "h2d_bias" programs [5]`},
		edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]", `+"bias" input F32 [10] handle "h2d_bias" programs [5]`},
		want:  []string{"breaking shape image", "breaking shape logits"}},
	{name: "batch, and a new output has it too", edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]", `+"extra" output F32 [8] handle "d2h_extra" programs [5]`},
		want: []string{"breaking batch image", "breaking batch logits", "compatible added extra"}},
	{name: "batch, but not of a new output", edits: []string{"[4 1 28 28] => [8 1 28 28]", "[4 10] => [8 10]", `+"extra" output F32 [4] handle "d2h_extra" programs [5]`},
		want: []string{"breaking shape image", "breaking shape logits", "compatible added extra"}},
	{name: "input removed", base: []string{`+"mask" input S32 [4] handle "h2d_mask" programs [5]`}, want: []string{"breaking removed mask"}},
	{name: "output removed", base: []string{`+"mask" output S32 [4] handle "d2h_mask" programs [5]`}, want: []string{"breaking removed mask"}},
	{name: "only save output removed", edits: []string{`-"w" output`}, want: []string{"breaking removed w"}},
	{name: "load inputs removed", edits: []string{`-"scale"`, `-"seed"`, `seed "h2d_seed" => seed ""`, "load 0 2 => load 0"},
		want: []string{"breaking removed scale", "breaking removed seed", "compatible seed ", "compatible load-flow "}},
	{name: "weight removed", edits: []string{`-"w" input`}, want: []string{"compatible removed w"}},
	{name: "required input added", edits: []string{`+"mask" input S32 [4] handle "h2d_mask" programs [5]`}, want: []string{"breaking added mask"}},
	{name: "required load input added", edits: []string{`+"rate" input F32 [] handle "h2d_rate" programs [0]`}, want: []string{"breaking added rate"}},
	{name: "first load input added", base: []string{`-"scale"`, `-"seed"`, `seed "h2d_seed" => seed ""`, "load 0 2 => load 0"},
		edits: []string{`-"seed"`, `seed "h2d_seed" => seed ""`, "load 0 2 => load 0"}, want: []string{"breaking added scale"}},
	{name: "output added", edits: []string{`+"mask" output S32 [4] handle "d2h_mask" programs [5]`}, want: []string{"compatible added mask"}},
	{name: "save output added", edits: []string{`+"state" output S32 [4] handle "d2h_state" programs [7]`}, want: []string{"compatible added state"}},
	{name: "weight added", edits: []string{`+"w2" input F32 [4] handle "h2d_w2" programs [0] data`}, want: []string{"compatible added w2"}},
	{name: "anchor of no program added", edits: []string{`+"cycles" output U32 [2] handle "d2h_cycles" programs [8]`}, want: []string{"compatible added cycles"}},
	{name: "probable rename", edits: []string{`"logits" output F32 [4 10] handle "d2h_logits" => "scores" output F32 [4 10] handle "d2h_scores"`},
		want: []string{"breaking renamed logits", "compatible handle logits"}},
	{name: "rename that keeps its handle", edits: []string{`anchor "logits" => anchor "scores"`}, want: []string{"breaking renamed logits"}},
	{name: "rename and another type are two things", edits: []string{`"logits" output F32 [4 10] handle "d2h_logits" => "scores" output F16 [4 10] handle "d2h_scores"`},
		want: []string{"breaking removed logits", "compatible added scores"}},
	{name: "two renames of one shape", base: []string{`+"a/in" input F32 [2] handle "h2d_a/in" programs [5]`, `+"b/in" input F32 [2] handle "h2d_b/in" programs [5]`},
		edits: []string{`+"x/b/in" input F32 [2] handle "h2d_x/b/in" programs [5]`, `+"x/a/in" input F32 [2] handle "h2d_x/a/in" programs [5]`},
		want:  []string{"breaking renamed a/in", "breaking renamed b/in", "compatible handle a/in", "compatible handle b/in"}},
	{name: "renamed weight", edits: []string{`"w" input F16 [10] handle "h2d_w" => "weight" input F16 [10] handle "h2d_weight"`},
		want: []string{"compatible removed w", "compatible added weight"}},
	{name: "input becomes an output", edits: []string{`"scale" input F32 [] handle "h2d_scale" programs [0] => "scale" output F32 [] handle "h2d_scale" programs [5]`},
		want: []string{"breaking role scale"}},
	{name: "load input becomes a run input", edits: []string{`"h2d_scale" programs [0] => "h2d_scale" programs [5]`}, want: []string{"breaking role scale"}},
	{name: "file now carries a load input", edits: []string{`"h2d_scale" programs [0] => "h2d_scale" programs [0] data`}, want: []string{"breaking role scale"}},
	{name: "file no longer carries a weight", edits: []string{`"h2d_w" programs [0] data => "h2d_w" programs [0]`}, want: []string{"breaking role w"}},
	{name: "file now carries the seed", edits: []string{`"h2d_seed" programs [2] => "h2d_seed" programs [2] data`}, want: []string{"breaking role seed"}},
	{name: "output that main no longer moves", edits: []string{`"d2h_logits" programs [5] => "d2h_logits" programs [8]`}, want: []string{"breaking role logits"}},
	{name: "output that main now moves", base: []string{`+"cycles" output U32 [2] handle "d2h_cycles" programs [8]`},
		edits: []string{`+"cycles" output U32 [2] handle "d2h_cycles" programs [5]`}, want: []string{"compatible role cycles"}},
	{name: "seed becomes a plain load input", edits: []string{`seed "h2d_seed" => seed ""`}, want: []string{"compatible seed ", "compatible role seed"}},
	{name: "handle", edits: []string{`handle "h2d_image" => handle "in_image"`}, want: []string{"compatible handle image"}},
	{name: "programs of an anchor", edits: []string{`"h2d_image" programs [5] => "h2d_image" programs [5 6]`}, want: []string{"compatible programs image"}},
	{name: "per replica", edits: []string{`"h2d_image" programs [5] => "h2d_image" programs [5] per-replica`}, want: []string{"compatible per-replica image"}},
	{name: "remote buffer of an output", edits: []string{`"d2h_logits" programs [5] => "d2h_logits" programs [5] remote`}, want: []string{"compatible remote-buffer logits"}},
	{name: "repeats of an output", edits: []string{`"d2h_logits" programs [5] => "d2h_logits" programs [5] repeats 3`}, want: []string{"breaking repeats logits"}},
	{name: "weight in a remote buffer", edits: []string{`"h2d_w" programs [0] data => "h2d_w" programs [0] remote data`},
		want: []string{"compatible role w", "compatible remote-buffer w"}},
	{name: "renumbered main program", edits: []string{"main 5 => main 6", `"h2d_image" programs [5] => "h2d_image" programs [6]`, `"d2h_logits" programs [5] => "d2h_logits" programs [6]`},
		want: []string{"compatible main-flow ", "compatible programs image", "compatible programs logits"}},
	{name: "another load program", edits: []string{"load 0 2 => load 0 2 3"}, want: []string{"compatible load-flow "}},
	{name: "no save program", edits: []string{"save 7 => save"}, want: []string{"breaking role w", "compatible save-flow "}},
	{name: "device iterations", edits: []string{"iterations 1 => iterations 16"}, want: []string{"breaking iterations "}},
	{name: "device iterations not recorded", edits: []string{"iterations 1 => iterations 0"}, want: []string{"compatible iterations "}},
	{name: "replicas", edits: []string{"replicas 1 => replicas 2"}, want: []string{"breaking replicas "}},
	{name: "more replicas", base: []string{"replicas 1 => replicas 2"}, edits: []string{"replicas 1 => replicas 4"}, want: []string{"compatible replicas "}},
	{name: "one replica", base: []string{"replicas 1 => replicas 2"}, want: []string{"compatible replicas "}},
	{name: "IPUs", edits: []string{"ipus 1 => ipus 4"}, want: []string{"compatible ipus "}},
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
				fmt.Fprintf(&all, "%v: %v\n", f.Verdict, f)
				worst = max(worst, f.Verdict)
				require.NotEmpty(t, f.Why)
				require.NotEmpty(t, f.Do)
				require.NotContains(t, f.String(), "\n")
			}
			require.Empty(t, cmp.Diff(c.want, got))
			require.Equal(t, worst, contract.Worst(found))
			require.Equal(t, len(contract.Diff(old.Contract, new.Contract)) == 0, len(found) == 0)
		})
	}
	golden(t, "verdicts.txt", all.String())
}

// TestJudgeGoNames judges what becomes of Go names.
func TestJudgeGoNames(t *testing.T) {
	names := func(p contract.Published, pairs ...string) contract.Published {
		p.GoNames = map[string]string{"h2d_image": "Image", "d2h_logits": "Logits", "h2d_scale": "Scale", "h2d_seed": "Seed", "d2h_w": "W"}
		for i := 0; i < len(pairs); i += 2 {
			p.GoNames[pairs[i]] = pairs[i+1]
		}
		return p
	}
	sampled := func(p contract.Published) contract.Published {
		p.Samples = true
		return p
	}
	base := edited(t, verdictBase)
	for _, c := range []struct {
		name     string
		old, new contract.Published
		want     string
		text     string
	}{
		{"same", names(base), names(base), "", ""},
		{"one side unknown", names(base), base, "", ""},
		{"another Go name", names(base), names(base, "h2d_image", "Image2"), "breaking go-name", "generate with --rename image=Image"},
		{"two anchors of one name are told apart by handle", names(base),
			names(edited(t, verdictBase, `+"w" output F16 [11] handle "d2h_w2" programs [7]`), "d2h_w", "W2", "d2h_w2", "W"),
			"breaking go-name, compatible added", "generate with --rename d2h_w=W"},
		{"renamed anchor, same Go name", names(base), names(edited(t, verdictBase, `anchor "logits" => anchor "logits_"`)),
			"compatible renamed", "both names make the Go name Logits; only the constant AnchorLogits has another value"},
		{"renamed anchor", names(base), names(edited(t, verdictBase, `anchor "logits" => anchor "the scores"`), "d2h_logits", "TheScores"),
			"breaking renamed", `Outputs.Logits gets another name, and so do its type and constants); to do: adapt the callers, or keep the Go name: generate with --rename 'the scores=Logits'`},
		{"renamed anchor that the flag can't name", names(base), names(edited(t, verdictBase, `anchor "logits" => anchor "a=b"`), "d2h_logits", "AB"),
			"breaking renamed", "--rename d2h_logits=Logits"},
		{"neither name nor handle can be said", names(base), names(edited(t, verdictBase, `"logits" output F32 [4 10] handle "d2h_logits" => "a=b" output F32 [4 10] handle "a,b"`), "a,b", "AB"),
			"breaking renamed, compatible handle", "to do: adapt the callers"},
		{"output added to samples", sampled(names(base)), sampled(names(edited(t, verdictBase, `+"extra" output F32 [4] handle "d2h_extra" programs [5]`), "d2h_extra", "Extra")),
			"breaking added", "RunSamples gets another argument"},
		{"save output added to samples", sampled(names(base)), sampled(names(edited(t, verdictBase, `+"extra" output F32 [4] handle "d2h_extra" programs [7]`), "d2h_extra", "Extra")),
			"compatible added", ""},
		{"output appears in samples", sampled(names(edited(t, verdictBase, `+"extra" output F32 [4] handle "d2h_extra" programs [8]`))),
			edited(t, verdictBase, `+"extra" output F32 [4] handle "d2h_extra" programs [5]`), "breaking role", "RunSamples gets another argument"},
		{"samples go", sampled(names(base)), names(base), "breaking samples", "RunSamples and the types of one sample are gone"},
		{"samples come", names(base), sampled(names(base)), "compatible samples", ""},
		{"samples and a model", sampled(names(base)), base, "", ""},
		{"quoted", names(base), names(edited(t, verdictBase, `anchor "logits" => anchor "it's"`), "d2h_logits", "ItS"), "breaking renamed", `--rename 'it'\''s=Logits'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got, text []string
			for _, f := range contract.Judge(c.old, c.new) {
				got, text = append(got, fmt.Sprint(f.Verdict, " ", f.Kind)), append(text, f.String())
			}
			require.Equal(t, c.want, strings.Join(got, ", "))
			require.Contains(t, strings.Join(text, "\n"), c.text)
		})
	}
}

// TestJudgeAny compares random contracts: a verdict is identical if and only
// if the texts are the same, and Judge finds something where Diff does.
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
		return contract.Published{Contract: contract.Of(&popef.Model{Metadata: meta})}
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
	})
}

func TestFindingJSON(t *testing.T) {
	found := contract.Judge(edited(t, verdictBase), edited(t, verdictBase, "ipus 1 => ipus 2"))
	b, err := json.Marshal(found)
	require.NoError(t, err)
	require.Equal(t, `[{"kind":"ipus","verdict":"compatible","what":"IPUs","old":"1","new":"2",`+
		`"why":"Open looks for a device of this size; callers do not name it","do":"generate the package again; see that such a device is there"}]`, string(b))
	require.Equal(t, "verdict(9)", contract.Verdict(9).String())
}

func TestParseFile(t *testing.T) {
	p := edited(t, verdictBase)
	p.GoNames, p.Samples = map[string]string{"h2d_image": "Image", "d2h \"é\"": "É"}, true
	good := p.FileText()
	require.True(t, contract.IsFile([]byte(good)))
	back, err := contract.ParseFile(good)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(p, back))
	back, err = contract.ParseFile(strings.ReplaceAll(good, "\n", "\r\n"))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(p, back))

	for _, c := range []struct{ name, text, want string }{
		{"empty", "", `line 1: found "", want "popefgen contract 1"`},
		{"no hash", p.Text(), "line 15: want the line # hash"},
		{"edited", strings.Replace(good, "ipus 1", "ipus 2", 1), "line 15: the hash is"},
		{"cut hash", good[:strings.Index(good, "# hash")+20], "line 15: want the line # hash"},
		{"names out of order", strings.Replace(good, "# go \"h2d_image\" Image\n", "# go \"a\" A\n", 1), "out of order"},
		{"no name", strings.Replace(good, "\" Image\n", "\"\n", 1), `want the like of # go "h2d_image" Image`},
		{"no handle", strings.Replace(good, "# go \"h2d_image\"", "# go image", 1), "line 18: found"},
		{"other comment", good + "# hello\n", "line 19: found"},
		{"cut name", good[:len(good)-1], "line 18: found"},
		{"damaged contract", strings.Replace(good, "input F32", "input F33", 1), "line 9: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := contract.ParseFile(c.text)
			require.ErrorIs(t, err, contract.ErrText)
			require.ErrorContains(t, err, c.want)
		})
	}
	for _, text := range []string{"", "popefgen contract 1", "popefgen contract 1\r\n", "popefgen contract 10\n", " popefgen contract 1\n"} {
		require.Equal(t, strings.TrimRight(text, "\r\n") == "popefgen contract 1", contract.IsFile([]byte(text)), "%q", text)
	}
}

// FuzzParseFile checks that every text is refused, or is what FileText writes.
func FuzzParseFile(f *testing.F) {
	p := edited(f, verdictBase)
	f.Add(p.FileText())
	p.GoNames = map[string]string{"h2d_image": "Image"}
	f.Add(p.FileText())
	f.Add(p.Text())
	f.Add("popefgen contract 1\n# hash \n# go \"\" X")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := contract.ParseFile(text)
		if err != nil {
			require.ErrorIs(t, err, contract.ErrText)
			return
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
			require.Equal(t, contract.Of(old).Hash(), contract.Of(new).Hash())
		})
	}
	found, err := contract.Notes(popeftest.ModelA().Load(t), popeftest.ModelB().Load(t))
	require.NoError(t, err)
	require.Equal(t, contract.KindExecutable, found[0].Kind)
}
