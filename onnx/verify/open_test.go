package verify

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// decides names the inputs of public tests that are bound all the same, by the operators: what they say is not
// how much there is of something but along which axis, by what factor or how often.
var decides = map[string]*regexp.Regexp{
	"axis":            regexp.MustCompile(`^test_(cumsum|cumprod|dft)`),
	"axes":            regexp.MustCompile(`^test_(reduce_|squeeze|unsqueeze|constant_pad_axes)`),
	"scale":           regexp.MustCompile(`^test_(resize|upsample)`),
	"sizes of images": regexp.MustCompile(`^test_(affine_grid|col2im|stft|resize)`),
	"loops":           regexp.MustCompile(`^test_loop11`),
	"sample":          regexp.MustCompile(`^test_expand_shape_model`),
}

// withoutData are tests whose results follow from the types of their inputs alone.
var withoutData = regexp.MustCompile(`^test_(constant|shape.*|size_example|eyelike.*)$`)

// refused are those that need what is known only if their sizes are.
var refused = regexp.MustCompile(`^test_affine_grid_.*_expanded$`)

// TestSizesThatDataDecides runs all public tests of operators with inputs that decide sizes as data:
// nothing is bound but the most that there may be. Nothing that depends on inputs is computed when the model is
// compiled.
func TestSizesThatDataDecides(t *testing.T) {
	if testing.Short() {
		t.Skip("all public tests take seconds")
	}
	data := testData(t)
	cases, err := Find([]string{filepath.Join(data, "data", "onnx-node-tests"), filepath.Join(data, "data", "onnx-node-tests-older"), filepath.Join(data, "data", "onnx-model-tests")}, true)
	require.NoError(t, err)
	counted := 0
	for _, c := range cases {
		name := filepath.Base(c.Dir)
		c.Sets = c.Sets[:1]
		o := Options{Tolerance: Tolerance{Rel: 1e-3, Abs: 1e-7}, Execute: execute}
		o.Open = true
		results, err := Run(t.Context(), c, o)
		require.NoError(t, err)
		r := results[0]
		if r.Verdict != Pass {
			o.Open = false
			bound, err := Run(t.Context(), c, o)
			require.NoError(t, err)
			if !refused.MatchString(name) || r.Verdict != Skip {
				assert.Equal(t, bound[0].Verdict, r.Verdict, "%s: %s", name, r.Reason)
			}
			continue
		}
		assert.Equal(t, withoutData.MatchString(name), r.Folded, "%s: computed when it was compiled", name)
		m, err := onnx.ReadFile(filepath.Join(c.Dir, modelFile))
		require.NoError(t, err)
		x, err := CompileOpen(t.Context(), m, c.Sets[0], compile.Options{})
		require.NoError(t, err)
		if len(x.Fed) == len(x.Named) {
			if len(x.Counts) > 0 {
				counted++
			}
			continue
		}
		known := false
		for _, names := range decides {
			known = known || names.MatchString(name)
		}
		assert.True(t, known, "%s: inputs are bound: of %d %d are data", name, len(x.Named), len(x.Fed))
	}
	t.Logf("data decides sizes of %d", counted)
	require.GreaterOrEqual(t, counted, 95)
}
