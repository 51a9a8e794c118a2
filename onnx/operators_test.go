package onnx_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

var update = flag.Bool("update", false, "rewrite docs/operators.md and, where the public tests are at hand, their counts")

const (
	operatorsDoc = "../docs/operators.md"
	countsFile   = "testdata/public_tests.tsv"
)

var publicSets = []string{"onnx-node-tests", "onnx-node-tests-older", "onnx-model-tests"}

// publicCount is what the public tests say about one operator.
type publicCount struct {
	tests [3]int // in publicSets
	types []string
}

// TestOperatorsDoc keeps docs/operators.md current: it is made from the table
// of operators, the counts of public tests in testdata and the lists of tests
// that do not pass.
func TestOperatorsDoc(t *testing.T) {
	dir := os.Getenv("POPEFGEN_TESTDATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared")
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(data); err == nil {
		text := countPublic(t, data)
		if *update {
			require.NoError(t, os.WriteFile(countsFile, []byte(text), 0o666))
		}
		committed, err := os.ReadFile(countsFile)
		require.NoError(t, err)
		require.Equal(t, string(committed), text, "counts of public tests; go test ./onnx -run OperatorsDoc -update rewrites them")
	}
	want := renderOperators(t)
	if *update {
		require.NoError(t, os.WriteFile(operatorsDoc, []byte(want), 0o666))
	}
	got, err := os.ReadFile(operatorsDoc)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "docs/operators.md is stale; go test ./onnx -run OperatorsDoc -update rewrites it")
}

// countPublic counts, per operator, the public tests that are about it.
func countPublic(t *testing.T, data string) string {
	counts := map[string]*publicCount{}
	for i, set := range publicSets {
		b, err := os.ReadFile(filepath.Join(data, set, "INDEX.tsv"))
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
			col := strings.Split(line, "\t")
			for _, op := range strings.Split(col[5], "+") {
				c := counts[op]
				if c == nil {
					c = &publicCount{}
					counts[op] = c
				}
				c.tests[i]++
				for _, d := range strings.FieldsFunc(col[3], func(r rune) bool { return r == ',' || r == ' ' }) {
					if !slices.Contains(c.types, d) {
						c.types = append(c.types, d)
					}
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString("# operator, public tests about it (newest versions, older versions, whole models), element types in them\n")
	var names []string
	for n := range counts {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		c := counts[n]
		slices.Sort(c.types)
		fmt.Fprintf(&b, "%s\t%d\t%d\t%d\t%s\n", n, c.tests[0], c.tests[1], c.tests[2], strings.Join(c.types, " "))
	}
	return b.String()
}

func readCounts(t *testing.T) map[string]publicCount {
	b, err := os.ReadFile(countsFile)
	require.NoError(t, err)
	counts := map[string]publicCount{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
		col := strings.Split(line, "\t")
		require.Len(t, col, 5, line)
		var c publicCount
		for i := range c.tests {
			c.tests[i], err = strconv.Atoi(col[1+i])
			require.NoError(t, err)
		}
		c.types = strings.Fields(col[4])
		counts[col[0]] = c
	}
	return counts
}

func renderOperators(t *testing.T) string {
	counts := readCounts(t)
	var b strings.Builder
	b.WriteString(operatorsIntro)
	b.WriteString("\n## Operators\n\n| operator | forms | element types in public tests | newest | older | models |\n|---|---|---|---|---|---|\n")
	all := onnx.Operators()
	for _, o := range all {
		name := o.Name
		if o.Domain != "" {
			name = o.Domain + "." + name
		}
		shown := name
		var forms []string
		for _, v := range o.Forms {
			forms = append(forms, strconv.FormatInt(v, 10))
		}
		if o.Dropped != 0 {
			forms = append(forms, fmt.Sprintf("dropped in %d", o.Dropped))
		}
		// The public tests name operators without their domain.
		if o.Domain != "" && !slices.ContainsFunc(all, func(p onnx.Operator) bool { return p.Domain == "" && p.Name == o.Name }) {
			name = o.Name
		}
		c := counts[name]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", shown, strings.Join(forms, ", "), strings.Join(c.types, " "), dash(c.tests[0]), dash(c.tests[1]), dash(c.tests[2]))
		delete(counts, name)
	}
	fmt.Fprintf(&b, "\n%d operators.\n", len(all))
	b.WriteString("\n## Public tests that do not pass\n\n")
	var not []string
	for name, why := range notLowered {
		not = append(not, fmt.Sprintf("| %s | %s |\n", name, why))
	}
	for name, why := range looser {
		not = append(not, fmt.Sprintf("| %s | %s |\n", name, why))
	}
	for name, c := range counts {
		not = append(not, fmt.Sprintf("| all about %s (%d) | the operator is not in the table |\n", name, c.tests[0]+c.tests[1]+c.tests[2]))
	}
	slices.Sort(not)
	if len(not) == 0 {
		b.WriteString("None.\n")
	} else {
		b.WriteString("| test | what it meets |\n|---|---|\n" + strings.Join(not, ""))
	}
	return b.String()
}

// looser are the public tests that do not pass at the suite's own tolerance.
var looser = map[string]string{
	"test_dft_inverse":         "zeros that are 2e-7 in the reference and 2e-15 here; passes with an absolute tolerance of 1e-6",
	"test_dft_inverse_opset19": "the same",
}

func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

const operatorsIntro = `# ONNX operators

This page is made from the table of operators: ` + "`go test ./onnx -run OperatorsDoc -update`" + ` rewrites it, and the tests fail when it is stale.

A model is refused if it uses an operator that is not below, with the complete list of what is in the way. "Forms" are the versions of an operator set
in which an operator begins to mean something else; every version in between is taken at the form before it. The counts are public tests of ONNX's own
backend suite about the operator: at the newest versions, at older versions, and whole small models. ` + "`popefgen verify --recursive DIR`" + ` runs them.

## How values cross the boundary

PopEF has neither bfloat16 nor types of less than a byte. A model's input or output of such a type is an anchor of another type with the same bytes:

| ONNX | PopEF anchor | each element |
|---|---|---|
| bfloat16 | U16 | its 16 bits |
| int4, int2 | S8 | one byte, sign-extended |
| uint4, uint2 | U8 | one byte |
| float8e4m3fnuz, float8e5m2fnuz | F8143, F8152 | its 8 bits |

All other types are themselves. Integer arithmetic wraps; float16 and bfloat16 operators compute in float32 and round once. Strings, sequences,
optionals, complex numbers and training mode are not supported. Shapes are static: what decides a shape must be known when the model is compiled, from
the model itself or through ` + "`--dim`, `--batch` and `--bind`" + `.
`

// TestPopART looks every entry of PopART's operator list up in the table.
func TestPopART(t *testing.T) {
	b, err := os.ReadFile("testdata/popart_operators.txt")
	require.NoError(t, err)
	entries := strings.Fields(string(b))
	require.Len(t, entries, 155)
	all := map[string]onnx.Operator{}
	for _, o := range onnx.Operators() {
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
		if o.Forms[0] > v || o.Dropped != 0 && o.Dropped <= v {
			t.Errorf("%s: in the table from version %d on, dropped in %d", e, o.Forms[0], o.Dropped)
		}
	}
}
