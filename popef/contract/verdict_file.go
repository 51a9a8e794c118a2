package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// FileName is the name of the file beside generated code that holds the
// package's contract.
const FileName = "contract.txt"

// Published is what callers see of a generated package, or would see of a
// model's.
type Published struct {
	Callers
	// GoNames holds the Go name of every field. It is nil if the names are not
	// known.
	GoNames []string
	// SizeNames holds the Go name of the constant of every member of a family,
	// such as Batch1Seq16. It is nil if the names are not known.
	SizeNames []string
	// Samples says that the package is known to have RunSamples, which takes
	// a slice for every run input and output.
	Samples bool
	// Hidden holds the anchors that callers do not see, if they are known.
	// Findings explain themselves by them; they decide nothing.
	Hidden []Anchor
	// Optimizer is that of a training model with all its numbers, as people write it, see [OptimizerOf]; "" if it is not known. Findings
	// name it; it decides nothing.
	Optimizer string
	// hash1 is the hash of a contract in format 1, "" for every other.
	hash1 string
}

// Published returns what callers would see of the model's package, without Go
// names.
func (c Contract) Published() Published {
	p := Published{Callers: c.Callers()}
	for i := range c.Anchors {
		if c.Anchors[i].Group() == Hidden {
			p.Hidden = append(p.Hidden, c.Anchors[i])
		}
	}
	return p
}

// Hash returns the hash that identifies the contract and of which the pin has
// the first digits.
func (p Published) Hash() string {
	if p.hash1 != "" {
		return p.hash1
	}
	return p.Callers.Hash()
}

// format says what the text's format is; of format 1 two texts may differ in
// what callers do not see.
func (p *Published) format() string {
	if p.hash1 != "" {
		return fmt.Sprintf("1 (hash %.8s)", p.hash1)
	}
	switch {
	case p.Family():
		return "3"
	case p.Branches != nil:
		return "4"
	case p.Trains:
		return "6"
	case p.uneven():
		return "5"
	}
	return "2"
}

// FileText returns the content of contract.txt: the canonical text and behind
// it, in lines that begin with #, its hash, whether the package has RunSamples,
// and the Go name of every field, in their order.
//
//	popefgen contract 2
//	…
//	# hash 46d4026131652f138b540d98c0eeb399b3b5b9be49a89c9d8803c1332d9d41b0
//	# samples
//	# go "image" Image
//
// That of a family also has the hash of all of the text, in a line # text, and the Go
// names of its members, in lines such as # size Batch1Seq16.
func (p Published) FileText() string {
	var b strings.Builder
	text := p.Text()
	b.WriteString(text)
	fmt.Fprintf(&b, "# hash %s\n", p.Callers.Hash())
	if p.Family() {
		fmt.Fprintf(&b, "# text %s\n", hashText(text))
	}
	if p.Samples {
		b.WriteString("# samples\n")
	}
	for i, name := range p.GoNames {
		fmt.Fprintf(&b, "# go %+q %s\n", p.Fields[i].Name, name)
	}
	for _, name := range p.SizeNames {
		fmt.Fprintf(&b, "# size %s\n", name)
	}
	return b.String()
}

// IsFile reports whether data begins like a contract.txt, of this format or an
// older one.
func IsFile(data []byte) bool {
	line, _, _ := strings.Cut(string(data[:min(len(data), len(header)+2)]), "\n")
	line = strings.TrimSuffix(line, "\r")
	return line == header || line == headerFamily || line == headerBranches || line == headerUneven || line == headerTraining || line == headerTrainingFamily || line == header1
}

// ParseFile reads the content of a contract.txt. Line ends may be those of
// Windows, as version control may have changed them. Every other text than
// what [Published.FileText] writes, now or in format 1, is an error that wraps
// [ErrText]; a hash that is not that of the contract is one, too.
func ParseFile(text string) (Published, error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	body, tail := text, ""
	if at := strings.Index(text, "\n#"); at >= 0 {
		body, tail = text[:at+1], text[at+1:]
	}
	var p Published
	var old Contract
	var err error
	first, _, _ := strings.Cut(text, "\n")
	if first == header1 {
		old, err = parse1(body)
		p = old.Published()
	} else {
		p.Callers, err = Parse(body)
	}
	if err != nil {
		return Published{}, err
	}
	number := strings.Count(body, "\n") + 1
	fail := func(format string, args ...any) (Published, error) {
		return Published{}, fmt.Errorf("%w: line %d: %s", ErrText, number, fmt.Sprintf(format, args...))
	}
	rest, ok := strings.CutPrefix(tail, "# hash ")
	hash, rest, end := strings.Cut(rest, "\n")
	if !ok || !end {
		return fail("want the line # hash and the contract's hash")
	}
	const edited = "the hash is %.80q, that of the lines above is %s; generate the package again instead of editing this file"
	want := hashText(body)
	if p.Family() {
		want = p.Callers.Hash()
	}
	if hash != want {
		return fail(edited, hash, want)
	}
	if p.Family() {
		number++
		rest, ok = strings.CutPrefix(rest, "# text ")
		hash, rest, end = strings.Cut(rest, "\n")
		if !ok || !end {
			return fail("want the line # text and the hash of all lines above it")
		}
		if want := hashText(body); hash != want {
			return fail(edited, hash, want)
		}
	}
	if rest, p.Samples = strings.CutPrefix(rest, "# samples\n"); p.Samples {
		number++
	}
	var keys, names []string
	for rest != "" {
		number++
		var line string
		line, rest, end = strings.Cut(rest, "\n")
		if size, ok := strings.CutPrefix(line, "# size "); ok && p.Family() {
			if !end || size == "" || strings.ContainsAny(size, " \t") {
				return fail("found %.80q, want the like of # size Batch1Seq16", line)
			}
			p.SizeNames = append(p.SizeNames, size)
			continue
		}
		quoted, ok := strings.CutPrefix(line, "# go ")
		prefix, err := strconv.QuotedPrefix(quoted)
		if !ok || !end || err != nil {
			return fail("found %.80q, want the like of # go %q Image", line, "image")
		}
		key, err := strconv.Unquote(prefix)
		name, found := strings.CutPrefix(quoted[len(prefix):], " ")
		if err != nil || !found || name == "" || strings.ContainsAny(name, " \t") {
			return fail("found %.80q, want the like of # go %q Image", line, "image")
		}
		keys, names = append(keys, key), append(names, name)
	}
	if first == header1 {
		p.hash1 = hash
		p.goNames1(keys, names)
		return p, nil
	}
	p.GoNames = names
	if names != nil && len(names) != len(p.Fields) {
		return fail("there are %d Go names for %d fields", len(names), len(p.Fields))
	}
	if p.SizeNames != nil && len(p.SizeNames) != len(p.Members) {
		return fail("there are %d Go names for %d sizes", len(p.SizeNames), len(p.Members))
	}
	if p.FileText() != text {
		return fail("the Go names above are out of order or written in another way")
	}
	return p, nil
}

// goNames1 takes the Go names of format 1, which go by stream handle.
func (p *Published) goNames1(handles, names []string) {
	for _, f := range p.Fields {
		i := slices.Index(handles, f.Stream)
		if i < 0 {
			p.GoNames = nil
			return
		}
		p.GoNames = append(p.GoNames, names[i])
	}
}
