package plan

import (
	"fmt"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/popefgen/popefgen/internal/printable"
)

// maxIdent bounds a Go identifier made from an anchor name, in runes. Anchor
// names come from a file and have no limit of their own.
const maxIdent = 96

// goName makes an exported Go identifier from any string: every run of
// letters and digits becomes a word with a capital first letter, everything
// else, letters that show nothing included (the fillers of Hangul), separates
// words. An underscore stays only between two digits that
// would otherwise run together ("infeed_0.10" is Infeed0_10). What does not
// start with an upper-case letter gets the prefix "X". The result is empty
// if s has no letter and no digit.
func goName(s string) string {
	var b strings.Builder
	var last rune
	runes, start := 0, true
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r) || printable.Hidden(r) {
			start = true
			continue
		}
		if runes >= maxIdent {
			break
		}
		if start {
			if unicode.IsDigit(last) && unicode.IsDigit(r) {
				if runes+1 >= maxIdent {
					break
				}
				b.WriteByte('_')
				runes++
			}
			r = unicode.ToUpper(r)
			if runes == 0 && !unicode.IsUpper(r) {
				b.WriteByte('X')
				runes++
			}
			start = false
		}
		b.WriteRune(r)
		runes++
		last = r
	}
	return b.String()
}

// PackageName makes a package name from the base name of a model or a folder: the lower-case
// ASCII letters and digits of everything before the first extension. A name
// that could not be imported or would read as a keyword or a predeclared
// identifier gets "model" in front.
func PackageName(base string, d *Declared) string {
	stem, _, _ := strings.Cut(base, ".")
	var b strings.Builder
	for _, r := range strings.ToLower(stem) {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) && b.Len() < maxIdent {
			b.WriteRune(r)
		}
	}
	name := b.String()
	if name == "" || unicode.IsDigit(rune(name[0])) || name == "main" || token.IsKeyword(name) || predeclared(name) || d.imports(name) {
		name = "model" + name
	}
	return name
}

// predeclared reports whether name is one of Go's predeclared identifiers
// that a package name should not shadow in the files that import it.
func predeclared(name string) bool {
	switch name {
	case "any", "bool", "byte", "comparable", "complex64", "complex128", "error", "float32", "float64",
		"int", "int8", "int16", "int32", "int64", "rune", "string",
		"uint", "uint8", "uint16", "uint32", "uint64", "uintptr",
		"true", "false", "iota", "nil", "init",
		"append", "cap", "clear", "close", "complex", "copy", "delete", "imag", "len",
		"make", "max", "min", "new", "panic", "print", "println", "real", "recover":
		return true
	}
	return false
}

// checkPackage returns why name can't be the name of a generated package.
func checkPackage(name string, d *Declared) error {
	switch {
	case !token.IsIdentifier(name):
		return fmt.Errorf("package name %q: not a Go identifier; choose a name of letters and digits with -p", name)
	case strings.ContainsFunc(name, printable.Hidden):
		return fmt.Errorf("package name %q: it has characters that nobody sees", name)
	case name == "_" || name == "main" || name == "init":
		return fmt.Errorf("package name %q: a package of that name can't be imported", name)
	case strings.HasSuffix(name, "_test"):
		return fmt.Errorf("package name %q: the ending _test is reserved for tests", name)
	case predeclared(name) || d.imports(name):
		return fmt.Errorf("package name %q: it would hide what the generated code uses; choose another with -p", name)
	}
	return nil
}

// names is the table of the package's identifiers, filled once per plan.
type names struct {
	owner    map[string]string // identifier to its owner, for messages
	wished   map[string]bool   // names that some tensor would like to have
	next     map[string]int    // the first suffix of a name that may be free
	families []string          // what a tensor declares, its name being %s
}

