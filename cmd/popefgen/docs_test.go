package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/tensorfile"
)

// codeInDocs is code in Markdown: a block, or a span.
var codeInDocs = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```|`([^`]+)`")

// TestDocsFlags looks up every command line of popefgen in the documents: the
// command, and its flags.
func TestDocsFlags(t *testing.T) {
	docs, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	require.NoError(t, err)
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		docs = append(docs, filepath.Join("..", "..", name))
	}
	app := newApp(nil, &bytes.Buffer{}, &bytes.Buffer{})
	lines := 0
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, m := range codeInDocs.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(m[1] + m[2]) {
				_, rest, ok := strings.Cut(" "+line, " popefgen ")
				if !ok {
					continue
				}
				words := strings.Fields(regexp.MustCompile(`[|;#>)].*|\s2>.*`).ReplaceAllString(rest, ""))
				if len(words) == 0 {
					continue
				}
				command := app.Command(words[0])
				if command == nil {
					continue // prose, or the name of a type
				}
				flags := slices.Clone(command.Flags)
				if len(words) > 1 {
					for _, sub := range subcommands(command) {
						if sub.HasName(words[1]) {
							flags = sub.Flags
						}
					}
				}
				lines++
				for _, w := range words {
					w, _, _ = strings.Cut(strings.Trim(w, "[],…."), "=")
					if !strings.HasPrefix(w, "-") || w == "-" || w == "--" {
						continue
					}
					known := slices.ContainsFunc(withHelp(flags), func(f cli.Flag) bool { return slices.Contains(f.Names(), strings.TrimLeft(w, "-")) })
					require.True(t, known, "%s: %s: there is no flag %s", filepath.Base(doc), strings.TrimSpace(line), w)
				}
			}
		}
	}
	require.Greater(t, lines, 60)
}

// TestHintsWork compiles every public model as a newcomer does: with nothing
// but its name, and then with what the error says, filled in.
func TestHintsWork(t *testing.T) {
	hinted := 0
	for _, c := range publicCases(t) {
		model := filepath.Join(c.Dir, "model.onnx")
		m, err := onnx.ReadFile(model)
		require.NoError(t, err)
		set, err := tensorfile.OpenDataSet(c.Sets[0])
		require.NoError(t, err)
		sizes := map[string]int64{} // of what has a name
		for _, s := range set.Stored {
			i := slices.IndexFunc(m.Graph.Inputs, func(v onnx.ValueInfo) bool { return v.Name == s.Name })
			if i < 0 || s.Role != tensorfile.InputRole {
				continue
			}
			tensor, err := set.Tensor(s)
			require.NoError(t, err)
			for axis, n := range tensor.Dims {
				sizes[s.Name+"["+strconv.Itoa(axis)+"]"] = n
				if m.Graph.Inputs[i].HasShape && m.Graph.Inputs[i].Dims[axis].Symbol != "" {
					sizes[m.Graph.Inputs[i].Dims[axis].Symbol] = n
				}
			}
		}
		require.NoError(t, set.Close())

		to := filepath.Join(t.TempDir(), "m.popef")
		compile := func(more ...string) (int, string) {
			var out, errOut bytes.Buffer
			code := Run(t.Context(), append([]string{"compile", model, "-o", to}, more...), nil, &out, &errOut)
			return code, errOut.String()
		}
		code, said := compile()
		if code != exitOK {
			require.Contains(t, said, "hint: give each a size:", model)
			var flags []string
			for _, word := range regexp.MustCompile(`--dim ('[^']*'|\S+)=SIZE'?`).FindAllStringSubmatch(said, -1) {
				name := strings.Trim(word[1], "'")
				require.Contains(t, sizes, name, said)
				flags = append(flags, "--dim", name+"="+strconv.FormatInt(sizes[name], 10))
			}
			code, said = compile(flags...)
			hinted++
		}
		require.Equal(t, exitOK, code, "%s: %s", model, said)
	}
	require.Greater(t, hinted, 8)
}
