package contract

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/popef/family"
)

// Bounds on what a text may say of sizes, those of package family.
const (
	maxSize   = 1 << 40
	maxFactor = 1 << 20
)

// bareName returns the name of a dimension that stands without quotes at the
// beginning of s: a letter or _, then letters, digits, _ and dots; "" if there
// is none. Regular expressions would be half a megabyte in every program that
// runs a model.
func bareName(s string) string {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || c != '.' && (c < '0' || c > '9')) {
			return s[:i]
		}
	}
	return s
}

// dimName returns the name of a dimension as texts have it.
func dimName(name string) string {
	if name != "" && bareName(name) == name {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// dimsLine returns the line of the open dimensions, with its newline; "" if
// there are none.
func (c *Callers) dimsLine() string {
	return namesLine("dims", c.Dims)
}

func namesLine(word string, dims []Dim) string {
	if len(dims) == 0 {
		return ""
	}
	s := word
	for _, d := range dims {
		s += " " + dimName(d.Name)
	}
	return s + "\n"
}

// membersText returns what is not in the hash: padding and members.
func (c *Callers) membersText() string {
	var b strings.Builder
	b.WriteString(namesLine("rows", slices.DeleteFunc(slices.Clone(c.Dims), func(d Dim) bool { return !d.Rows })))
	for _, d := range c.Dims {
		for _, p := range d.Pads {
			fmt.Fprintf(&b, "pad %s %+q %+q\n", dimName(d.Name), p.Input, p.Value)
		}
	}
	if len(c.Dims) == 0 && c.loose() == 0 {
		return b.String() // one member, of which there is nothing to say
	}
	for i := range c.Members {
		b.WriteString("member" + c.Members[i].text() + "\n")
	}
	return b.String()
}

// text returns the sizes of a member, a space before each.
func (m *Member) text() string {
	s := ""
	for _, n := range m.Sizes {
		s += fmt.Sprintf(" %d", n)
	}
	if len(m.Loose) > 0 {
		s += " loose"
	}
	for _, n := range m.Loose {
		s += fmt.Sprintf(" %d", n)
	}
	return s
}

// loose returns how many axes follow from no single dimension.
func (c *Callers) loose() int {
	n := 0
	for i := range c.Fields {
		for _, a := range c.Fields[i].Axes {
			if a.Loose >= 0 {
				n++
			}
		}
	}
	return n
}

// InfoText returns the type and shape of a field, with the names of its open
// dimensions, as in the text: "S64 [batch 16]".
func (c *Callers) InfoText(field int) string { return c.info(&c.Fields[field]) }

// info returns element type and shape of a field.
func (c *Callers) info(f *Field) string {
	if f.Axes == nil {
		return f.Info.String()
	}
	return fmt.Sprintf("%v %s", f.Info.DataType, c.shapeText(f))
}

// ShapeText returns the shape of a field, by index, as it stands in the canonical
// text: with the names of open dimensions, such as [batch 128].
func (c Callers) ShapeText(field int) string { return c.shapeText(&c.Fields[field]) }

// shapeText returns the shape of a field, such as [batch 128].
func (c *Callers) shapeText(f *Field) string {
	if f.Axes == nil {
		return fmt.Sprint(f.Info.Shape)
	}
	parts := make([]string, len(f.Axes))
	for i := range f.Axes {
		parts[i] = c.axisText(&f.Axes[i])
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// axisText returns the length of an axis as it stands in a shape.
func (c *Callers) axisText(a *Axis) string {
	s := ""
	switch {
	case a.Loose >= 0:
		s = "?"
	case a.Dim < 0:
		s = strconv.FormatInt(a.Size, 10)
	default:
		s = dimName(c.Dims[a.Dim].Name)
		if a.Mul != 1 {
			s = fmt.Sprintf("%d*%s", a.Mul, s)
		}
		if a.Add != 0 {
			s += fmt.Sprintf("%+d", a.Add)
		}
		if a.Div != 1 && (a.Mul != 1 || a.Add != 0) {
			s = "(" + s + ")"
		}
		if a.Div != 1 {
			s += fmt.Sprintf("/%d", a.Div)
		}
	}
	if a.Counted {
		s = "<=" + s
	}
	return s
}

// family reads what follows the device iterations in the text of a family.
func (p *parser) family(c *Callers) {
	dims := map[string]int{}
	if p.skip("dims") {
		for p.skip(" ") {
			name := p.dimName()
			if _, twice := dims[name]; twice {
				p.fail("every dimension once")
			}
			dims[name] = len(c.Dims)
			c.Dims = append(c.Dims, Dim{Name: name})
		}
		p.newline()
	}
	loose := 0
	for p.err == nil && slices.ContainsFunc(groupWords[Inputs:], func(w string) bool { return strings.HasPrefix(p.rest, w+" ") }) {
		c.Fields = append(c.Fields, p.field(func(f *Field) { f.Axes = append(f.Axes, p.axis(dims, &loose)) }))
		p.newline()
	}
	if p.skip("rows") {
		for p.skip(" ") {
			if i, ok := p.dim(dims); ok {
				c.Dims[i].Rows = true
			}
		}
		p.newline()
	}
	for p.skip("pad ") {
		i, ok := p.dim(dims)
		p.word(" ")
		input := p.quoted()
		p.word(" ")
		value := p.quoted()
		if ok {
			c.Dims[i].Pads = append(c.Dims[i].Pads, family.Pad{Input: input, Value: value})
		}
		p.newline()
	}
	if len(c.Dims) == 0 && loose == 0 {
		c.Members = []Member{{Index: -1}}
	} else {
		p.members(c, loose)
	}
	if p.err == nil && p.rest != "" {
		p.fail("a field, rows, pad or member, in this order")
	}
	if p.err == nil {
		p.settle(c)
	}
}

// members reads the lines of the members.
func (p *parser) members(c *Callers, loose int) {
	for p.skip("member") {
		m := Member{Index: -1}
		for range c.Dims {
			m.Sizes = append(m.Sizes, p.size())
		}
		if loose > 0 {
			p.word(" loose")
		}
		for range loose {
			m.Loose = append(m.Loose, p.size())
		}
		if n := len(c.Members); n > 0 && (slices.Compare(c.Members[n-1].Sizes, m.Sizes) > 0 ||
			slices.Equal(c.Members[n-1].Sizes, m.Sizes) && (len(c.Dims) > 0 || slices.Compare(c.Members[n-1].Loose, m.Loose) >= 0)) {
			p.fail("members in ascending order, every size once")
		}
		c.Members = append(c.Members, m)
		p.newline()
	}
	if len(c.Members) == 0 {
		p.fail("a member")
	}
}

// settle checks what a family of the text is, and completes its fields.
func (p *parser) settle(c *Callers) {
	if !c.Family() {
		p.err = fmt.Errorf("%w: neither a dimension nor a length is open, as format 3 wants", ErrText)
		return
	}
	for i := range c.Dims {
		pads := c.Dims[i].Pads
		for k := 1; k < len(pads); k++ {
			if cmp.Compare(pads[k-1].Input, pads[k].Input) >= 0 {
				p.err = fmt.Errorf("%w: padding of %q: out of order", ErrText, pads[k].Input)
				return
			}
		}
	}
	for i := range c.Fields {
		for k := range c.Fields[i].Axes {
			for m := range c.Members {
				if a := &c.Fields[i].Axes[k]; a.open() && a.in(&c.Members[m]) < 0 {
					p.err = fmt.Errorf("%w: axis %d of %q is smaller than nothing in member%s", ErrText, k, c.Fields[i].Name, c.Members[m].text())
					return
				}
			}
		}
	}
	c.shapes()
}

// size reads a space and a size.
func (p *parser) size() int64 {
	p.word(" ")
	n := p.dimension()
	if n < 0 || n > maxSize {
		p.fail("sizes from 0 to 2^40")
	}
	return n
}

// dimName reads the name of a dimension.
func (p *parser) dimName() string {
	if strings.HasPrefix(p.rest, `"`) {
		return p.quoted()
	}
	name := bareName(p.rest)
	if name == "" {
		p.fail("the name of a dimension")
	}
	p.rest = p.rest[len(name):]
	return name
}

// dim reads the name of a dimension that there is, and returns its index.
func (p *parser) dim(dims map[string]int) (int, bool) {
	name := p.dimName()
	i, ok := dims[name]
	if !ok {
		p.fail(fmt.Sprintf("a dimension of the line dims in the place of %.40q", name))
	}
	return i, ok
}

// axis reads one axis of a shape; loose counts those of them that follow from no
// single dimension.
func (p *parser) axis(dims map[string]int, loose *int) Axis {
	a := Axis{Dim: -1, Loose: -1, Counted: p.skip("<=")}
	if p.skip("?") {
		a.Loose = *loose
		*loose++
		return a
	}
	paren := p.skip("(")
	mul := int64(1)
	if !paren && strings.HasPrefix(p.rest, "-") || p.rest != "" && p.rest[0] >= '0' && p.rest[0] <= '9' {
		mul = p.dimension()
		if !p.skip("*") {
			if paren {
				p.fail("*")
			}
			a.Size = mul
			return a
		}
	}
	a.Mul, a.Div = mul, 1
	a.Dim, _ = p.dim(dims)
	if strings.HasPrefix(p.rest, "+") || strings.HasPrefix(p.rest, "-") {
		p.skip("+")
		a.Add = p.dimension()
	}
	if paren {
		p.word(")")
	}
	if p.skip("/") {
		a.Div = p.dimension()
	}
	if a.Mul < 1 || a.Mul > maxFactor || a.Div < 1 || a.Div > maxFactor || a.Add < -maxSize || a.Add > maxSize {
		p.fail("factors of 1 to 2^20 and addends of at most 2^40")
	}
	return a
}
