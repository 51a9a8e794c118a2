// Package templates holds the text of a generated package that is not built
// statement by statement: its documentation and its tests. Templates render a
// plan; what is rendered was decided in package gen.
package templates

import (
	"embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed *.tmpl
var files embed.FS

var all = template.Must(template.New("").Funcs(template.FuncMap{
	"plural": func(n any, one, many string) string {
		if fmt.Sprint(n) == "1" {
			return "1 " + one
		}
		return fmt.Sprint(n, " ", many)
	},
}).ParseFS(files, "*.tmpl"))

// Render executes the template of that file name with data.
func Render(name string, data any) (string, error) {
	var b strings.Builder
	if err := all.ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("rendering %s: %w", name, err)
	}
	return b.String(), nil
}
