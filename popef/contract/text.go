package contract

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// header is the first line of the canonical text.
const header = "popefgen contract 1"

// Text returns the canonical text: the header, one line for each general
// fact, one line for each anchor, in a fixed order. Two contracts are the same
// if and only if their texts are. Names are quoted as Go strings in ASCII, so
// that the text does not depend on which characters a Go release considers
// printable.
//
//	popefgen contract 1
//	replicas 1
//	ipus 1
//	iterations 1
//	seed ""
//	load 0
//	main 5
//	save
//	anchor "image" input F32 [4 1 28 28] handle "h2d_image" programs [5]
//	anchor "w" input F16 [10] handle "h2d_w" programs [0] per-replica remote repeats 2 data
func (c Contract) Text() string {
	var b strings.Builder
	b.WriteString(header + "\n")
	for _, n := range []struct {
		key   string
		value uint32
	}{{"replicas", c.Replicas}, {"ipus", c.IPUs}, {"iterations", c.Iterations}} {
		fmt.Fprintf(&b, "%s %d\n", n.key, n.value)
	}
	b.WriteString("seed " + strconv.QuoteToASCII(c.SeedHandle) + "\n")
	for _, f := range []struct {
		key      string
		programs []uint32
	}{{"load", c.Flow.Load}, {"main", c.Flow.Main}, {"save", c.Flow.Save}} {
		b.WriteString(f.key)
		for _, p := range f.programs {
			b.WriteString(" " + strconv.FormatUint(uint64(p), 10))
		}
		b.WriteByte('\n')
	}
	for i := range c.Anchors {
		b.WriteString(c.Anchors[i].line())
		b.WriteByte('\n')
	}
	return b.String()
}

// line returns the anchor's line of the text, without the newline.
func (a *Anchor) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "anchor %+q %v %v handle %+q programs %d", a.Name, a.Type, a.Info, a.Handle, a.Programs)
	if a.PerReplica {
		b.WriteString(" per-replica")
	}
	if a.RemoteBuffer {
		b.WriteString(" remote")
	}
	if a.Repeats != 1 {
		fmt.Fprintf(&b, " repeats %d", a.Repeats)
	}
	if a.HasData {
		b.WriteString(" data")
	}
	return b.String()
}

// ErrText marks every error by which [Parse] refuses a text.
var ErrText = errors.New("not a canonical contract text")

// Parse reads a canonical text. It accepts exactly what [Contract.Text]
// writes; every other text is an error that wraps [ErrText] and names the line.
func Parse(text string) (Contract, error) {
	p := parser{rest: text, line: 1}
	var c Contract
	p.word(header)
	p.newline()
	for _, n := range []struct {
		key   string
		value *uint32
	}{{"replicas ", &c.Replicas}, {"ipus ", &c.IPUs}, {"iterations ", &c.Iterations}} {
		p.word(n.key)
		*n.value = p.number()
		p.newline()
	}
	p.word("seed ")
	c.SeedHandle = p.quoted()
	p.newline()
	for _, f := range []struct {
		key      string
		programs *[]uint32
	}{{"load", &c.Flow.Load}, {"main", &c.Flow.Main}, {"save", &c.Flow.Save}} {
		p.word(f.key)
		for p.skip(" ") {
			*f.programs = append(*f.programs, p.number())
		}
		p.newline()
	}
	for p.err == nil && p.rest != "" {
		c.Anchors = append(c.Anchors, p.anchor())
		p.newline()
	}
	if p.err != nil {
		return Contract{}, p.err
	}
	c.canonical()
	if at := differs(c.Text(), text); at > 0 {
		return Contract{}, fmt.Errorf("%w: line %d: out of order or written in another way", ErrText, at)
	}
	return c, nil
}

// differs returns the first line, from 1, at which two texts differ, 0 if
// they don't.
func differs(a, b string) int {
	if a == b {
		return 0
	}
	line := 1
	for i := 0; i < min(len(a), len(b)) && a[i] == b[i]; i++ {
		if a[i] == '\n' {
			line++
		}
	}
	return line
}

