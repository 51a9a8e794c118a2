package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/popefgen/popefgen/popef"
)

// publicModels returns the folder of the public models, or skips the test.
func publicModels(t *testing.T) string {
	t.Helper()
	data := os.Getenv("POPEFGEN_TESTDATA")
	if data == "" {
		data = filepath.Join("..", "..", "..", "shared")
	}
	dir := filepath.Join(data, "models")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no public models in %s (set POPEFGEN_TESTDATA)", dir)
	}
	return dir
}

// publicCases returns the public models with their data sets, or skips the test.
func publicCases(t *testing.T) []verify.Case {
	t.Helper()
	dir := publicModels(t)
	cases, err := verify.Find([]string{dir}, true)
	require.NoError(t, err)
	return cases
}

// TestGoldenImportPublic imports every data set of the public models, which ONNX
// Runtime computed: the goldens hold its numbers, bit by bit, and the models are
// within the tolerance that is recorded.
func TestGoldenImportPublic(t *testing.T) {
	if testing.Short() {
		t.Skip("runs every public model on every data set")
	}
	for _, c := range publicCases(t) {
		model := filepath.Base(c.Dir)
		tol := publicTolerance(model)
		spec := fmt.Sprintf("rel:%g,abs:%g", tol.Rel, tol.Abs)
		if tol.Rel == 0 {
			spec = fmt.Sprintf("abs:%g", tol.Abs)
		}
		for i, set := range c.Sets {
			t.Run(fmt.Sprintf("%s/%d", model, i), func(t *testing.T) {
				dir := t.TempDir()
				var out, errOut bytes.Buffer
				args := []string{"golden", "import", filepath.Join(c.Dir, "model.onnx"), set, "-o", dir, "--tolerance", spec}
				require.Zero(t, Run(t.Context(), args, nil, &out, &errOut), "%s%s", &out, &errOut)
				require.Contains(t, out.String(), "ok ")
				d, err := tensorfile.OpenDataSet(set)
				require.NoError(t, err)
				defer d.Close()
				a, err := npy.OpenArchive(filepath.Join(dir, filepath.Base(set)+".npz"))
				require.NoError(t, err)
				defer a.Close()
				same := 0
				for _, s := range d.Stored {
					want, err := d.Tensor(s)
					require.NoError(t, err)
					role := map[tensorfile.Role]string{tensorfile.InputRole: "input/", tensorfile.OutputRole: "output/"}[s.Role]
					entry := role + npy.FileName(s.Name, "")
					if s.Role == tensorfile.InputRole && !strings.Contains(strings.Join(a.Names(), "\n")+"\n", entry+"\n") {
						require.Contains(t, errOut.String(), fmt.Sprintf("input %q decides a shape", s.Name))
						continue
					}
					got, err := a.Array(entry, 1<<30)
					require.NoError(t, err)
					require.True(t, slices.Equal(want.Dims, got.Shape), s.Name)
					require.True(t, bytes.Equal(want.Data, got.Data), s.Name)
					same++
				}
				require.GreaterOrEqual(t, same, 2)
			})
		}
	}
}

// TestGoldenImportPackage imports goldens into a generated package, whose
// TestGolden then compares with them.
func TestGoldenImportPackage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a generated package")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	module := scratchModule(t, root, "example.com/digits")
	t.Chdir(module)
	popefgen := func(code int, args ...string) string {
		t.Helper()
		var out, errOut bytes.Buffer
		require.Equal(t, code, Run(t.Context(), args, nil, &out, &errOut), "%s%s", &out, &errOut)
		return out.String() + errOut.String()
	}
	digits := filepath.Join(root, "generated_examples", "digits", "digits.onnx")
	popefgen(0, "generate", "-m", digits, "-o", "digits", "--batch", "1", "--embed")
	popefgen(0, "golden", "record", digits, "--batch", "1", "-o", "recorded", "--random", "5", "--name", "five")
	require.NoError(t, writeDataSet("five", "recorded/five.npz", "", false))
	popefgen(0, "golden", "import", "digits/digits.popef", "five", "-o", "digits/testdata/golden")
	test := func() (string, error) {
		c := exec.Command("go", "test", "-mod=mod", "./digits", "-run", "TestGolden", "-count=1", "-v")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := test()
	require.NoError(t, err, out)
	require.Contains(t, out, "--- PASS: TestGolden")
	require.Contains(t, out, "probabilities  F32 [1 10], 1 cases: equal")

	// Other numbers are other numbers.
	require.NoError(t, writeDataSet("six", "recorded/five.npz", "", true))
	require.Contains(t, popefgen(1, "golden", "import", "digits/digits.popef", "six", "-o", "digits/testdata/golden"), "the cases are stored; ")
	out, err = test()
	require.Error(t, err, out)
	require.Contains(t, out, "--- FAIL: TestGolden")
}

// scratchModule returns the folder of a new module that has this one, as it is
// here, as a dependency.
func scratchModule(t *testing.T, root, name string) string {
	t.Helper()
	dir := t.TempDir()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	mod = regexp.MustCompile(`(?s)\ntool \(.*?\n\)\n`).ReplaceAll(mod, nil)
	mod = bytes.Replace(mod, []byte("module github.com/popefgen/popefgen\n"), []byte("module "+name+"\n"), 1)
	mod = fmt.Appendf(mod, "\nrequire github.com/popefgen/popefgen v0.0.0\n\nreplace github.com/popefgen/popefgen => %s\n", root)
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o666))
	return dir
}

