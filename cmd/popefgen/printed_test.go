package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef"
)

// evil is part of every name of the models in these tests: it drives a
// terminal, begins a line of its own, hides and turns text around, ends
// comments and strings, and is not UTF-8.
const evil = "n\nFORGED\r\x1b[31m\x1b]0;title\a\x00\u202etxt\u2066\u200b\u2028\u009b\U000e0041\u3164*/`\"'</script>\x9b\xff"

// evilText is evil where a format wants UTF-8, evilFile where somebody names a
// file or a flag's value: a line break there is that person's own.
var (
	evilText = strings.ToValidUTF8(evil, "")
	evilFile = strings.NewReplacer("/", "", "\x00", "", "\n", "").Replace(evil)
)

// proto writes protobuf fields for models of tests.
type proto []byte

func (p proto) text(field protowire.Number, s string) proto { return p.message(field, proto(s)) }

func (p proto) message(field protowire.Number, m proto) proto {
	return protowire.AppendBytes(protowire.AppendTag(p, field, protowire.BytesType), m)
}

func (p proto) number(field protowire.Number, v uint64) proto {
	return protowire.AppendVarint(protowire.AppendTag(p, field, protowire.VarintType), v)
}

// evilONNX is y = op(x + w) with every name made by name; "Relu" of the empty
// domain is an operator that exists.
func evilONNX(op, domain string, open bool, name func(string) string) []byte {
	value := func(n string) proto {
		dim := proto{}.number(1, 2)
		if open {
			dim = proto{}.text(2, name("dim"))
		}
		shape := proto{}.message(1, dim).message(1, proto{}.number(1, 3))
		return proto{}.text(1, name(n)).message(2, proto{}.message(1, proto{}.number(1, 1).message(2, shape))).text(3, name("doc"))
	}
	weight := proto{}.number(1, 3).number(2, 1).text(8, name("w")).message(9, make(proto, 12))
	node := func(op, domain, out string, in ...string) proto {
		n := proto{}
		for _, s := range in {
			n = n.text(1, name(s))
		}
		return n.text(2, name(out)).text(3, name("node "+op)).text(4, op).text(6, name("doc")).text(7, domain)
	}
	g := proto{}.message(1, node("Add", "", "sum", "x", "w")).message(1, node(op, domain, "y", "sum")).
		text(2, name("graph")).message(5, weight).text(10, name("doc")).message(11, value("x")).message(12, value("y"))
	m := proto{}.number(1, 8).text(2, name("producer")).text(3, name("version")).message(7, g).message(8, proto{}.number(2, 17)).
		message(14, proto{}.text(1, name("key")).text(2, name("value")))
	if domain != "" {
		m = m.message(8, proto{}.text(1, domain).number(2, 1))
	}
	return m
}

// evilPoplar is a model for real IPUs, all of whose names are name's.
func evilPoplar(path string, size int64, name func(string) string) error {
	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{size}}
	return popef.WriteFile(path, func(w *popef.Writer) error {
		err := w.WriteMetadata(&popef.Metadata{
			ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, IsInference: true, Executable: name("exe"), DeviceIterations: 1, SeedHandle: name("seed"),
			ProgramFlow:   popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}},
			Programs:      []popef.ProgramInfo{{Index: 5, Name: name("program")}},
			EngineOptions: []popef.Option{{Name: name("option"), Value: name("value")}},
			DeviceOptions: []popef.Option{{Name: name("option"), Value: name("value")}},
			Anchors: []popef.Anchor{
				{Name: name("x"), Handle: name("hx"), Programs: []uint32{5}, Info: info, Type: popef.Input},
				{Name: name("y"), Handle: name("hy"), Programs: []uint32{5}, Info: info, Type: popef.Output},
				{Name: name("w"), Handle: name("hw"), Programs: []uint32{0}, Info: info, Type: popef.Input},
			},
		})
		if err != nil {
			return err
		}
		e, err := w.CreateExecutable(name("exe"), false)
		if err != nil {
			return err
		}
		if _, err := e.Write(append([]byte("GC_EXE_3"), make([]byte, 32)...)); err != nil {
			return err
		}
		return e.Close()
	})
}

// shown fails if text has anything in it that must not be printed, or a line
// that a name began.
func shown(t *testing.T, what, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), "%s is not UTF-8", what)
	for i, r := range text {
		if printable.Hidden(r) {
			require.Fail(t, "printed raw", "%s has %U: …%q…", what, r, text[max(0, i-40):min(len(text), i+40)])
		}
	}
	for line := range strings.Lines(text) {
		require.False(t, strings.HasPrefix(line, "FORGED"), "%s: a name begins a line: %s", what, line)
	}
}

