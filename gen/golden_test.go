package gen_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/popef"
)

var update = flag.Bool("update", false, "rewrite the golden files, if what is to be written compiles, vets and passes its tests")

// goldenDir holds the cases.
const goldenDir = "../golden/internal"

// goldenCase is one directory of the golden cases.
type goldenCase struct {
	name  string
	model *popef.Model
	files []string // of the model
	runs  bool     // its executable is portable
	opts  gen.Options
	want  string // directory of the expected files
	fails string // file of the expected error
}

// cases reads every golden case; the models' files live as long as the test.
func cases(t *testing.T) []goldenCase {
	t.Helper()
	files, err := filepath.Glob(goldenDir + "/*/model.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 10, "golden cases")
	var out []goldenCase
	for _, file := range files {
		dir := filepath.Dir(file)
		description, err := golden.Read(file)
		require.NoError(t, err)
		paths, err := description.Write(t.TempDir())
		require.NoError(t, err, dir)
		m, err := popef.Load(paths...)
		require.NoError(t, err, dir)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		out = append(out, goldenCase{
			name: filepath.Base(dir), model: m, files: paths, runs: description.Executable.Compute != nil, opts: arguments(t, dir, description.File),
			want: filepath.Join(dir, "want"), fails: filepath.Join(dir, "stderr.txt"),
		})
	}
	return out
}

// arguments reads the options of a case, which are flags like the command's.
func arguments(t *testing.T, dir, file string) gen.Options {
	t.Helper()
	opts := gen.Options{ModelBase: file, Tests: true, Renames: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(dir, "args"))
	if errors.Is(err, fs.ErrNotExist) {
		return opts
	}
	require.NoError(t, err)
	flags := flag.NewFlagSet("args", flag.ContinueOnError)
	flags.StringVar(&opts.Package, "p", "", "")
	flags.IntVar(&opts.QueueDepth, "queue", 0, "")
	flags.BoolVar(&opts.Tests, "tests", true, "")
	flags.BoolVar(&opts.NoQueues, "no-queues", false, "")
	flags.BoolVar(&opts.Serve, "serve", false, "")
	flags.BoolFunc("embed", "", func(string) error { opts.Embed = file; return nil })
	flags.Func("batch-dim", "", func(s string) error {
		dim, err := strconv.Atoi(s)
		opts.BatchDim = &dim
		return err
	})
	pair := func(name string, add func(from, to string)) {
		flags.Func(name, "", func(s string) error {
			from, to, _ := strings.Cut(s, "=")
			add(from, to)
			return nil
		})
	}
	pack := &gen.PackOptions{Fill: map[string]string{}, Unpack: map[string]string{}}
	flags.Func("pack", "", func(s string) error {
		opts.Pack, pack.Inputs = pack, strings.Split(s, ",")
		return nil
	})
	flags.IntVar(&pack.Axis, "pack-axis", 1, "")
	flags.StringVar(&pack.Mask, "pack-mask", "", "")
	pair("pack-fill", func(what, input string) { pack.Fill[what] = input })
	pair("unpack", func(out, input string) { pack.Unpack[out] = input })
	pair("state-fill", func(what, input string) {
		if opts.StateFill == nil {
			opts.StateFill = map[string]string{}
		}
		opts.StateFill[what] = input
	})
	pair("state", func(out, in string) { opts.State = append(opts.State, gen.StatePair{Out: out, In: in}) })
	flags.Func("rename", "", func(s string) error {
		anchor, name, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("rename %q: want anchor=Name", s)
		}
		opts.Renames[anchor] = name
		return nil
	})
	require.NoError(t, flags.Parse(strings.Fields(string(text))), dir)
	require.Empty(t, flags.Args(), dir)
	return opts
}

// generate returns everything that the generator writes for a case.
func generate(t *testing.T, c goldenCase) ([]gen.File, error) {
	t.Helper()
	p, err := gen.Build(c.model, c.opts)
	if err != nil {
		return nil, err
	}
	files, err := gen.Emit(p)
	require.NoError(t, err)
	if p.Embed != "" {
		f, err := gen.ModelCopy(p, c.model)
		require.NoError(t, err)
		files = append(files, f)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	require.Equal(t, p.Files, names)
	return files, nil
}

// TestGolden compares what the generator writes with the golden cases, to the
// byte. With -update it rewrites them, after it made sure that all of it
// compiles, vets and passes its own tests.
func TestGolden(t *testing.T) {
	all := cases(t)
	written := map[string][]gen.File{}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			files, err := generate(t, c)
			if err != nil {
				require.ErrorIs(t, err, gen.ErrBuild)
				text := err.Error() + "\n"
				if *update {
					require.NoError(t, os.WriteFile(c.fails, []byte(text), 0o644))
					return
				}
				want, readErr := os.ReadFile(c.fails)
				require.NoError(t, readErr, "got the error: %v", err)
				require.Empty(t, cmp.Diff(string(want), text))
				return
			}
			require.NoFileExists(t, c.fails, "the case was to fail")
			written[c.want] = files
			if *update {
				return
			}
			compareDir(t, c.want, files)
		})
	}
	if !*update || t.Failed() {
		return
	}
	root := moduleFolder(t, "update-")
	for dir, files := range written {
		_, err := gen.Write(filepath.Join(root, filepath.Base(filepath.Dir(dir))), files)
		require.NoError(t, err)
	}
	packages := "./" + root + "/..."
	command(t, all, "vet", packages)
	command(t, all, "tool", "staticcheck", packages)
	command(t, all, "test", packages)
	for dir, files := range written {
		_, err := gen.Write(dir, files)
		require.NoError(t, err)
	}
}

// moduleFolder returns a folder of this module, so that packages in it import what they import in a user's, in which no ./...
// looks: tools that list the module meanwhile would see it come and go. It is removed when the test ends.
func moduleFolder(t *testing.T, prefix string) string {
	require.NoError(t, os.MkdirAll("testdata", 0o777))
	root, err := os.MkdirTemp("testdata", prefix)
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	return root
}

// TestGoldenRuns runs the tests that were generated with the golden packages,
// with their models at hand. go test ./golden/... runs those of packages that
// embed their models. make lint vets the packages like all others.
func TestGoldenRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles every golden package")
	}
	all := cases(t)
	test := []string{"test", "-vet=off"}
	for _, c := range all {
		if _, err := os.Stat(c.fails); c.runs && c.opts.Embed == "" && err != nil { // what is refused writes nothing
			test = append(test, filepath.ToSlash(c.want))
		}
	}
	require.Greater(t, len(test), 2, "cases with a portable executable")
	command(t, all, test...)
}

// command runs the go command with the cases' models where generated tests
// look for them.
func command(t *testing.T, all []goldenCase, args ...string) {
	t.Helper()
	models := t.TempDir()
	for _, c := range all {
		if _, err := gen.Build(c.model, c.opts); err != nil {
			continue
		}
		for _, path := range c.files {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(models, filepath.Base(path)), data, 0o644))
		}
	}
	c := exec.Command("go", args...)
	c.Env = append(os.Environ(), "POPEFGEN_MODEL_DIR="+models)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "go %s:\n%s", strings.Join(args, " "), out)
}

// compareDir compares all files of dir with files.
func compareDir(t *testing.T, dir string, files []gen.File) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var have, want []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	for _, f := range files {
		want = append(want, f.Name)
	}
	require.ElementsMatch(t, want, have)
	diff, err := gen.Check(dir, files)
	require.NoError(t, err)
	require.Empty(t, diff)
}
