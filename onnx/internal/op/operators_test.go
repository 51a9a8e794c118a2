package op_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/internal/op"
)

var update = flag.Bool("update", false, "rewrite docs/operators.md and, where the public tests are at hand, their counts")

const (
	operatorsDoc = "../../../docs/operators.md"
	countsFile   = "../../testdata/public_tests.tsv"
	failingFile  = "../../testdata/not_passing.tsv"
)

var publicSets = []string{"onnx-node-tests", "onnx-node-tests-older", "onnx-model-tests"}

// publicCount is what the public tests say about one operator.
type publicCount struct {
	tests [3]int // in publicSets
}

// allTests counts all tests of the sets.
const allTests = "all"

// TestOperatorsDoc keeps docs/operators.md current: it is made from the table
// of operators, the counts of public tests in testdata and the lists of tests
// that do not pass.
func TestOperatorsDoc(t *testing.T) {
	dir := os.Getenv("POPEFGEN_TESTDATA")
	if dir == "" {
		dir = filepath.Join(onnxtest.Root(t), "..", "shared")
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(data); err == nil {
		text := countPublic(t, data)
		if *update {
			require.NoError(t, os.WriteFile(countsFile, []byte(text), 0o666))
		}
		committed, err := os.ReadFile(countsFile)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(string(committed), text), "counts of public tests; go test ./onnx/internal/op -run OperatorsDoc -update rewrites them")
	}
	want := renderOperators(t)
	if *update {
		require.NoError(t, os.WriteFile(operatorsDoc, []byte(want), 0o666))
	}
	got, err := os.ReadFile(operatorsDoc)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, string(got)), "docs/operators.md is stale; go test ./onnx/internal/op -run OperatorsDoc -update rewrites it")
}

// countPublic counts, per operator, the public tests that are about it.
func countPublic(t *testing.T, data string) string {
	counts := map[string]*publicCount{}
	for i, set := range publicSets {
		b, err := os.ReadFile(filepath.Join(data, set, "INDEX.tsv"))
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
			col := strings.Split(line, "\t")
			for _, op := range append(strings.Split(col[5], "+"), allTests) {
				c := counts[op]
				if c == nil {
					c = &publicCount{}
					counts[op] = c
				}
				c.tests[i]++
			}
		}
	}
	var b strings.Builder
	b.WriteString("# operator, public tests about it (newest versions, older versions, whole models)\n")
	var names []string
	for n := range counts {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		c := counts[n]
		fmt.Fprintf(&b, "%s\t%d\t%d\t%d\n", n, c.tests[0], c.tests[1], c.tests[2])
	}
	return b.String()
}

func readCounts(t *testing.T) map[string]publicCount {
	b, err := os.ReadFile(countsFile)
	require.NoError(t, err)
	counts := map[string]publicCount{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
		col := strings.Split(line, "\t")
		require.Len(t, col, 4, line)
		var c publicCount
		for i := range c.tests {
			c.tests[i], err = strconv.Atoi(col[1+i])
			require.NoError(t, err)
		}
		counts[col[0]] = c
	}
	return counts
}

// failing is a public test that does not pass at the suite's own tolerance.
type failing struct {
	absolute float64 // the tolerance at which it does
	reason   string
}

// readFailing reads the list of public tests that do not pass, which
// TestPublic keeps true.
func readFailing(t *testing.T) map[string]failing {
	b, err := os.ReadFile(failingFile)
	require.NoError(t, err)
	list := map[string]failing{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
		col := strings.Split(line, "\t")
		require.Len(t, col, 3, line)
		tol, err := strconv.ParseFloat(col[1], 64)
		require.NoError(t, err)
		list[col[0]] = failing{tol, col[2]}
	}
	return list
}

func renderOperators(t *testing.T) string {
	counts := readCounts(t)
	var b strings.Builder
	b.WriteString(operatorsIntro)
	b.WriteString("\n## Types\n\n| set | element types |\n|---|---|\n")
	sets := compile.TypeSets()
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, sets[name])
	}
	b.WriteString("\n## Operators\n\n| operator | forms | operands and their types | gradient | newest | older | models |\n|---|---|---|---|---|---|---|\n")
	all := compile.Operators()
	gradients := op.Gradients(t)
	var attributes strings.Builder
	for _, o := range all {
		name := o.Name
		if o.Domain != "" {
			name = o.Domain + "." + name
		}
		shown := name
		var forms []string
		for _, f := range o.Forms {
			forms = append(forms, strconv.FormatInt(f.Version, 10))
			if f.Attributes != "" {
				fmt.Fprintf(&attributes, "| %s | %d | `%s` |\n", name, f.Version, f.Attributes)
			}
		}
		if o.Dropped != 0 {
			forms = append(forms, fmt.Sprintf("dropped in %d", o.Dropped))
		}
		// The public tests name operators without their domain.
		if o.Domain != "" && !slices.ContainsFunc(all, func(p onnx.Operator) bool { return p.Domain == "" && p.Name == o.Name }) {
			name = o.Name
		}
		c := counts[name]
		gradient := gradients[shown]
		require.NotEmpty(t, gradient, "gradient of %s", shown)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", shown, strings.Join(forms, ", "), o.Forms[len(o.Forms)-1].Operands, gradient, dash(c.tests[0]), dash(c.tests[1]), dash(c.tests[2]))
		delete(counts, name)
	}
	total := counts[allTests].tests
	delete(counts, allTests)
	fmt.Fprintf(&b, "\n%d operators. Public tests: %d at the newest versions, %d at older ones, %d whole models.\n", len(all), total[0], total[1], total[2])
	b.WriteString("\n## Public tests that do not pass\n\n")
	var not []string
	for name, f := range readFailing(t) {
		not = append(not, fmt.Sprintf("| %s | %s; it passes with an absolute tolerance of %v |\n", name, f.reason, f.absolute))
	}
	for name, c := range counts {
		not = append(not, fmt.Sprintf("| all about %s (%d) | the operator is not in the table |\n", name, c.tests[0]+c.tests[1]+c.tests[2]))
	}
	slices.Sort(not)
	if len(not) == 0 {
		b.WriteString("None.\n")
	} else {
		fmt.Fprintf(&b, "%d of %d:\n\n| test | what it meets |\n|---|---|\n%s", len(not), total[0]+total[1]+total[2], strings.Join(not, ""))
	}
	b.WriteString(deviations)
	b.WriteString("\n## Attributes\n\nWith their defaults, or their types where leaving one out means something of its own; one with ! must be given.\n\n")
	b.WriteString("| operator | from version | attributes |\n|---|---|---|\n" + attributes.String())
	return b.String()
}

