package verify

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/onnx/compile"
)

// without returns the ways to leave passes out that tests try: all of them,
// every one alone and, if alone is set, all but every one.
func without(alone bool) map[string][]string {
	var all []string
	for _, p := range pass.Passes {
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

// everything is set by POPEFGEN_TESTS=all: tests do not leave out what they
// otherwise sample by a fixed rule.
var everything = os.Getenv("POPEFGEN_TESTS") == "all"

// TestPassesOnConformanceModels shows that every pass, on and off, gives the
// results that the public tests ask for: all models, and of those of one operator
// every way to set the passes another eighth, but all of them without passes.
func TestPassesOnConformanceModels(t *testing.T) {
	if testing.Short() {
		t.Skip("all public tests with every pass on and off take a while")
	}
	data := filepath.Join(testData(t), "data")
	cases, err := Find([]string{filepath.Join(data, "onnx-node-tests"), filepath.Join(data, "onnx-node-tests-older"),
		filepath.Join(data, "onnx-model-tests")}, true)
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	ways := without(true)
	for at, name := range slices.Sorted(maps.Keys(ways)) {
		t.Run(name, func(t *testing.T) {
			disabled := ways[name]
			for i, c := range cases {
				if (i+at)%8 != 0 && len(disabled) < len(pass.Passes) && !strings.Contains(c.Dir, "onnx-model-tests") && !everything {
					continue
				}
				results, err := Run(context.Background(), c, Options{Tolerance: tolerance(c), Compile: compile.Options{DisablePasses: disabled}, Execute: execute})
				require.NoError(t, err)
				for _, r := range results {
					require.NotEqual(t, Fail, r.Verdict, "%s: %s", r.Set, r.Reason)
				}
			}
		})
	}
}

// TestPassesOnPublicModels does the same for the public models, with weights
// that are loaded and with constants. With one pass off it takes a third of them.
func TestPassesOnPublicModels(t *testing.T) {
	if testing.Short() {
		t.Skip("all public models with every pass off take a while")
	}
	cases, err := Find([]string{filepath.Join(testData(t), "models")}, true)
	require.NoError(t, err)
	ways := without(false)
	ways["all passes"] = nil
	for at, name := range slices.Sorted(maps.Keys(ways)) {
		disabled := ways[name]
		for _, constants := range []bool{false, true} {
			if constants && len(disabled) == 1 {
				continue
			}
			t.Run(name, func(t *testing.T) {
				for i, c := range cases {
					if (i+at)%3 != 0 && len(disabled) == 1 && !everything {
						continue
					}
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

// tolerance is what the README of the public models grants one, and what the
// public tests of operators get: 1e-7, or as much as the list of those that do
// not pass says.
func tolerance(c Case) Tolerance {
	if i := strings.Index(c.Dir, "onnx-"); i >= 0 {
		return Tolerance{Rel: 1e-3, Abs: cmp.Or(notPassing()[filepath.ToSlash(c.Dir[i:])], 1e-7)}
	}
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

// notPassing reads the absolute tolerances of the public tests that do not pass,
// which a test of the package onnx keeps true.
var notPassing = sync.OnceValue(func() map[string]float64 {
	list := map[string]float64{}
	b, err := os.ReadFile(filepath.Join("..", "testdata", "not_passing.tsv"))
	if err != nil {
		panic(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
		col := strings.Split(line, "\t")
		tol, err := strconv.ParseFloat(col[1], 64)
		if err != nil {
			panic(err)
		}
		list[col[0]] = tol
	}
	return list
})
