package templates

import (
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
)

// TestArms goes through every branch of templates, whatever their conditions say.
func TestArms(t *testing.T) {
	type data struct {
		No    bool
		Names []string
		None  []string
	}
	for _, c := range []struct {
		name, text string
		want       []string
		err        string
	}{
		{"no branch", "a{{.No}}", []string{"afalse"}, ""},
		{"an if that is not so", "a{{if .No}}b{{end}}c", []string{"abc"}, ""},
		{"both arms", "{{if .No}}a{{else}}b{{end}}", []string{"a", "b"}, ""},
		{"else if", "{{if .No}}a{{else if .No}}b{{else}}c{{end}}", []string{"a", "b", "c"}, ""},
		{"within arms", "{{if .No}}{{if .No}}a{{else}}b{{end}}{{else}}{{if .No}}c{{else}}d{{end}}{{end}}", []string{"a", "b", "c", "d"}, ""},
		{"side by side", "{{if .No}}a{{else}}b{{end}}{{if .No}}c{{else}}d{{end}}", []string{"ac", "bd"}, ""},
		{"a range", "{{range .Names}}{{.}}{{if eq . `y`}}!{{end}}{{else}}none{{end}}", []string{"x!y!", "none"}, ""},
		{"a with", "{{with .Names}}{{index . 1}}{{else}}none{{end}}", []string{"y", "none"}, ""},
		{"a variable", "{{$a := `x`}}{{if .No}}{{$a = `y`}}{{end}}{{$a}}", []string{"y"}, ""},
		{"a template called", "{{define `f`}}{{if .No}}a{{else}}b{{end}}{{end}}{{template `f` .}}{{template `f` .}}", []string{"aa", "bb"}, ""},
		{"a template that calls itself", "{{define `f`}}{{if .}}{{.}}{{range .}}{{template `f` .}}{{end}}{{else}}b{{end}}{{end}}{{with `` }}{{end}}{{template `f` .None}}",
			nil, "the data has nothing for it"},
		{"a range over nothing", "{{range .None}}a{{end}}", nil, "t:1: .None: the data has nothing for it"},
		{"a range over nothing in an arm", "{{if .No}}a{{else}}{{range .None}}a{{end}}{{end}}", nil, "the data has nothing for it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := arms(template.Must(template.New("t").Parse(c.text)), "t", data{Names: []string{"x", "y"}})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}
