package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/popef"
)

type hostileFamily struct {
	name string
	from string // golden case
	text []string
	make func(m *golden.Model)
	lie  func(m *popef.Metadata) // about an executable that stays as it is
	want string                  // in what some command says; "" where the file is one to generate from
	runs string                  // in what commands that run it say, if none may
}

// hostileFamilies returns the golden family with something wrong, or with what looks right and is not meant
// well. It is no variable: commands are this binary too, and would make them at each start.
func hostileFamilies() []hostileFamily {
	return []hostileFamily{
		{name: "members", text: []string{`"members": [`, `"members": [` + strings.Repeat("{},", 1<<20)}, want: "more than 262144 values"},
		{name: "bytes", text: []string{`"version": 1,`, `"version": 1,` + strings.Repeat(" ", 5<<20)}, want: "bytes, want at most"},
		{name: "values", text: []string{`"sizes": [1, 4]`, `"sizes": [` + strings.Repeat("0,", 1<<19) + `0]`}, want: "values"},
		{name: "deep", text: []string{`"version": 1,`, `"x": ` + strings.Repeat("[", 1<<20)}, want: "deep"},
		{name: "twice", text: []string{`"version": 1,`, `"version": 1, "members": [],`}, want: `the name "members" twice`},
		{name: "cut", text: []string{`{"name": "y"`, "\x00"}, want: "not read as JSON"},
		{name: "negative", text: []string{`[2, 8]`, `[-2, 8]`}, want: "size -2"},
		{name: "large", text: []string{`[2, 8]`, `[2, 99999999999999999999]`}, want: "not read as JSON"},
		{name: "overflow", text: []string{`{"axis": 1, "dim": "seq"}]}]}`, `{"axis": 1, "dim": "seq", "mul": 9223372036854775807, "add": 9223372036854775807, "div": 1}]}]}`}, want: "the rule"},
		{name: "anchors of another", lie: func(m *popef.Metadata) {
			m.Anchors[0].Programs, m.Anchors[4].Programs = m.Anchors[4].Programs, m.Anchors[0].Programs
		}, want: "makes"},
		{name: "streams of another", lie: func(m *popef.Metadata) {
			m.Anchors[0].Handle, m.Anchors[4].Handle = m.Anchors[4].Handle, m.Anchors[0].Handle
		}},
		{name: "sizes of another", lie: func(m *popef.Metadata) {
			for i := 4; i < 7; i++ {
				m.Anchors[i].Info, m.Anchors[i+3].Info = m.Anchors[i+3].Info, m.Anchors[i].Info
			}
		}, want: "makes"},
		{name: "one program", text: []string{`"program": 11`, `"program": 10`}, want: "two members are program 10"},
		{name: "no such program", lie: func(m *popef.Metadata) { m.ProgramFlow.Main = append(m.ProgramFlow.Main, 77) }, want: "main program 77 is no member"},
		{name: "only in the flow", text: []string{`"program": 11`, `"program": 77`}, lie: func(m *popef.Metadata) {
			m.ProgramFlow.Main[2] = 77
			for i := 7; i < 10; i++ {
				m.Anchors[i].Programs[0] = 77
			}
		}, runs: "the executable has no program 77"},
		{name: "other types", lie: func(m *popef.Metadata) { m.Anchors[4].Info.DataType = popef.S32 }, want: "differ in more than sizes"},
		{name: "control characters", text: []string{`"name": "seq"`, `"name": "\u001b[2J\u202e"`}, want: `no dimension "seq"`},
		{name: "costs", text: []string{`"cost": 8`, `"cost": 1.7e308`, `"cost": 16`, `"cost": 1.7e308`}},
		{name: "padding that is no number of its type", text: []string{`"Value": "0"`, `"Value": "1e300"`}, want: "1e300"},
		{name: "padding with NaN", text: []string{`"Value": "0"`, `"Value": "NaN"`}},
		{name: "a batch of nothing", make: func(m *golden.Model) { // without elements, and of 2^40 rows
			*m = golden.Model{Executable: golden.Executable{Name: "m"}, Replicas: 1, Main: []uint32{5, 6}}
			for i := range 2 {
				p := uint32(5 + i)
				for _, dir := range []string{"in", "out"} {
					m.Anchors = append(m.Anchors, golden.Anchor{Name: dir, Handle: fmt.Sprint(dir, p), Type: "F32", Shape: []int64{int64(1+i) << 38, 0}, Direction: dir, Programs: []uint32{p}})
				}
			}
			m.Family = `{"version": 1, "dims": [{"name": "batch", "rows": true}], "members": [{"program": 5, "sizes": [274877906944]}, {"program": 6, "sizes": [549755813888]}], "tensors": [` +
				`{"name": "in", "axes": [{"axis": 0, "dim": "batch"}]}, {"name": "out", "output": true, "axes": [{"axis": 0, "dim": "batch"}]}]}`
		}},
		{name: "counts of anything", from: "family_counts"}, // what requests say: random numbers
		{name: "counted by what is counted", from: "family_counts", text: []string{`"count": "rows"`, `"count": "y"`}, want: `counted by "y"`},
		{name: "foreign with equal sizes", make: foreign, lie: func(m *popef.Metadata) {
			for i := range m.Anchors {
				m.Anchors[i].Info = m.Anchors[i%3].Info
			}
		}},
		{name: "foreign with a program twice", make: foreign, lie: func(m *popef.Metadata) { m.ProgramFlow.Main = append(m.ProgramFlow.Main, 5, 5) }},
		{name: "foreign with many programs", make: foreign, lie: func(m *popef.Metadata) {
			for p := range uint32(1 << 16) {
				m.ProgramFlow.Main = append(m.ProgramFlow.Main, 100+p)
				m.ProgramFlow.Load = append(m.ProgramFlow.Load, 1<<20+p)
				m.Anchors[0].Programs = append(m.Anchors[0].Programs, 100+p)
			}
		}},
		{name: "foreign with streams in common", make: foreign, lie: func(m *popef.Metadata) {
			for i := range m.Anchors {
				m.Anchors[i].Handle, _, _ = strings.Cut(m.Anchors[i].Handle, "#")
			}
		}},
		{name: "foreign without programs", make: foreign, lie: func(m *popef.Metadata) {
			for i := range m.Anchors {
				m.Anchors[i].Programs = nil
			}
		}},
		{name: "foreign of other ranks", make: foreign, lie: func(m *popef.Metadata) { m.Anchors[4].Info.Shape = []int64{2, 2, 2, 3} }},
		{name: "foreign without names", make: foreign, lie: func(m *popef.Metadata) {
			for i := range m.Anchors {
				m.Anchors[i].Name = ""
			}
		}},
		{name: "foreign with a main program that loads", make: foreign, lie: func(m *popef.Metadata) {
			m.ProgramFlow.Load = append(m.ProgramFlow.Load, 5)
			m.ProgramFlow.Save = append(m.ProgramFlow.Save, 10)
		}},
	}
}

