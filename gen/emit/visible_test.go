package emit

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef"
)

func TestVisible(t *testing.T) {
	for _, c := range []struct{ name, in, want, err string }{
		{"nothing hidden", "package p // größe\n", "package p // größe\n", ""},
		{"comment", "package p // a\u202eb\u2066\n", "package p // a\\u202eb\\u2066\n", ""},
		{"block comment", "package p\n/* a\u200b\n */\n", "package p\n/* a\\u200b\n */\n", ""},
		{"string", "package p\nconst s = \"a\u202e\\n\U000e0041\"\n", "package p\nconst s = \"a\\u202e\\n\\U000e0041\"\n", ""},
		{"raw string", "package p\nconst s = `a\u202e`\n", "", "invisible characters in STRING"},
		{"name", "package p\nvar a\u3164 int\n", "", "invisible characters in IDENT"},
		{"between tokens", "package p\nvar a \u202eint\n", "", "invisible characters"},
		{"carriage return", "package p // a\u202e\rb\n", "", "carriage returns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := visible([]byte(c.in))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}

// TestNothingHiddenInSource generates packages of models with any names. The
// source shows all that it has, and its strings are the names.
func TestNothingHiddenInSource(t *testing.T) {
	info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{4}}
	path := filepath.Join(t.TempDir(), "m.popef")
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\u202e", "\u2066", "\u3164", "\ufe0f", "\U000e0041", "\u200b", "\u00ad", "\x1b", "\r", "\n", "*/", "\"", "`", "\xff", "\ufeff"}))
		name := func(what string) string {
			return strings.Join(rapid.SliceOfN(piece, 1, 4).Draw(t, what), "") + what
		}
		x, y, hx := name("x"), name("y"), name("hx")
		md := &popef.Metadata{
			ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IsInference: true, Executable: "e", DeviceIterations: 1,
			ProgramFlow: popef.ProgramFlow{Main: []uint32{5}},
			Anchors: []popef.Anchor{
				{Name: x, Handle: hx, Programs: []uint32{5}, Info: info, Type: popef.Input},
				{Name: x, Handle: "another", Programs: []uint32{5}, Info: info, Type: popef.Input}, // so that handles are needed
				{Name: y, Handle: "hy", Programs: []uint32{5}, Info: info, Type: popef.Output},
			},
		}
		require.NoError(t, popef.WriteFile(path, func(w *popef.Writer) error {
			if err := w.WriteMetadata(md); err != nil {
				return err
			}
			e, err := w.CreateExecutable("e", false)
			if err != nil {
				return err
			}
			return e.Close()
		}))
		m, err := popef.Load(path)
		require.NoError(t, err)
		defer m.Close()
		p, err := plan.Build(m, plan.Options{ModelBase: "m.popef", Tests: true}, Declared())
		require.NoError(t, err)
		files, err := Emit(p)
		require.NoError(t, err)
		found := map[string]bool{}
		for _, f := range files {
			require.False(t, strings.ContainsFunc(string(f.Data), printable.Hidden), "%s has hidden characters:\n%q", f.Name, f.Data)
			if !strings.HasSuffix(f.Name, ".go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), f.Name, f.Data, 0)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					s, err := strconv.Unquote(lit.Value)
					require.NoError(t, err)
					found[s] = true
				}
				return true
			})
		}
		require.True(t, found[x], "no string is %q:\n%s", x, files[0].Data)
		require.True(t, found[y] && found[hx])
	})
}