// dataSet DIR CASE.npz [NAMES] writes a case of goldens as the files of
// a data set of ONNX's tests; NAMES is what the tensors are called in place of
// their names, with commas: "-" is no name.
func dataSet(ts *testscript.TestScript, _ bool, args []string) {
	names := ""
	if len(args) > 2 {
		names = args[2]
	}
	ts.Check(writeDataSet(ts.MkAbs(args[0]), ts.MkAbs(args[1]), names, false))
}

// order is that of diabetes.onnx.
var order = []string{"age", "sex", "measurements", "progression"}

// writeDataSet is [dataSet]; if wrong, the first element of each output is another.
func writeDataSet(dir, golden, names string, wrong bool) error {
	d, err := tensorfile.OpenDataSet(golden)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	// In the order of the model, which is not that of the case.
	slices.SortFunc(d.Stored, func(a, b tensorfile.Stored) int { return slices.Index(order, a.Name) - slices.Index(order, b.Name) })
	number := map[tensorfile.Role]int{}
	for i, s := range d.Stored {
		tensor, err := d.Tensor(s)
		if err != nil {
			return err
		}
		role := map[tensorfile.Role]string{tensorfile.InputRole: "input", tensorfile.OutputRole: "output"}[s.Role]
		name := s.Name
		if names != "" {
			name = strings.Split(names, ",")[i]
		}
		if s.Role == tensorfile.OutputRole && wrong {
			tensor.Data = bytes.Clone(tensor.Data)
			tensor.Data[3] ^= 0x40 // of a float32, a large step
		}
		file := filepath.Join(dir, fmt.Sprintf("%s_%d.pb", role, number[s.Role]))
		if err := os.WriteFile(file, protoOf(name, tensor), 0o666); err != nil {
			return err
		}
		number[s.Role]++
	}
	return nil
}

// protoOf encodes a TensorProto.
func protoOf(name string, t *onnx.Tensor) []byte {
	var b []byte
	for _, d := range t.Dims {
		b = protowire.AppendVarint(append(b, 0x08), uint64(d))
	}
	b = protowire.AppendVarint(append(b, 0x10), uint64(t.Elem))
	if name != "-" {
		b = protowire.AppendString(append(b, 0x42), name)
	}
	return protowire.AppendBytes(append(b, 0x4a), t.Data)
}

// npzOf TO CASE.npz NAME=ENTRY… writes arrays of a case of goldens under other
// names, as numpy.savez does.
func npzOf(ts *testscript.TestScript, _ bool, args []string) {
	d, err := tensorfile.OpenDataSet(ts.MkAbs(args[1]))
	ts.Check(err)
	defer d.Close()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, rename := range args[2:] {
		name, entry, _ := strings.Cut(rename, "=")
		for _, s := range d.Stored {
			if !strings.HasSuffix(s.Where, ": "+entry) {
				continue
			}
			tensor, err := d.Tensor(s)
			ts.Check(err)
			dt, _ := export.DataType(tensor.Elem.DType())
			f, err := z.Create(name + ".npy")
			ts.Check(err)
			ts.Check(npy.Write(f, popef.TensorInfo{DataType: dt, Shape: tensor.Dims}, tensor.Data))
		}
	}
	ts.Check(z.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o666))
}

// TestGoldenImportOfSizes refuses models of which the outputs have no one size, with what to do instead.
func TestGoldenImportOfSizes(t *testing.T) {
	dir := t.TempDir()
	counted, several := filepath.Join(dir, "counted.popef"), filepath.Join(dir, "several.popef")
	call := func(args ...string) (int, string) {
		var out, errOut bytes.Buffer
		return Run(t.Context(), args, nil, &out, &errOut), errOut.String()
	}
	code, said := call("compile", filepath.Join("testdata", "mistakes", "nonzero.onnx"), "-o", counted, "--quiet")
	require.Equal(t, exitOK, code, said)
	numbers := filepath.Join("..", "..", "generated_examples", "numbers", "numbers.onnx")
	code, said = call("compile", numbers, "-o", several, "--batch", "1,2", "--dim", "width=28", "--quiet")
	require.Equal(t, exitOK, code, said)
	set := filepath.Join(dir, "test_data_set_0")
	require.NoError(t, os.Mkdir(set, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(set, "input_0.pb"), proto{}.number(1, 1).number(2, 1).message(9, make([]byte, 4)), 0o666))
	for path, want := range map[string]string{
		counted: `data decides how much there is of output "y", and stored outputs are of one size: popefgen verify --open`,
		several: "the model has several sizes, and data sets are imported for one: compile it for the size of the data",
	} {
		code, said := call("golden", "import", path, set, "-o", filepath.Join(dir, "golden"))
		require.Equal(t, exitTrouble, code, said)
		require.Contains(t, said, want)
		require.NoDirExists(t, filepath.Join(dir, "golden"))
		code, said = call("bench", path, "--duration", "1ms", "--clients", "2")
		require.Equal(t, exitTrouble, code, said)
		require.Contains(t, said, map[string]string{counted: "data decides sizes of the model's outputs", several: "the model has several sizes"}[path])
	}
}
