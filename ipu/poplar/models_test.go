//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	cases "github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/poplar"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
)

// projectModels returns the files of every model of the golden cases and the examples that computes, by name.
func projectModels(t *testing.T) map[string][]string {
	all := map[string][]string{}
	descriptions, err := filepath.Glob("../../golden/internal/*/model.yaml")
	require.NoError(t, err)
	for _, file := range descriptions {
		m, err := cases.Read(file)
		require.NoError(t, err)
		if m.Executable.Compute == nil {
			continue // its executable is a header
		}
		files, err := m.Write(t.TempDir())
		require.NoError(t, err)
		all["golden/"+filepath.Base(filepath.Dir(file))] = files
	}
	require.NoError(t, filepath.WalkDir("../../generated_examples", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".popef" {
			all[strings.TrimPrefix(filepath.ToSlash(path), "../../")] = []string{path}
		}
		return err
	}))
	require.GreaterOrEqual(t, len(all), 40)
	return all
}

// TestModelsAnswerAsOnCPU runs every model of the golden cases and the examples, the fake doing all that a device may: the answers
// are those of the cpu back end to the bit.
func TestModelsAnswerAsOnCPU(t *testing.T) {
	t.Setenv("FAKE_POPLAR_NASTY", "poison,refuse,extra,delay,discard,silent,forget,seed=3")
	for name, files := range projectModels(t) {
		t.Run(name, func(t *testing.T) {
			m, err := popef.Load(files...)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, m.Close()) })
			var both [2][]map[string][]byte
			for i, on := range []string{cpu.Name, poplar.Name} {
				d := openModel(t, m, rt.WithBackend(on))
				for seed := range uint64(3) {
					both[i] = append(both[i], d.run(t, seed))
				}
				require.NoError(t, d.Close())
			}
			require.Equal(t, both[0], both[1])
		})
	}
}

// TestElsewhere reads the tests of golden and example packages that make poplar leaves out on the fake: each is there, and has a reason.
func TestElsewhere(t *testing.T) {
	list, err := os.ReadFile("testdata/elsewhere.txt")
	require.NoError(t, err)
	var there []byte
	for _, dir := range []string{"../../golden", "../../generated_examples"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			there = append(there, source...)
			return err
		}))
	}
	for line := range strings.Lines(string(list)) {
		test, reason, _ := strings.Cut(strings.TrimSpace(line), "\t")
		require.Contains(t, string(there), "\nfunc "+test+"(t ", "no package contains it")
		require.NotEmpty(t, reason, test)
	}
}

// modelFile writes a model of the fake with a main program, into a folder that POPLAR_MODEL_DIR names if it does.
func modelFile(t *testing.T, name, main string) string {
	dir := os.Getenv("POPLAR_MODEL_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, modelBytes(t, main), 0o666))
	return path
}

// parts runs parts of TestModel, each in a process, all if none is named, and returns what became of each: "fits", "not tried" or "DIFFERS".
func parts(t *testing.T, model, fault string, names ...string) map[string]string {
	results := map[string]string{}
	for _, p := range modelParts {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		c := exec.Command(os.Args[0], "-test.v", "-test.timeout", "2m", "-test.run", fmt.Sprintf("^TestModel$/^%s$", strings.ReplaceAll(p.name, " ", "_")))
		c.Env = append(os.Environ(), modelVariable+"="+model, "FAKE_POPLAR_FAULT="+fault)
		out, err := c.CombinedOutput()
		t.Logf("%s: %s\n%s", model, p.name, out)
		switch {
		case err != nil:
			results[p.name] = "DIFFERS"
		case strings.Contains(string(out), "--- SKIP: TestModel/"):
			results[p.name] = "not tried"
		case strings.Contains(string(out), "--- PASS: TestModel/"):
			results[p.name] = "fits"
		}
	}
	return results
}

// TestModelOnFake tries what an owner of IPUs tries (TestModel) with a model of the fake, and one that popefgen compile made, whose
// executable has no package hash.
func TestModelOnFake(t *testing.T) {
	for model, hash := range map[string]string{modelFile(t, "adder.popef", adding3): "fits", "../../generated_examples/digits/classifier/digits.popef": "not tried"} {
		want := map[string]string{}
		for _, p := range modelParts {
			want[p.name] = "fits"
		}
		want["another package hash"] = hash
		require.Equal(t, want, parts(t, model, ""))
	}
}

// TestModelDiffers has models and devices that are not as they should be: the part that is about it differs.
func TestModelDiffers(t *testing.T) {
	kept := strings.ReplaceAll(adding3, "add a,w y", "add a,y y")
	for _, c := range []struct{ part, main, fault string }{
		{"same answers twice", kept, ""},
		{"same answers after loading again", adding3, "load@2=application"},
		{"same answers through callbacks", adding3, "run:1@2=unknown"},
		{"latency", adding3, "run:1@9=application"},
		{"closing while it runs", adding3, "attach@2=runtime"},
		{"a device that is taken", adding3, "detach@1=runtime"},
		{"another package hash", adding3, "deserialize@1=std"},
		{"an option that nobody knows", adding3, "engine@1=runtime"},
	} {
		name := "adder.popef"
		if c.main == kept {
			name = "other.popef" // make poplar has the report of it
		}
		require.Equal(t, map[string]string{c.part: "DIFFERS"}, parts(t, modelFile(t, name, c.main), c.fault, c.part))
	}
}
