// Package templates holds the text of a generated package that is the same for
// every model but for names and lists of them: its documentation, the methods of
// its types, its tests. Templates render a plan; what is rendered was decided in
// package plan.
package templates

import (
	"embed"
	"fmt"
	"strings"
	"text/template"
)

// The templates. What a plan calls Inputs, Outputs and so on, they range over.
const (
	Doc    = "package.tmpl"   // documentation of the package
	Runner = "runner.go.tmpl" // methods of Runner
	Queues = "queues.go.tmpl" // methods of Queues
	Tests  = "test.go.tmpl"   // a file: example, benchmarks and allocation tests

	Packed      = "packed.go.tmpl"      // RunPacked, of a package that packs sequences
	PackedTests = "packed_test.go.tmpl" // for the file of tests
	Stream      = "stream.go.tmpl"      // methods of Stream, of a package that keeps a state
	StreamTests = "stream_test.go.tmpl" // for the file of tests
	Flow        = "flow.go.tmpl"        // methods of Stream, of a package of several sizes
	FlowTests   = "flow_test.go.tmpl"   // for the file of tests

	Training      = "training.go.tmpl"      // methods of Runner, of a package of a model that trains
	TrainingTests = "training_test.go.tmpl" // for the file of tests

	Branches     = "branches.go.tmpl"      // the type Branch and methods of Runner, of a package of a fused model
	BranchesTest = "branches_test.go.tmpl" // a file, in the place of Tests

	Serve      = "serve.go.tmpl"      // a file: what serves the model, and a client
	ServeTests = "serve_test.go.tmpl" // a file: its tests
)

//go:embed *.tmpl
var files embed.FS

var all = template.Must(template.New("").Funcs(template.FuncMap{
	"numbers": func(all []int64) string {
		return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(all), "[]")), ", ")
	},
	"add": func(a, b int) int { return a + b },
	"grid": func(all [][]int) string { // as Go source
		return "[][]int" + strings.NewReplacer("[", "{", "]", "}", " ", ", ").Replace(fmt.Sprint(all))
	},
	"plural": func(n any, one, many string) string {
		if fmt.Sprint(n) == "1" {
			return "1 " + one
		}
		return fmt.Sprint(n, " ", many)
	},
}).ParseFS(files, "*.tmpl"))

// Render executes a template with data, which is a plan.
func Render(name string, data any) (string, error) {
	var b strings.Builder
	if err := all.ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("rendering %s: %w", name, err)
	}
	return b.String(), nil
}