// newNames returns a table that holds what generated files declare themselves.
// pin is the name of the contract constant.
func newNames(d *Declared, pin string, kind Kind, extras []string) *names {
	n := &names{owner: map[string]string{pin: "the generated package itself"}, wished: map[string]bool{}, next: map[string]int{}, families: []string{"%s"}}
	if d != nil {
		maps.Copy(n.owner, d.Owners)
		for _, e := range extras {
			maps.Copy(n.owner, d.Extra[e])
		}
		n.families = d.Tensors[kind]
	}
	return n
}

// family returns the identifiers that a tensor named name may declare.
func (n *names) family(name string) []string {
	ids := make([]string, len(n.families))
	for i, f := range n.families {
		ids[i] = strings.Replace(f, "%s", name, 1)
	}
	return ids
}

// holder returns who has one of the identifiers that name needs, or "".
func (n *names) holder(name string) string {
	for _, id := range n.family(name) {
		if who := n.owner[id]; who != "" {
			return who
		}
	}
	return ""
}

// take gives name to owner.
func (n *names) take(name, owner string) {
	for _, id := range n.family(name) {
		n.owner[id] = owner
	}
}

// suffixed returns name with the first numeric suffix, from 2, that makes it
// free and that no other tensor asks for.
func (n *names) suffixed(name string) string {
	if last, _ := utf8.DecodeLastRuneInString(name); unicode.IsDigit(last) {
		name += "_"
	}
	// A name that was not free before is not free now.
	for i := max(2, n.next[name]); ; i++ {
		c := name + strconv.Itoa(i)
		if !n.wished[c] && n.holder(c) == "" {
			n.next[name] = i
			return c
		}
	}
}

// name gives every tensor its Go identifiers: the caller's names first, then
// names made from the anchors in the file's order. A name that is taken gets
// the first free number behind it.
func (b *builder) name() {
	p := &b.plan
	n := newNames(b.declared, p.Pin, p.kind(), p.Extras())
	if p.Family != nil {
		for _, m := range p.Family.Members {
			if who := n.owner[m.Name]; who != "" {
				b.problem("size %v: the name %s of its constant is taken by %s; call the dimension otherwise", m.Sizes, m.Name, who)
			}
			n.owner[m.Name] = fmt.Sprintf("the constant of size %v", m.Sizes)
		}
	}
	if p.Contract.Trains { // a method of the structs that have tensors as fields
		n.owner["All"] = "the generated package itself"
	}
	b.branchNames(n)
	for i := range p.Tensors {
		t, name := &p.Tensors[i], b.renamed[i]
		if name == "" {
			continue
		}
		if who := n.holder(name); who != "" {
			b.problem("rename %q: the name %s is taken by %s; choose another", t.Anchor, name, who)
			continue
		}
		n.take(name, fmt.Sprintf("the rename of %q", t.Anchor))
		t.setName(name)
	}
	wishes := make([]string, len(p.Tensors))
	for i, t := range p.Tensors {
		if t.Name == "" {
			wishes[i] = b.wish(i)
			n.wished[wishes[i]] = true
		}
	}
	for i := range p.Tensors {
		t, name := &p.Tensors[i], wishes[i]
		if t.Name != "" {
			continue
		}
		if n.holder(name) != "" {
			name = n.suffixed(name)
		}
		n.take(name, fmt.Sprintf("%q", t.Anchor))
		t.setName(name)
	}
}

// wish returns the name that tensor t would have if it were alone.
func (b *builder) wish(t int) string {
	if name := goName(b.plan.Tensors[t].Anchor); name != "" {
		return name
	}
	if name := goName(b.metas[slices.Index(b.tensor, t)].Handle); name != "" {
		return name
	}
	return "Tensor"
}

func (t *Tensor) setName(name string) {
	t.Name, t.From, t.NameConst = name, name+"From", "Anchor"+name
	if t.IsOpen() {
		t.New = "New" + name
	}
	if t.Blocks > 0 {
		t.Sample = name + "Sample"
	}
}
