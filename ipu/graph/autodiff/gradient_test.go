package autodiff_test

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
)

// cases draw a graph of one operator each; its kind stands before the slash.
var cases = map[string]func(*draw){}

func init() {
	for _, family := range []map[string]func(*draw){elementwiseCases, reduceCases, matrixCases, movementCases, indexCases, spatialCases, normCases, controlCases, recurrentCases, sampleCases, regionCases, functionCases()} {
		maps.Copy(cases, family)
	}
}

var draws = flag.Int("draws", 8, "graphs that are drawn for each rule")

// check draws as many graphs as -draws says, or a part of them.
func check(t *testing.T, part int, f func(*rapid.T)) {
	n, failed := 0, false
	rapid.Check(t, func(r *rapid.T) {
		if n++; n > max(*draws/part, 1) && !failed {
			return
		}
		done := false
		defer func() { failed = failed || !done }()
		f(r)
		done = true
	})
}

// TestGradients compares the gradients of every rule with central differences in float64, and with what the engine makes of
// the optimised executable in float32.
func TestGradients(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := 1
			if strings.HasPrefix(name, "Unary/") {
				part = 4
			}
			check(t, part, func(r *rapid.T) {
				d := newDraw(r)
				cases[name](d)
				d.check(autodiff.Options{})
			})
		})
	}
}

// TestEveryOperatorHasARule finds operators of the portable executable that the table of rules does not know.
func TestEveryOperatorHasARule(t *testing.T) {
	var kinds []string
	for _, r := range autodiff.Rules() {
		kinds = append(kinds, r.Kind)
		said := 0
		for _, yes := range []bool{r.Exists, r.Zero, r.Why != ""} {
			if yes {
				said++
			}
		}
		require.Equal(t, 1, said, "%s: want one of a rule, zero, and a reason why not", r.Kind)
	}
	require.Equal(t, graph.Kinds(), kinds)
}

// TestEveryRuleIsTested finds rules that no case of TestGradients is about.
func TestEveryRuleIsTested(t *testing.T) {
	tested := map[string]bool{}
	for name := range cases {
		kind, _, _ := strings.Cut(name, "/")
		tested[kind] = true
	}
	for _, r := range autodiff.Rules() {
		require.Equal(t, r.Exists, tested[r.Kind], "%s has a rule, or a case in TestGradients, but not both", r.Kind)
	}
}
