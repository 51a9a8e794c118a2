// Package errortext says what is wrong with the text of an error, for the tests
// of all rooms: whoever reads it should read each thing once, in the words
// that it was given in, and what to do.
package errortext

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is the text of an error, with what is known of the call that it is of.
type Text struct {
	Text string
	// Names are the nodes, anchors and flags that it may be about, as the caller
	// gave them, beside those that the text quotes, and files. Each is said once,
	// but for advice: a command or a flag to type may repeat it.
	Names []string
	// Dir is a folder that the caller did not name, so that it must not appear:
	// the working folder, where paths were given relative to it.
	Dir string
	// Shell is set where somebody at a shell reads it, who wants no Go identifiers.
	Shell bool
	// Remedy is a regular expression of what the text must say to do; "" if there
	// is nothing to do, or the text says by itself what that is.
	Remedy string
}

// Faults returns what is wrong with the text, in words.
func (t Text) Faults() []string {
	var out []string
	fault := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	text, _, _ := strings.Cut(t.Text, "\ngoroutine ") // the stack of a panic
	if text == "" || text != strings.TrimSpace(text) {
		fault("it is empty, or has spaces around it")
	}
	if first, size := utf8.DecodeRuneInString(text); unicode.IsUpper(first) && size < len(text) && !goName.MatchString(text) {
		fault("it does not begin in lower case")
	}
	said := map[string]bool{}
	for _, c := range clauses(text) {
		if said[c] && c != "hint" {
			fault("it says %q twice", c)
		}
		said[c] = true
	}
	if a, b := doings(text); a != "" {
		fault("it says twice what was being done: %q and %q", a, b)
	}
	diagnosis := Diagnosis(text)
	names := append(file.FindAllString(diagnosis, -1), t.Names...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if n := count(diagnosis, name); n > 1 {
			fault("it names %s %d times", name, n)
		}
	}
	for line := range strings.Lines(diagnosis) { // one of a list may be about what another is about
		quoted := quotation.FindAllString(line, -1)
		slices.Sort(quoted)
		for _, name := range slices.Compact(quoted) {
			if n := strings.Count(line, name); n > 1 {
				fault("it names %s %d times", name, n)
			}
		}
	}
	if t.Dir != "" && strings.Contains(text, t.Dir) {
		fault("it has the path of the working folder in it, %s", t.Dir)
	}
	for _, odd := range []string{"%!", "<nil>", ": :", "::", "&{", "map[", "[]uint8", "interface {", "(0x", "runtime error"} {
		if strings.Contains(text, odd) {
			fault("it contains %q", odd)
		}
	}
	if strings.Contains(strings.ReplaceAll(text, "\n", "\n."), "  ") && !strings.Contains(text, "\n") {
		fault("it contains two spaces")
	}
	if m := goType.FindString(text); m != "" {
		fault("it has a Go type in it, %s", m)
	}
	if m := goIdentifier.FindString(text); t.Shell && m != "" {
		fault("it has a Go identifier in it, %s", m)
	}
	if t.Remedy != "" && !regexp.MustCompile(t.Remedy).MatchString(text) {
		fault("it does not say what to do, %s", t.Remedy)
	}
	return out
}

var (
	file         = regexp.MustCompile(`[\w./-]*\w\.(popef|onnx|npy|npz|pb|bin|txt|yaml|go|json|html)\b`)
	quotation    = regexp.MustCompile(`"(\\.|[^"\\])+"`)
	goName       = regexp.MustCompile(`^[A-Z]\w*(\.\w+)?( is |: )`)
	goType       = regexp.MustCompile(`\*?\b(rt|ipu|popef|graph|onnx|gen|contract|compile|npy|kernel|num|fs|os|io|reflect|syscall|strconv|json|yaml|errors)\.[A-Z]\w*`)
	goIdentifier = regexp.MustCompile(`\b(With[A-Z]\w*|Reader\.[A-Z]\w*|NumBuffers|[A-Z]\w*Error)\b`)
	// advice begins what tells the reader what to do.
	advice = regexp.MustCompile(`; |\n\s*hint: |; hint: | \(usage|: (want|give|use|choose) |, want |\? \(|did you mean|: popefgen |--[a-z-]+=`)
	// doing is what begins a clause that says what was being done.
	doing = regexp.MustCompile(`^(open|read|load|writ|compil|run|creat|stat|mkdir|generat|inspect|decod|pars|connect|clos|sav|optimis|encod)(e|es|ed|ing|ning)?( |$)`)
)

// Diagnosis is the text without what it says to do.
func Diagnosis(text string) string {
	if at := advice.FindStringIndex(text); at != nil {
		return text[:at[0]]
	}
	return text
}

// clauses are the parts that stand between colons, semicolons and line breaks.
func clauses(text string) []string {
	var out []string
	for _, c := range regexp.MustCompile(`: |; |\n`).Split(text, -1) {
		if c = strings.TrimSpace(c); c != "" {
			out = append(out, c)
		}
	}
	return out
}

// doings returns two clauses that begin with the same verb, or of which the
// second, the system's, makes the first superfluous ("reading model: open x").
func doings(text string) (string, string) {
	verb, first := "", ""
	for _, c := range clauses(Diagnosis(text)) {
		m := doing.FindStringSubmatch(c)
		if m == nil {
			verb = ""
			continue
		}
		if verb == m[1] || verb != "" && strings.Contains(c, " ") && (m[1] == "open" || m[1] == "stat" || m[1] == "read") && strings.Contains(first, " ") {
			return first, c
		}
		verb, first = m[1], c
	}
	return "", ""
}

// count returns how often a name is in a text as a word of its own.
func count(text, name string) int {
	n := 0
	for at := 0; name != ""; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			break
		}
		before, _ := utf8.DecodeLastRuneInString(text[:at+i])
		after, _ := utf8.DecodeRuneInString(text[at+i+len(name):])
		if !part(before) && !part(after) {
			n++
		}
		at += i + len(name)
	}
	return n
}

// part reports whether a rune next to a name makes it part of a longer one.
func part(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '/' || r == '-')
}
