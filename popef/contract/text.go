package contract

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// ErrText marks every error by which [Parse] refuses a text.
var ErrText = errors.New("not a canonical contract text")

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

	trains bool // it is the text of a model that trains
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

// elem reads an element type.
func (p *parser) elem() popef.DataType {
	return popef.DataType(p.enumerated("an element type",
		func(v uint16) string { return popef.DataType(v).String() },
		func(v uint16) bool { return popef.DataType(v).Valid() }))
}

// info reads an element type and a shape.
func (p *parser) info() popef.TensorInfo {
	info := popef.TensorInfo{DataType: p.elem()}
	p.word(" ")
	p.list(func() { info.Shape = append(info.Shape, p.dimension()) })
	return info
}