// foreign leaves out the blob, as other tools do.
func foreign(m *golden.Model) { m.Family = "" }

// lied writes a file with other metadata than those of a model, and returns its bytes.
func lied(t *testing.T, path string, lie func(*popef.Metadata)) []byte {
	m, err := popef.Load(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	exe, err := m.Executable()
	require.NoError(t, err)
	meta := m.Metadata
	lie(&meta)
	require.NoError(t, popef.WriteFile(path+".lie", func(w *popef.Writer) error {
		e, err := w.CreateExecutable(meta.Executable, false)
		require.NoError(t, err)
		_, err = e.Write(exe)
		require.NoError(t, errors.Join(err, e.Close()))
		for _, b := range m.Tensors() {
			data, err := b.Bytes()
			require.NoError(t, err)
			require.NoError(t, w.WriteTensor(b.Name, b.Info, data))
		}
		for _, b := range m.Opaques() {
			data, err := b.Bytes()
			require.NoError(t, err)
			o, err := w.CreateOpaque(b.Name, meta.Executable)
			require.NoError(t, err)
			_, err = o.Write(data)
			require.NoError(t, errors.Join(err, o.Close()))
		}
		return w.WriteMetadata(&meta)
	}))
	b, err := os.ReadFile(path + ".lie")
	require.NoError(t, err)
	return b
}

// TestHostileFamilies runs every command that reads models on files whose families are made to do harm, as
// [TestHostileCases] does. Files that claim what they do not hold are refused with the reason.
func TestHostileFamilies(t *testing.T) {
	t.Parallel() // what each process may take is its own
	exe, err := os.Executable()
	require.NoError(t, err)
	for _, c := range hostileFamilies() {
		t.Run(c.name, func(t *testing.T) {
			from := "family"
			if c.from != "" {
				from = c.from
			}
			m, err := golden.Read(filepath.Join("..", "..", "golden", "internal", from, "model.yaml"))
			require.NoError(t, err)
			for i := 0; i < len(c.text); i += 2 {
				text := strings.Replace(m.Family, c.text[i], c.text[i+1], 1)
				require.NotEqual(t, m.Family, text, c.text[i])
				m.Family = text
			}
			if c.make != nil {
				c.make(m)
			}
			dir := t.TempDir()
			m.File = "hostile.popef"
			paths, err := m.Write(dir)
			require.NoError(t, err)
			b, err := os.ReadFile(paths[0])
			require.NoError(t, err)
			if c.lie != nil {
				b = lied(t, paths[0], c.lie)
			}
			runs := hostileRuns(t, exe, dir, hostileCommands(t, dir, m.File, b))
			said := ""
			for _, r := range runs {
				said += fmt.Sprintf("%d %s: %s\n", r.Exit, strings.Join(r.Args[:2], " "), r.Said[:min(len(r.Said), 1000)])
				if c.want != "" && r.Args[0] == "generate" {
					require.Equal(t, exitTrouble, r.Exit, said)
				}
			}
			require.Contains(t, said, c.want)
			if c.runs != "" { // also those that would run another member, and nothing is stored of it
				for _, r := range runs {
					if slices.Contains([]string{"run", "golden", "bench"}, r.Args[0]) && r.Args[1] != "verify" && !slices.Contains(r.Args, "--profile") {
						require.Contains(t, r.Said, c.runs, "%v", r.Args)
						require.Equal(t, exitTrouble, r.Exit, "%v", r.Args)
					}
				}
				require.NoDirExists(t, filepath.Join(dir, "recorded"))
			}
		})
	}
}
