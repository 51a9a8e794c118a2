package golden_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/popef"
)

// TestOptimizerNames gives fields of Optimizer other names, by the names of their anchors and by their stream handles.
func TestOptimizerNames(t *testing.T) {
	const rate, momentum = "learningRate___default___FLOAT", "sgdMomentum___default___FLOAT"
	for _, c := range []struct {
		name    string
		renames map[string]string
		want    string // fields of Optimizer
		problem string
	}{
		{"none", nil, "LearningRate SgdMomentum", ""},
		{"by name", map[string]string{rate: "Rate"}, "Rate SgdMomentum", ""},
		{"by handle", map[string]string{"h2d_" + momentum: "Momentum"}, "LearningRate Momentum", ""},
		{"a name that another would have", map[string]string{momentum: "LearningRate"}, "LearningRate_2 LearningRate", ""},
		{"exchanged", map[string]string{momentum: "LearningRate", rate: "SgdMomentum"}, "SgdMomentum LearningRate", ""},
		{"the name of a tensor", map[string]string{rate: "X"}, "X SgdMomentum", ""},
		{"together with a tensor", map[string]string{rate: "Rate", "x": "Point"}, "Rate SgdMomentum", ""},
		{"twice", map[string]string{rate: "Rate", momentum: "Rate"}, "", `rename "sgdMomentum___default___FLOAT": the name Rate is taken by the rename of "learningRate___default___FLOAT"; choose another`},
		{"no name", map[string]string{rate: "rate"}, "", `rename "learningRate___default___FLOAT": "rate" is not exported: it must start with an upper-case letter`},
		{"nearly", map[string]string{"learningRate___default__FLOAT": "Rate"}, "", `the model has no such anchor; did you mean "learningRate___default___FLOAT"?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := popef.Load(write(t, "training", nil)...)
			require.NoError(t, err)
			defer m.Close()
			plan, err := gen.Build(m, gen.Options{Package: "training", ModelBase: "line.popef", Tests: true, Renames: c.renames})
			if c.problem != "" {
				require.ErrorContains(t, err, c.problem)
				return
			}
			require.NoError(t, err)
			var fields []string
			for _, v := range plan.Training.Optimizer {
				fields = append(fields, v.Name)
			}
			require.Equal(t, c.want, strings.Join(fields, " "))
			files, err := gen.Emit(plan)
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for _, f := range files {
				if f.Name == "contract.txt" {
					for i, anchor := range []string{rate, momentum} {
						require.Contains(t, string(f.Data), `# go "`+anchor+`" `+fields[i]+"\n")
					}
				}
			}
		})
	}
}