// syncBuffer is a buffer that a running command writes to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// say runs the command, looks at all that it prints, and returns it.
func say(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var o, e syncBuffer
	if slices.Contains(args, "watch") { // it ends when it has generated, and has seen the files change
		go func() {
			for ctx.Err() == nil && !strings.Contains(e.String(), "wrote") && !strings.Contains(e.String(), "again") {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
	}
	code = Run(ctx, args, strings.NewReader(""), &o, &e)
	out, errOut = o.String(), e.String()
	shown(t, fmt.Sprintf("stdout of %q", args), out)
	shown(t, fmt.Sprintf("stderr of %q", args), errOut)
	return code, out, errOut
}

// evilFolder makes the current folder one with hostile models.
func evilFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	all := func(s string) string { return s + evil }
	text := func(s string) string { return s + evilText }
	write := func(name string, data []byte) { require.NoError(t, os.WriteFile(name, data, 0o666)) }
	write("good.onnx", evilONNX("Relu", "", false, all))
	write("open.onnx", evilONNX("Relu", "", true, text))
	write("op.onnx", evilONNX(evil, "", false, all))
	write("domain.onnx", evilONNX("Relu", evil, false, all))
	write("other.onnx", evilONNX("Sigmoid", "", false, func(s string) string { return s + "2" + evil }))
	require.NoError(t, evilPoplar("poplar.popef", 4, all))
	require.NoError(t, evilPoplar("poplar5.popef", 5, func(s string) string { return "\r" + s + evil }))
	// Names of files are anybody's too.
	write(evilFile+".onnx", evilONNX("Relu", "", false, all))
	require.NoError(t, evilPoplar(evilFile+".popef", 4, all))
	write("popefgen.yaml", []byte("models:\n  - model: good.onnx\n    output: p2\n    embed: true\n    rename: {\"a\\u202e\\e\": X}\n"))
	write("broken.yaml", []byte("models:\n  - model: \"\\e[31m\\u202e.popef\"\n    output: \"\\e]0;x\\a\"\n    \"\\e\": 1\n"))
	for _, d := range []string{"case", "case" + evilFile} {
		set := filepath.Join(d, "test_data_set_0")
		require.NoError(t, os.MkdirAll(set, 0o777))
		write(filepath.Join(d, "model.onnx"), evilONNX("Relu", "", false, all))
		tensor := proto{}.number(1, 2).number(1, 3).number(2, 1).text(8, evil).message(9, make(proto, 24))
		write(filepath.Join(set, "input_0.pb"), tensor)
		tensor[len(tensor)-1] = 0x7f
		write(filepath.Join(set, "output_0.pb"), tensor)
	}
}

// TestPrinted runs every command over models whose every name is hostile, and
// looks at all that it prints and all that it writes.
func TestPrinted(t *testing.T) {
	evilFolder(t)
	ran := map[string]bool{}
	for _, c := range []struct {
		code int
		args []string
	}{
		{0, []string{"compile", "good.onnx", "-o", "good.popef"}},
		{0, []string{"compile", "good.onnx", "-o", "constants.popef", "--constants", "--compress"}},
		{0, []string{"compile", "other.onnx", "-o", "other.popef"}},
		{0, []string{"compile", evilFile + ".onnx", "-o", evilFile + "2.popef"}},
		{2, []string{"compile", "open.onnx"}},
		{2, []string{"compile", "op.onnx"}},
		{2, []string{"compile", "domain.onnx"}},
		{2, []string{"compile", "good.onnx", "--dim", evilFile + "=1", "--bind", evilFile + "=" + evilFile}},
		{2, []string{"compile", "good.onnx", "--without-pass", evilFile}},
		{0, []string{"inspect", "good.popef"}},
		{0, []string{"inspect", "poplar.popef"}},
		{0, []string{"inspect", evilFile + ".popef"}},
		{2, []string{"inspect", "good.popef", "poplar.popef", evilFile + ".popef", evilFile + "2.popef"}},
		{0, []string{"inspect", "good.popef", "--plan"}},
		{0, []string{"inspect", "poplar.popef", "--json"}},
		{0, []string{"inspect", "good.popef", "--dot"}},
		{0, []string{"inspect", "good.onnx", "--svg", "x.svg"}},
		{0, []string{"inspect", "good.onnx", "--html", "x.html"}},
		{0, []string{"inspect", "good.popef", "--html", "against.html", "--against", "other.popef"}},
		{0, []string{"inspect", evilFile + ".onnx"}},
		{2, []string{"inspect", "domain.onnx", "--json"}},
		{2, []string{"inspect", evilFile}},
		{1, []string{"diff", "good.popef", "other.popef", "--html", "diff.html"}},
		{1, []string{"diff", "poplar.popef", "poplar5.popef"}},
		{1, []string{"diff", "poplar.popef", "poplar5.popef", "--json"}},
		{1, []string{"diff", "poplar.popef", "poplar5.popef", "--markdown"}},
		{2, []string{"diff", "git:" + evilFile + ":" + evilFile, "good.popef"}},
		{0, []string{"generate", "-m", "good.popef", "-o", "p", "--embed"}},
		{0, []string{"generate", "-m", "poplar.popef", "-o", "q"}},
		{2, []string{"generate", "-m", "good.popef", "-o", "p", "--rename", evilFile + "=X"}},
		{2, []string{"generate", "-m", evilFile + ".popef", "-o", "r"}},
		{2, []string{"generate", "-c", "broken.yaml"}},
		{2, []string{"generate"}},
		{1, []string{"check", "-m", "other.popef", "-o", "p", "--embed"}},
		{1, []string{"check", "-m", "poplar5.popef", "-o", "q"}},
		{0, []string{"watch", "-m", "poplar5.popef", "-o", "q", "--interval", "1ms"}},
		{0, []string{"run", "good.popef", "--random", "1"}},
		{2, []string{"run", "good.popef"}},
		{2, []string{"run", "good.popef", "--input", evilFile + "=" + evilFile}},
		{2, []string{"run", "poplar.popef"}},
		{0, []string{"run", "good.popef", "--random", "1", "--output-dir", "out"}},
		{1, []string{"verify", "case"}},
		{1, []string{"verify", ".", "--recursive", "--json"}},
		{0, []string{"golden", "record", "good.popef", "-o", "g", "--random", "1"}},
		{2, []string{"golden", "record", "good.popef", "-o", "g", "--random", "1", "--tolerance", evilFile + "=exact"}},
		{0, []string{"golden", "verify", "good.popef", "g"}},
		{0, []string{"golden", "verify", "good.popef", "g", "--json"}},
		{2, []string{"golden", "verify", "other.popef", "g"}},
		{2, []string{"golden", evilFile}},
		{0, []string{"bench", "good.popef", "--mode", "all", "--duration", "1ms", "--profile"}},
		{0, []string{"bench", "good.onnx", "--duration", "1ms", "--profile", "--json"}},
		{2, []string{"bench", "good.onnx", "--mode", evilFile}},
		{1, []string{"reduce", "good.onnx", "-o", "small.onnx"}},
		{0, []string{"reduce", "good.onnx", "-o", "small.onnx", "--check", "grep -q Relu {}"}},
		{0, []string{"reduce", "op.onnx", "-o", evilFile + "s.onnx"}},
		{2, []string{"reduce", "domain.onnx", "--expect", evilFile + "=" + evilFile}},
		{2, []string{"extract", "good.popef", "-o", evilFile + ".onnx"}},
		{2, []string{"extract", evilFile + ".popef", "-o", "learnt.onnx"}},
		{0, []string{"devices"}},
		{2, []string{"calibrate", evilFile}},
		{0, []string{"version"}},
		{2, []string{"completion", evilFile}},
		{2, []string{"vet", evilFile}},
		{2, []string{evilFile}},
	} {
		restore := func() {}
		if c.args[0] == "reduce" { // it starts itself
			restore = asSelf(t)
		}
		code, _, errOut := say(t, c.args...)
		restore()
		require.Equal(t, c.code, code, "%q: %s", c.args, errOut)
		ran[c.args[0]] = true
	}
	for _, c := range newApp(nil, nil, nil).Commands {
		require.True(t, ran[c.Name], "no hostile model was given to popefgen %s: add it to the list", c.Name)
	}
	written(t, "p", "q", "g", "out", "x.svg", "x.html", "against.html", "diff.html")
}

// written looks at the names of the files in folders, and at those of them that
// are text.
func written(t *testing.T, roots ...string) {
	t.Helper()
	for _, root := range roots {
		files := 0
		require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			require.NoError(t, err)
			shown(t, "a file's name", filepath.Base(path))
			switch filepath.Ext(path) {
			case ".go", ".txt", ".json", ".svg", ".html":
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				shown(t, path, string(data))
			}
			if !e.IsDir() {
				files++
			}
			return nil
		}))
		require.NotZero(t, files, root)
	}
}