func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

const operatorsIntro = `# ONNX operators

This page is made from the table of operators: ` + "`go test ./onnx/internal/op -run OperatorsDoc -update`" + ` rewrites it, and the tests fail when it is stale.

A model is refused if it uses an operator that is not below, with the complete list of what is in the way. "Forms" are the versions of an operator set
in which an operator begins to mean something else; every version in between is taken at the form before it. The types are those that the newest form
takes, and a test runs every form with each of them; operands that are named together have the same type, and every operand may be a graph input,
unless its value decides an axis, or a shape that nothing bounds. The counts are public tests of ONNX's own backend suite about the operator: at the newest versions, at older
versions, and whole small models. ` + "`popefgen verify --recursive DIR`" + ` runs them.

"Gradient" says whether ` + "`ipu/graph/autodiff`" + ` finds the gradients of operands of floats, and behind it the operators of the portable executable that the newest form becomes:
` + "`go test ./ipu/graph/autodiff -run TestGradients/NAME`" + ` compares the rule of each with central differences in float64 and with the engine in float32. Zero is what jumps, or knows no floats: a weight that
acts through nothing else is refused.

## How values cross the boundary

PopEF has neither bfloat16 nor types of less than a byte. A model's input or output of such a type is an anchor of another type with the same bytes:

| ONNX | PopEF anchor | each element |
|---|---|---|
| bfloat16 | U16 | its 16 bits |
| int4, int2 | S8 | one byte, sign-extended |
| uint4, uint2 | U8 | one byte |
| float8e4m3fnuz, float8e5m2fnuz | F8143, F8152 | its 8 bits |

All other types are themselves. Integer arithmetic wraps; float16 and bfloat16 operators compute in float32 and round once. Strings, sequences,
optionals and complex numbers are not supported. Random numbers follow from a seed that the file carries, the number of runs before, the operator and the place of the element, the same on every machine
and number of threads; with the attribute seed from that in place of the file's. The number of axes is known when the model is compiled, and so is the most that each can have, from
the model itself or through ` + "`--dim`, `--batch`, `--bind` and `--max`" + `; how much there is within that, requests may decide ([sizes](sizes.md#sizes-that-data-decides)). An If of which
one branch is impossible at those sizes runs the other one, and every run checks the condition.
`

// deviations are differences from ONNX Runtime that stay.
const deviations = `
## Where ONNX Runtime gives other numbers

Random models of every operator are compared with ONNX Runtime. These differ on purpose:

| operator | what differs |
|---|---|
| Resize | with antialias, keep_aspect_ratio_policy can leave an axis its size with a scale below 1. ONNX's text and its reference stretch the filter there as well, and so do we; ONNX Runtime copies the axis |
| Resize | with tf_crop_and_resize, ONNX Runtime forgets the region to crop along an axis that keeps its size |
| ConvTranspose | with auto_pad SAME and a kernel smaller than the stride, ONNX's result has strides times the operand's size; that of ONNX Runtime is smaller |
| MaxPool, AveragePool | ONNX Runtime leaves dilations out of SAME padding |
| ReduceProd | integers wrap; those of ONNX Runtime saturate |
`

// TestPopART looks every entry of PopART's operator list up in the table.
func TestPopART(t *testing.T) {
	b, err := os.ReadFile("../../testdata/popart_operators.txt")
	require.NoError(t, err)
	entries := strings.Fields(string(b))
	require.Len(t, entries, 155)
	all := map[string]onnx.Operator{}
	for _, o := range compile.Operators() {
		name := o.Name
		if o.Domain != "" {
			name = o.Domain + "." + name
		}
		all[name] = o
	}
	for _, e := range entries {
		name, version, _ := cutLast(e, "-")
		v, err := strconv.ParseInt(version, 10, 64)
		require.NoError(t, err)
		o, ok := all[name]
		if !ok {
			t.Errorf("%s: not in the table", e)
			continue
		}
		if o.Forms[0].Version > v || o.Dropped != 0 && o.Dropped <= v {
			t.Errorf("%s: in the table from version %d on, dropped in %d", e, o.Forms[0].Version, o.Dropped)
		}
	}
}
