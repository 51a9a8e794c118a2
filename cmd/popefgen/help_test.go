package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
)

// everyCommand calls do with every command, and the words that lead to it.
func everyCommand(do func(words []string, c *cli.Context, command *cli.Command)) {
	app := newApp(nil, &bytes.Buffer{}, &bytes.Buffer{})
	var walk func(words []string, commands []*cli.Command)
	walk = func(words []string, commands []*cli.Command) {
		for _, c := range commands {
			if c.Name == "help" { // the library adds it to commands that ran
				continue
			}
			w := append(slices.Clone(words), c.Name)
			do(w, cli.NewContext(app, nil, nil), c)
			walk(w, c.Subcommands)
		}
	}
	walk(nil, app.Commands)
}

// TestHelp reads the help of every command as its users do.
func TestHelp(t *testing.T) {
	commands := 0
	everyCommand(func(words []string, _ *cli.Context, c *cli.Command) {
		commands++
		name := strings.Join(words, " ")
		var out, errOut bytes.Buffer
		require.Zero(t, Run(t.Context(), append(slices.Clone(words), "--help"), nil, &out, &errOut), name)
		text := out.String()
		require.Empty(t, errOut.String(), name)
		require.NotContains(t, text, "`", name)
		require.Regexp(t, `USAGE:\n   popefgen `+name+`\b`, text)
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, strings.Count(line, "(default"), 1, "%s: %s", name, line)
			for _, nothing := range []string{`(default: 0)`, "(default: 0s)", "(default: false)", `(default: "`} {
				if !strings.Contains(line, "--batch-dim N ") || name != "bench" { // where 0 is one of several
					require.NotContains(t, line, nothing, "%s: %s", name, line)
				}
			}
		}
		known := map[string]bool{"--help": true}
		for _, f := range c.Flags {
			value, usage := placeholder(f.(cli.DocGenerationFlag).GetUsage())
			for _, n := range f.Names() {
				known[strings.Repeat("-", min(len(n), 2))+n] = true
			}
			if hidden(f) {
				continue
			}
			require.NotEmpty(t, usage, "%s --%s", name, f.Names()[0])
			require.True(t, !takesValue(f) || value != "VALUE", "%s --%s: want what its value is called in back quotes", name, f.Names()[0])
			require.Contains(t, text, "--"+f.Names()[0], name)
		}
		// Examples and usages have no flag that there is not.
		usage, _, _ := strings.Cut(text, "OPTIONS:")
		for _, line := range regexp.MustCompile(`popefgen `+name+`( .*)`).FindAllStringSubmatch(usage, -1) {
			for _, word := range regexp.MustCompile(`(?:^|[ \[])(--?[a-z][a-z-]*)`).FindAllStringSubmatch(line[1], -1) {
				if len(c.Subcommands) == 0 {
					require.True(t, known[word[1]], "%s: %s", name, line[0])
				}
			}
		}
	})
	require.Greater(t, commands, 13)
}

// TestSuggestions mistypes flags and commands.
func TestSuggestions(t *testing.T) {
	for line, want := range map[string]string{
		"inspect --jsn":                      `there is no flag --jsn; did you mean "--json"?; popefgen inspect --help lists the flags`,
		"golden verify --updat a b":          `there is no flag --updat; did you mean "--update"?; popefgen golden verify --help lists the flags`,
		"compile --completely-different m":   `there is no flag --completely-different; popefgen compile --help lists the flags`,
		"--verison":                          `there is no flag --verison; did you mean "--version"?; popefgen --help lists the flags`,
		"bench m.popef --frist-answer":       `there is no flag --frist-answer; popefgen bench`, // that one is hidden
		"run m --threads many":               `--threads many: want a whole number; popefgen run --help lists the flags`,
		"run m --random -1":                  `--random -1: want a whole number, 0 or more; `,
		"bench m --duration soon":            `--duration soon: want a time such as 500ms, 2s or 1m; `,
		"verify d --rtol small":              `--rtol small: want a number; `,
		"generate -m m --tests=perhaps":      `--tests perhaps: want true or false; `,
		"compile m --dim":                    `--dim: the value is missing: want --dim NAME=SIZE; `,
		"genrate":                            `there is no command "genrate"; did you mean "generate"? (popefgen --help lists them)`,
		"golden recrod m.popef":              `golden: there is no command "golden recrod"; did you mean "record"? (popefgen golden --help lists them)`,
		"golden something-else-altogether m": `golden: there is no command "golden something-else-altogether"; there are "import", "record", `,
	} {
		var out, errOut bytes.Buffer
		require.Equal(t, exitTrouble, Run(t.Context(), strings.Fields(line), nil, &out, &errOut), line)
		require.Contains(t, errOut.String(), "popefgen: "+want, line)
		require.Empty(t, out.String())
	}
}

// TestVersion wants --version and version to be the same.
func TestVersion(t *testing.T) {
	var command, flag, short bytes.Buffer
	require.Zero(t, Run(t.Context(), []string{"version"}, nil, &command, &command))
	require.Zero(t, Run(t.Context(), []string{"--version"}, nil, &flag, &flag))
	require.Zero(t, Run(t.Context(), []string{"-v"}, nil, &short, &short))
	require.Contains(t, command.String(), "popefgen ")
	require.Equal(t, command.String(), flag.String())
	require.Equal(t, command.String(), short.String())
}

// TestCandidates completes words.
func TestCandidates(t *testing.T) {
	app := newApp(nil, &bytes.Buffer{}, &bytes.Buffer{})
	for _, c := range []struct {
		words []string
		want  string // words that there are, with spaces
	}{
		{[]string{"ge"}, "generate"},
		{[]string{"go"}, "golden"},
		{[]string{"golden", "v"}, "verify"},
		{[]string{"golden", ""}, "import record verify"},
		{[]string{"golden", "verify", ""}, ""},
		{[]string{"golden", "verify", "m.popef", "--up"}, "--update"},
		{[]string{"compile", "--ba"}, "--batch --batch-statistics"},
		{[]string{"compile", "m.onnx", "--batch", "1", "--ba"}, "--batch-statistics"},
		{[]string{"compile", "m.onnx", "--batch=1", "--ba"}, "--batch-statistics"},
		{[]string{"compile", "--dim", "a=1", "--di"}, "--dim"},
		{[]string{"compile", "--batch", ""}, ""},
		{[]string{"compile", "model"}, ""},
		{[]string{"bench", "--first"}, ""},
		{[]string{"run", "--", "--in"}, ""},
		{[]string{"--ver"}, "--version"},
		{[]string{"completion", ""}, "bash fish zsh"},
		{[]string{"version", "--"}, "--help"},
	} {
		var got []string
		for _, x := range candidates(app, c.words) {
			got = append(got, x.word)
		}
		require.Equal(t, c.want, strings.Join(got, " "), "%q", c.words)
	}
	all := candidates(app, nil)
	require.Len(t, all, len(app.Commands))
	for _, x := range all {
		require.NotEmpty(t, x.meaning, x.word)
	}
}