// TestPrintedOfEveryFlag gives every flag of every command a hostile value, and
// every command a hostile model.
func TestPrintedOfEveryFlag(t *testing.T) {
	evilFolder(t)
	var walk func(prefix []string, c *cli.Command)
	walk = func(prefix []string, c *cli.Command) {
		words := append(slices.Clone(prefix), c.Name)
		for _, sub := range c.Subcommands {
			walk(words, sub)
		}
		if len(c.Subcommands) > 0 {
			return
		}
		for _, f := range c.Flags {
			name := f.Names()[0]
			for _, model := range []string{"good.onnx", "poplar.popef"} {
				args := append(slices.Clone(words), "--"+name+"="+evilFile)
				if c.Name == "bench" && name != "duration" {
					args = append(args, "--duration=1ms")
				}
				if c.Name == "generate" || c.Name == "check" || c.Name == "watch" {
					args = append(args, "--model="+model)
				} else {
					args = append(args, model)
				}
				if c.Name == "watch" && name != "interval" {
					args = append(args, "--interval=1h")
				}
				if name == "first-answer" {
					continue // a flag of the program for itself
				}
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				var out, errOut bytes.Buffer
				Run(ctx, args, strings.NewReader(""), &out, &errOut)
				cancel()
				shown(t, fmt.Sprintf("stdout of %q", args), out.String())
				shown(t, fmt.Sprintf("stderr of %q", args), errOut.String())
			}
		}
	}
	for _, c := range newApp(nil, nil, nil).Commands {
		walk(nil, c)
	}
}

