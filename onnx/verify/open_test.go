package verify

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// openCases are public tests whose inputs decide how much there is of a result.
var openCases = regexp.MustCompile(`^test_(slice|top_k|range|loop|scan|nonmaxsuppression|nonzero|unique|compress)`)

// TestSizesThatDataDecides runs public tests in which data decides sizes with all inputs as data:
// nothing is bound but the most that there may be.
func TestSizesThatDataDecides(t *testing.T) {
	data := testData(t)
	cases, err := Find([]string{filepath.Join(data, "data", "onnx-node-tests"), filepath.Join(data, "data", "onnx-node-tests-older")}, true)
	require.NoError(t, err)
	var open, bound []string
	for _, c := range cases {
		name := filepath.Base(c.Dir)
		if !openCases.MatchString(name) {
			continue
		}
		results, err := Run(t.Context(), c, Options{Tolerance: Tolerance{Rel: 1e-3, Abs: 1e-7}, Execute: execute, Open: true})
		require.NoError(t, err)
		for _, r := range results {
			require.NotEqual(t, Fail, r.Verdict, "%s: %s", name, r.Reason)
		}
		if results[0].Verdict == Skip {
			continue
		}
		m, err := onnx.ReadFile(filepath.Join(c.Dir, modelFile))
		require.NoError(t, err)
		r, err := CompileOpen(t.Context(), m, c.Sets[0], compile.Options{})
		require.NoError(t, err)
		if len(r.Fed) == len(r.Named) {
			open = append(open, name)
		} else {
			bound = append(bound, name)
		}
	}
	t.Logf("%d with all inputs as data: %v", len(open), open)
	t.Logf("%d with inputs bound: %v", len(bound), bound)
	require.GreaterOrEqual(t, len(open), 20)
}