// parser reads a text from its start. After the first error every method
// returns a zero value.
type parser struct {
	rest string
	line int
	err  error
}

func (p *parser) fail(want string) {
	if p.err != nil {
		return
	}
	found, _, _ := strings.Cut(p.rest, "\n")
	if len(found) > 40 {
		found = found[:40] + "…"
	}
	p.err = fmt.Errorf("%w: line %d: found %q, want %s", ErrText, p.line, found, want)
	p.rest = ""
}

// skip consumes s if it comes next.
func (p *parser) skip(s string) bool {
	rest, ok := strings.CutPrefix(p.rest, s)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *parser) word(s string) {
	if !p.skip(s) {
		p.fail(strconv.Quote(s))
	}
}

func (p *parser) newline() {
	if !p.skip("\n") {
		p.fail("the end of the line")
		return
	}
	p.line++
}

func (p *parser) number() uint32 {
	v, err := strconv.ParseUint(p.digits(), 10, 32)
	if err != nil {
		p.fail("a number below 2^32")
	}
	return uint32(v)
}

// digits consumes decimal digits.
func (p *parser) digits() string {
	n := 0
	for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
		n++
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

// dimension reads a dimension; a damaged file may have negative ones.
func (p *parser) dimension() int64 {
	sign := ""
	if p.skip("-") {
		sign = "-"
	}
	v, err := strconv.ParseInt(sign+p.digits(), 10, 64)
	if err != nil {
		p.fail("a dimension")
	}
	return v
}

func (p *parser) quoted() string {
	prefix, err := strconv.QuotedPrefix(p.rest)
	if err != nil {
		p.fail("a quoted string")
		return ""
	}
	s, err := strconv.Unquote(prefix)
	if err != nil {
		p.fail("a quoted string")
		return ""
	}
	p.rest = p.rest[len(prefix):]
	return s
}

// list reads numbers in brackets with read.
func (p *parser) list(read func()) {
	p.word("[")
	for p.err == nil && !p.skip("]") {
		read()
		if !strings.HasPrefix(p.rest, "]") {
			p.word(" ")
		}
	}
}

// enumerated reads a name of a value of an enumeration, or the form that its
// String gives a value it does not know, such as "DataType(99)".
func (p *parser) enumerated(what string, name func(uint16) string, valid func(uint16) bool) uint16 {
	word := p.rest
	if n := strings.IndexAny(word, " \n"); n >= 0 {
		word = word[:n]
	}
	for v := uint16(0); valid(v); v++ {
		if name(v) == word {
			p.rest = p.rest[len(word):]
			return v
		}
	}
	if open := strings.IndexByte(word, '('); open > 0 {
		v, err := strconv.ParseUint(strings.TrimSuffix(word[open+1:], ")"), 10, 16)
		if err == nil && name(uint16(v)) == word {
			p.rest = p.rest[len(word):]
			return uint16(v)
		}
	}
	p.fail(what)
	return 0
}

func (p *parser) anchor() Anchor {
	var a Anchor
	p.word("anchor ")
	a.Name = p.quoted()
	p.word(" ")
	a.Type = popef.TensorType(p.enumerated("a direction",
		func(v uint16) string { return popef.TensorType(v).String() },
		func(v uint16) bool { return popef.TensorType(v).Valid() }))
	p.word(" ")
	a.Info.DataType = popef.DataType(p.enumerated("an element type",
		func(v uint16) string { return popef.DataType(v).String() },
		func(v uint16) bool { return popef.DataType(v).Valid() }))
	p.word(" ")
	p.list(func() { a.Info.Shape = append(a.Info.Shape, p.dimension()) })
	p.word(" handle ")
	a.Handle = p.quoted()
	p.word(" programs ")
	p.list(func() { a.Programs = append(a.Programs, p.number()) })
	a.PerReplica = p.skip(" per-replica")
	a.RemoteBuffer = p.skip(" remote")
	a.Repeats = 1
	if p.skip(" repeats ") {
		a.Repeats = p.number()
	}
	a.HasData = p.skip(" data")
	return a
}
