package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestWalks: the functions of docs/walks.md exist where its links point to, and
// call each other in the order of the lists.
func TestWalks(t *testing.T) {
	walks, err := readPage(root)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(walks), 4)
	code, err := load(root, directories(walks))
	require.NoError(t, err)
	for _, w := range walks {
		require.GreaterOrEqual(t, len(w.steps), 8, w.title)
		if _, err := code.follow(w); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// fixture is a module with a call of each kind.
const fixture = `package f

type runner interface {
	run(n int)
	close()
}

type engine struct{}

func (*engine) run(int) { leaf[int]() }
func (*engine) close()  {}

type half struct{}

func (half) run(int) { other() }

var _ = half.run // handed on, and no runner all the same

func start(r runner) {
	defer r.close()
	prepare()
	func() { r.run(1) }()
}

func prepare() { passes[0](nil) }

type name = string

func loop(r runner) {
	for range 2 {
		r.run(1)
		prepare()
	}
	other()
}

func made() func(int) string { return func(int) string { other(); return "" } }

func useMade(f func(int) string) { f(1) }

var passes = []func([]*string){first, second}

func first([]*name)    {}
func second([]*name)   { other() }
func third([]*name)    {}
func other()           { inAssembly(1) }
func leaf[T any]()     {}
func inAssembly(n int) int
func tile(n int) int
`

func fixtureCode(t *testing.T) (*program, func(names ...string) walk) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module " + module + "\n\ngo 1.26\n",
		"f/f.go":      fixture,
		"f/f_amd64.s": "TEXT ·inAssembly(SB), 4, $0\n\tJMP ·tile(SB)\n\tRET\n\nTEXT ·tile(SB), 4, $0\n\tRET\n",
	} {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	code, err := load(dir, []string{"f"})
	require.NoError(t, err)
	return code, func(names ...string) walk {
		w := walk{title: "fixture"}
		for i, name := range names {
			file := "f/f.go"
			if name == "inAssembly" || name == "tile" {
				file = "f/f_amd64.s"
			}
			w.steps = append(w.steps, step{line: i + 1, name: "f." + name, file: file})
		}
		return w
	}
}

func TestFollow(t *testing.T) {
	code, walkOf := fixtureCode(t)
	for _, test := range []struct {
		name    string
		steps   []string
		callers string
		wrong   string
	}{
		{name: "calls", steps: []string{"prepare", "passes", "second", "other", "inAssembly"}, callers: " f.prepare f.passes f.second f.other"},
		{name: "a value that is called", steps: []string{"prepare", "first"}, callers: " f.prepare"},
		{name: "from assembly to assembly", steps: []string{"other", "inAssembly", "tile"}, callers: " f.other f.inAssembly"},
		{name: "not from the tile back", steps: []string{"tile", "inAssembly"}, wrong: "f.inAssembly is called neither"},
		{name: "around a loop", steps: []string{"loop", "prepare", "engine.run"}, callers: " f.loop f.loop"},
		{name: "not back into a loop", steps: []string{"loop", "other", "prepare"}, wrong: "f.prepare is called neither by f.other"},
		{name: "a literal that is called", steps: []string{"useMade", "made", "other"}, callers: " f.useMade f.made"},
		{name: "no literal of that type", steps: []string{"useMade", "start"}, wrong: "f.start is called neither by f.useMade"},
		{name: "method of an interface, in a function literal", steps: []string{"start", "engine.run", "leaf"}, callers: " f.start f.engine.run"},
		{name: "back to a caller", steps: []string{"start", "engine.close", "prepare", "first", "engine.run"}, callers: " f.start f.start f.prepare f.start"},
		{name: "calls in another order", steps: []string{"start", "engine.run", "prepare"}, wrong: `docs/walks.md:3: "fixture": f.prepare is called neither by f.engine.run`},
		{name: "callee first", steps: []string{"prepare", "start"}, wrong: "f.start is called neither by f.prepare"},
		{name: "a step left out", steps: []string{"start", "first"}, wrong: "go run ./internal/walks f start"},
		{name: "not all methods of the interface", steps: []string{"start", "half.run"}, wrong: "f.half.run is called neither"},
		{name: "never handed on", steps: []string{"prepare", "third"}, wrong: "f.third is called neither"},
		{name: "no such function", steps: []string{"start", "stop"}, wrong: "docs/walks.md:2: there is no function stop in f"},
	} {
		t.Run(test.name, func(t *testing.T) {
			callers, err := code.follow(walkOf(test.steps...))
			if test.wrong != "" {
				require.ErrorContains(t, err, test.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.callers, strings.Join(callers, " "))
		})
	}
}

func TestFind(t *testing.T) {
	code, _ := fixtureCode(t)
	for _, test := range []struct {
		step step
		want string
	}{
		{step{name: "f.start", file: "f/g.go"}, "f.start is in f/f.go, not in f/g.go"},
		{step{name: "g.start", file: "f/f.go"}, "g.start is in package f"},
		{step{name: "f.start", file: "f/f_amd64.s"}, "f.start is not in f/f_amd64.s"},
		{step{name: "f.inAssembly", file: "f/g_amd64.s"}, "g_amd64.s"},
	} {
		_, err := code.find(test.step)
		require.ErrorContains(t, err, test.want)
	}
}

func TestParse(t *testing.T) {
	got, err := parse(strings.Join([]string{
		"# Walks", "", "1. no walk yet", "", "## Down", "text", "1. [`a.F`](../a/a.go) text", "   more", "2. [`b.T.M`](../b/b.go)", "",
		"## Nothing", "", "## Up", up, "1. [`a.F`](../a/a.go)", "2. [`a.G`](../a/a.go)",
	}, "\n"))
	require.NoError(t, err)
	want := []walk{
		{title: "Down", line: 5, steps: []step{{7, "a.F", "a/a.go"}, {9, "b.T.M", "b/b.go"}}},
		{title: "Up", line: 13, steps: []step{{16, "a.G", "a/a.go"}, {15, "a.F", "a/a.go"}}},
	}
	require.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(walk{}, step{})))
	require.Equal(t, []string{"a", "b"}, directories(got))

	_, err = parse("## Down\n1. `a.F`\n")
	require.ErrorContains(t, err, "docs/walks.md:2: an item of a walk begins with a link")
	_, err = parse("## Down\n1. [`a.F`](../a/a.go)\n3. [`a.F`](../a/a.go)\n")
	require.ErrorContains(t, err, "item 3 is the 2th of the list")
}

func TestRelinked(t *testing.T) {
	code, _ := fixtureCode(t)
	text := "## Down\n\n1. [`f.start`](../f/old.go): [`f.start`](../f/old.go)\n2. [`f.gone`](../f/old.go)\n3. [`f.tile`](../f/f_amd64.s)\n"
	walks, err := parse(text)
	require.NoError(t, err)
	require.Equal(t, strings.Replace(text, "f/old.go", "f/f.go", 1), code.relinked(text, walks))
}