// TestPrintedAnyName is TestPrinted for any name, of what prints most of them.
func TestPrintedAnyName(t *testing.T) {
	t.Chdir(t.TempDir())
	rapid.Check(t, func(r *rapid.T) {
		part := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{evil, "\x1b[2J", "\u202e", "\nFORGED", "`|", "\xff"}),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 6), func(b []byte) string { return string(b) }))
		any := strings.Join(rapid.SliceOfN(part, 1, 3).Draw(r, "name"), "")
		name := func(s string) string { return s + any }
		require.NoError(r, evilPoplar("a.popef", 4, name))
		require.NoError(r, evilPoplar("b.popef", 5, func(s string) string { return s + "'" + any }))
		for _, args := range [][]string{{"inspect", "a.popef"}, {"diff", "a.popef", "b.popef"}, {"diff", "a.popef", "b.popef", "--markdown"}} {
			_, out, errOut := say(t, args...)
			if args[0] == "diff" {
				require.NotContains(r, out, "\t"+any)
				require.Empty(r, errOut)
			}
		}
		_, out, _ := say(t, "inspect", "a.popef", "--json")
		require.True(r, json.Valid([]byte(out)))
	})
}

// TestEvilNamesOfTheCases is TestPrinted for a stored model.
func TestEvilNamesOfTheCases(t *testing.T) {
	data := os.Getenv("POPEFGEN_TESTDATA")
	if data == "" {
		data = filepath.Join("..", "..", "..", "shared")
	}
	model, err := os.ReadFile(filepath.Join(data, "cases", "hostile", "evil_names.onnx.hostile"))
	if err != nil {
		t.Skipf("no hostile models in %s (set POPEFGEN_TESTDATA)", data)
	}
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("evil.onnx", model, 0o666))
	for _, args := range [][]string{
		{"compile", "evil.onnx", "-o", "evil.popef"},
		{"inspect", "evil.popef", "--plan"}, {"inspect", "evil.popef", "--json"}, {"inspect", "evil.popef", "--dot", "--svg", "e.svg", "--html", "e.html"},
		{"generate", "-m", "evil.popef", "-o", "evil", "--embed"}, {"check", "-m", "evil.popef", "-o", "evil", "--embed"},
		{"run", "evil.onnx", "--random", "1"}, {"bench", "evil.popef", "--duration", "1ms", "--profile"},
	} {
		code, _, errOut := say(t, args...)
		require.Zero(t, code, "%q: %s", args, errOut)
	}
	say(t, "golden", "record", "evil.popef", "-o", "g", "--random", "1") // two of its outputs may have the same file
	code, _, errOut := say(t, "run", "evil.popef", "--random", "1", "--output-dir", "out")
	require.Equal(t, exitTrouble, code)
	require.Contains(t, errOut, "would both be written to") // a/b and A/b
	require.NoDirExists(t, "out", "something was written before names were compared")
	written(t, "evil", "e.svg", "e.html")
}
