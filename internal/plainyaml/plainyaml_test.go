package plainyaml

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type shelf struct {
	Books []struct {
		Title titles         `yaml:"title"`
		Pages map[string]int `yaml:"pages"`
	} `yaml:"books"`
}

// titles is one title, or a list of them.
type titles []string

func (l *titles) UnmarshalYAML(unmarshal func(any) error) error {
	var one string
	if err := unmarshal(&one); err == nil {
		*l = titles{one}
		return nil
	}
	return unmarshal((*[]string)(l))
}

var advice = Advice{Fields: "the cellar lists the fields", Wants: map[string]string{"books[].title": "a title or titles"}}

func TestDecode(t *testing.T) {
	var s shelf
	f, err := Decode([]byte("# of mine\nbooks:\n- title: a\n- pages: {title: 3}\n  title: [b, c]\n"), &s, advice)
	require.NoError(t, err)
	require.Equal(t, titles{"b", "c"}, s.Books[1].Title)
	require.Equal(t, 3, f.Line("$.books[0]"))
	require.Equal(t, 4, f.Line("$.books[1]"))
	require.Equal(t, 1, f.Line("$.books[2]"))
	require.Equal(t, 1, f.Line("books"), "no path")
}

// TestDecodeErrors: what Advice says is said of the path that it names, and of no
// other with the same last name.
func TestDecodeErrors(t *testing.T) {
	for text, want := range map[string]string{
		"books:\n- title: {a: 1}":         "[2:10] books[0].title: found keys with values, want a title or titles\n",
		"books:\n- pages: {title: [1]}":   "[2:18] books[0].pages.title: found a list, want a whole number\n",
		"books:\n- tilte: a":              "hint: the cellar lists the fields",
		"books: [\"":                      "[1:9] ",
		"books:\n- &a {pages: {a: *a}}\n": "line 2: an alias within a value that has an anchor: write it out",
	} {
		_, err := Decode([]byte(text), &shelf{}, advice)
		require.ErrorContains(t, err, want, text)
	}
}
