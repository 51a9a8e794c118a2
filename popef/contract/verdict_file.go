package contract

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// FileName is the name of the file beside generated code that holds the
// package's contract.
const FileName = "contract.txt"

// Published is a contract as a generated package shows it to its callers.
type Published struct {
	Contract
	// GoNames holds the Go name of every tensor that callers see, by stream
	// handle. It is nil if the names are not known.
	GoNames map[string]string
	// Samples says that the package is known to have RunSamples, which takes
	// a slice for every run input and output.
	Samples bool
}

// FileText returns the content of contract.txt: the canonical text, whose hash
// Open checks, and behind it, in lines that begin with #, that hash, whether the
// package has RunSamples, and the Go names in the order of the handles.
//
//	popefgen contract 1
//	replicas 1
//	…
//	# hash 46d4026131652f138b540d98c0eeb399b3b5b9be49a89c9d8803c1332d9d41b0
//	# samples
//	# go "h2d_image" Image
func (p Published) FileText() string {
	var b strings.Builder
	text := p.Text()
	b.WriteString(text)
	fmt.Fprintf(&b, "# hash %s\n", HashText(text))
	if p.Samples {
		b.WriteString("# samples\n")
	}
	for _, handle := range slices.Sorted(maps.Keys(p.GoNames)) {
		fmt.Fprintf(&b, "# go %+q %s\n", handle, p.GoNames[handle])
	}
	return b.String()
}

// IsFile reports whether data begins like a contract.txt.
func IsFile(data []byte) bool {
	line, _, _ := strings.Cut(string(data[:min(len(data), len(header)+2)]), "\n")
	return strings.TrimSuffix(line, "\r") == header
}

// ParseFile reads the content of a contract.txt. Line ends may be those of
// Windows, as version control may have changed them. Every other text than
// what [Published.FileText] writes is an error that wraps [ErrText]; a hash
// that is not that of the contract is one, too.
func ParseFile(text string) (Published, error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	body, tail := text, ""
	if at := strings.Index(text, "\n#"); at >= 0 {
		body, tail = text[:at+1], text[at+1:]
	}
	c, err := Parse(body)
	if err != nil {
		return Published{}, err
	}
	p := Published{Contract: c}
	number := strings.Count(body, "\n") + 1
	fail := func(format string, args ...any) (Published, error) {
		return Published{}, fmt.Errorf("%w: line %d: %s", ErrText, number, fmt.Sprintf(format, args...))
	}
	rest, ok := strings.CutPrefix(tail, "# hash ")
	hash, rest, end := strings.Cut(rest, "\n")
	if !ok || !end {
		return fail("want the line # hash and the contract's hash")
	}
	if want := HashText(body); hash != want {
		return fail("the hash is %.80q, that of the lines above is %s; generate the package again instead of editing this file", hash, want)
	}
	if rest, p.Samples = strings.CutPrefix(rest, "# samples\n"); p.Samples {
		number++
	}
	for rest != "" {
		number++
		var line string
		line, rest, end = strings.Cut(rest, "\n")
		quoted, ok := strings.CutPrefix(line, "# go ")
		prefix, err := strconv.QuotedPrefix(quoted)
		if !ok || !end || err != nil {
			return fail("found %.80q, want the like of # go %q Image", line, "h2d_image")
		}
		handle, err := strconv.Unquote(prefix)
		name, found := strings.CutPrefix(quoted[len(prefix):], " ")
		if err != nil || !found || name == "" || strings.ContainsAny(name, " \t") {
			return fail("found %.80q, want the like of # go %q Image", line, "h2d_image")
		}
		if p.GoNames == nil {
			p.GoNames = map[string]string{}
		}
		p.GoNames[handle] = name
	}
	if p.FileText() != text {
		return fail("the Go names above are out of order or written in another way")
	}
	return p, nil
}
