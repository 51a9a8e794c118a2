package verify

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/compile"
)

// without returns the ways to leave passes out that tests try: all of them,
// every one alone and, if alone is set, all but every one.
func without(alone bool) map[string][]string {
	var all []string
	for _, p := range graph.Passes {
		all = append(all, p.Name)
	}
	ways := map[string][]string{"no passes": all}
	for i, name := range all {
		ways["without "+name] = []string{name}
		if alone {
			ways["only "+name] = slices.Concat(all[:i], all[i+1:])
		}
	}
	return ways
}

// TestPassesOnConformanceModels shows that every pass, on and off, gives the
// results that the public tests ask for.
func TestPassesOnConformanceModels(t *testing.T) {
	if testing.Short() {
		t.Skip("all public tests with every pass on and off take a while")
	}
	data := filepath.Join(testData(t), "data")
	cases, err := Find([]string{filepath.Join(data, "onnx-node-tests"), filepath.Join(data, "onnx-node-tests-older"),
		filepath.Join(data, "onnx-model-tests")}, true)
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for name, disabled := range without(true) {
		t.Run(name, func(t *testing.T) {
			for _, c := range cases {
				tol := Tolerance{Rel: 1e-3, Abs: 1e-7}
				switch filepath.Base(c.Dir) {
				case "test_dft_inverse", "test_dft_inverse_opset19":
					tol.Abs = 1e-6 // the reference has 2e-7 for 0
				}
				results, err := Run(context.Background(), c, Options{Tolerance: tol, Compile: compile.Options{DisablePasses: disabled}, Execute: execute})
				require.NoError(t, err)
				for _, r := range results {
					require.NotEqual(t, Fail, r.Verdict, "%s: %s", r.Set, r.Reason)
				}
			}
		})
	}
}

// TestPassesOnPublicModels does the same for the public models, with weights
// that are loaded and with constants.
func TestPassesOnPublicModels(t *testing.T) {
	if testing.Short() {
		t.Skip("all public models with every pass off take a while")
	}
	cases, err := Find([]string{filepath.Join(testData(t), "models")}, true)
	require.NoError(t, err)
	ways := without(false)
	ways["all passes"] = nil
	for name, disabled := range ways {
		for _, constants := range []bool{false, true} {
			if constants && len(disabled) == 1 {
				continue
			}
			t.Run(name, func(t *testing.T) {
				for _, c := range cases {
					o := Options{Tolerance: tolerance(c), Execute: execute}
					o.Compile.DisablePasses, o.Compile.FoldWeights = disabled, constants
					c.Sets = c.Sets[:1]
					results, err := Run(context.Background(), c, o)
					require.NoError(t, err)
					require.Equal(t, Pass, results[0].Verdict, "%s: %s", results[0].Set, results[0].Reason)
				}
			})
		}
	}
}

// tolerance is what the README of the public models grants one.
func tolerance(c Case) Tolerance {
	switch filepath.Base(c.Dir) {
	case "squeezenet_fp16":
		return Tolerance{Rel: 1e-2, Abs: 1e-3}
	case "microkws_qdq":
		return Tolerance{Abs: 1.0 / 256} // one quantisation step of its output
	case "mlsd_tiny_320":
		return Tolerance{Rel: 1e-3, Abs: 0.03} // it amplifies rounding
	}
	return Tolerance{Rel: 1e-3, Abs: 1e-4}
}
