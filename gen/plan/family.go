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

	"github.com/popefgen/popefgen/popef/contract"
)

// Family is what a package of a model with several sizes has and one of a single
// size has not. A model of which only data decides sizes has a family without dimensions
// and members.
type Family struct {
	Dims    []Dim    // open dimensions, in the order in which callers give them
	Members []Member // constants of the type Size, in the contract's order
	Padded  bool     // requests smaller than a member may be padded along one dimension or more
	Example []int64  // sizes for examples: those of the first member
}

// Dim is an open dimension.
type Dim struct {
	Name   string // in the model
	GoName string // of fields and methods
	Param  string // of parameters
	Doc    string // what is allowed along it
	Padded bool   // requests smaller than a member may be padded along it
}

// Member is a size that the model was compiled for.
type Member struct {
	Name  string  // of its constant
	Sizes []int64 // by dimension
}

// SizeField is a field of a tensor's type that has the length of an axis, or of several.
type SizeField struct {
	Name  string
	Param string // of the constructor
	// How NewInputs gets it: ⌊(Mul·dim+Add)/Div⌋, where Dim is an index in [Family.Dims]; -1 if it
	// follows from none.
	Dim           int
	Mul, Add, Div int64
}

// Same reports whether the field has the size of the dimension itself.
func (f *SizeField) Same() bool { return f.Dim >= 0 && f.Mul == 1 && f.Add == 0 && f.Div == 1 }

// Length is the length of a leading axis of a tensor with open dimensions: that in a
// field, or a number.
type Length struct {
	Field int // index in [Tensor.Fields], -1 for a number
	Size  int64
}

// OpenAxis is an open axis of a tensor.
type OpenAxis struct{ Axis, Field int }

// IsOpen reports whether the type has fields for sizes.
func (t *Tensor) IsOpen() bool { return len(t.Fields) > 0 }

// family decides the names of dimensions and members.
func (b *builder) family() {
	p := &b.plan
	if !p.Contract.Family() {
		return
	}
	f := &Family{}
	p.Family = f
	if b.opts.Pack != nil {
		b.problem("pack: the model has several sizes, and sequences are packed into the rows of one; compile it with one size of each dimension")
		b.opts.Pack = nil
	}
	if p.DeviceIterations > 1 {
		b.problem("%d device iterations: a package of several sizes makes one run at a time; compile the model with --iterations 1", p.DeviceIterations)
	}
	b.sizes, b.params, b.rules = map[string]bool{}, map[string]string{}, map[SizeField]string{}
	for i, d := range p.Contract.Dims {
		name := b.sizeName(d.Name, fmt.Sprintf("Dim%d", i), b.sizes)
		dim := Dim{Name: d.Name, GoName: name, Param: b.param(name), Padded: d.Rows || len(d.Pads) > 0}
		switch {
		case d.Rows:
			dim.Doc = "Requests of fewer are computed by a larger size: what stands along it does not depend on each other."
		case dim.Padded:
			dim.Doc = "Requests of fewer are padded."
		default:
			dim.Doc = "Requests must have a size that there is."
		}
		f.Padded = f.Padded || dim.Padded
		f.Dims = append(f.Dims, dim)
		b.rules[SizeField{Dim: i, Mul: 1, Div: 1}] = name
	}
	for _, field := range p.Contract.Fields {
		for _, a := range field.Axes {
			if rule := ruleOf(&a); a.Dim >= 0 && !a.Counted && b.rules[rule] == "" {
				b.rules[rule] = b.sizeName(rule.derived(f.Dims[a.Dim].GoName), "", b.sizes)
			}
		}
	}
	if len(f.Dims) == 0 {
		return
	}
	for _, m := range p.Contract.Members {
		name := ""
		for d, n := range m.Sizes {
			if last, _ := utf8.DecodeLastRuneInString(f.Dims[d].GoName); unicode.IsDigit(last) {
				name += f.Dims[d].GoName + "_" + strconv.FormatInt(n, 10)
			} else {
				name += f.Dims[d].GoName + strconv.FormatInt(n, 10)
			}
		}
		f.Members = append(f.Members, Member{name, m.Sizes})
	}
	f.Example = f.Members[0].Sizes
}

// ruleOf returns what the length of an axis follows from.
func ruleOf(a *contract.Axis) SizeField {
	return SizeField{Dim: a.Dim, Mul: a.Mul, Add: a.Add, Div: a.Div}
}

// derived returns the name of a length that follows from a dimension of that name and is not its
// size: (seq+1)/2 is SeqPlus1Over2. A field that is called as a dimension has the dimension's size in
// every type.
func (f *SizeField) derived(dim string) string {
	if f.Mul != 1 {
		dim += fmt.Sprintf("Times%d", f.Mul)
	}
	switch {
	case f.Add > 0:
		dim += fmt.Sprintf("Plus%d", f.Add)
	case f.Add < 0:
		dim += fmt.Sprintf("Minus%d", -f.Add)
	}
	if f.Div != 1 {
		dim += fmt.Sprintf("Over%d", f.Div)
	}
	return dim
}

// sizeName returns the Go name of a size: that of its dimension in the model, unless
// generated code uses it for something else.
func (b *builder) sizeName(name, otherwise string, taken map[string]bool) string {
	out := goName(name)
	if out == "" {
		out = otherwise
	}
	if b.declared.uses(out) {
		out += "Dim"
	}
	if taken[out] {
		if last, _ := utf8.DecodeLastRuneInString(out); unicode.IsDigit(last) {
			out += "_"
		}
		i := 2
		for taken[out+strconv.Itoa(i)] {
			i++
		}
		out += strconv.Itoa(i)
	}
	taken[out] = true
	return out
}

// param returns the name of a parameter with the size of that Go name: another one for
// each.
func (b *builder) param(name string) string {
	r, n := utf8.DecodeRuneInString(name)
	out := string(unicode.ToLower(r)) + name[n:]
	for prefix := "n"; ; prefix += "n" {
		who, taken := b.params[out]
		if token.IsIdentifier(out) && !token.IsExported(out) && !predeclared(out) && !b.declared.uses(out) && !b.declared.imports(out) && (!taken || who == name) {
			b.params[out] = name
			return out
		}
		out = prefix + name
	}
}

// open makes t the type of a tensor with open dimensions.
func (b *builder) open(t *Tensor, field *contract.Field) {
	taken := maps.Clone(b.sizes) // what is called as a dimension has its size, in every type
	last := 0
	rules := map[SizeField]int{} // fields by what they follow from
	for i := range field.Axes {
		a := &field.Axes[i]
		if a.Dim < 0 && a.Loose < 0 && !a.Counted {
			continue
		}
		last = i
		rule := ruleOf(a)
		k, ok := rules[rule]
		if !ok || a.Dim < 0 || a.Counted {
			k = len(t.Fields)
			name := ""
			switch {
			case a.Dim >= 0 && !a.Counted:
				name = b.rules[rule]
			case a.Counted:
				name = b.sizeName("Count", "", taken)
			default:
				name = b.sizeName(fmt.Sprintf("Dim%d", i), "", taken)
			}
			f := rule
			f.Name, f.Param = name, b.param(name)
			t.Fields = append(t.Fields, f)
			if !a.Counted {
				rules[rule] = k
			}
		}
		t.Open = append(t.Open, OpenAxis{i, k})
	}
	for i := range last + 1 {
		l := Length{Field: -1, Size: field.Axes[i].Size}
		if at := slices.IndexFunc(t.Open, func(o OpenAxis) bool { return o.Axis == i }); at >= 0 {
			l = Length{Field: t.Open[at].Field}
		}
		t.Lead = append(t.Lead, l)
	}
	t.Shape = nil
	t.Elements = 1
	for _, a := range field.Axes[last+1:] {
		t.Shape = append(t.Shape, a.Size)
		t.Elements *= a.Size
	}
}

// openInputs refuses inputs whose sizes callers could not know.
func (b *builder) openInputs() {
	p := &b.plan
	if p.Family == nil {
		return
	}
	given := make([]bool, len(p.Family.Dims))
	for i, a := range p.Anchors {
		if a.Role != contract.RunInput {
			continue
		}
		for _, x := range p.Contract.Fields[i].Axes {
			switch {
			case x.Loose >= 0 || x.Counted:
				b.problem("anchor %q: %s: the length of an input must follow from an open dimension", a.Name, a.Info)
			case x.Dim >= 0 && x.Mul == 1 && x.Add == 0 && x.Div == 1:
				given[x.Dim] = true
			}
		}
	}
	for d, ok := range given {
		if !ok {
			b.problem("open dimension %q: it is the length of no input, so that no request says what it is", p.Family.Dims[d].Name)
		}
	}
}

// maxBatch is the largest member of which samples are told apart, as package genrt opens them.
const maxBatch = 1 << 20

// familySamples finds the dimension that counts samples: the only open one, if its rows were
// proven independent and every run input and output contains it once.
func (b *builder) familySamples() {
	p, why := &b.plan, ""
	batch := -1
	c := &p.Contract
	switch {
	case len(c.Dims) == 0:
		why = "no dimension is open"
	case len(c.Dims) > 1:
		why = fmt.Sprintf("%d dimensions are open, and samples differ in one alone", len(c.Dims))
	case slices.ContainsFunc(c.Members, func(m contract.Member) bool { return m.Sizes[0] > maxBatch }):
		why = fmt.Sprintf("a size of dimension %q is more than %d", c.Dims[0].Name, maxBatch)
	case !c.Dims[0].Rows:
		why = fmt.Sprintf("that rows along dimension %q are independent of each other was not proven when the model was compiled", c.Dims[0].Name)
	}
	blocks := make([]int, len(p.Anchors))
	for i, a := range p.Anchors {
		if why != "" || a.Role != contract.RunInput && a.Role != contract.RunOutput {
			continue
		}
		t := &p.Tensors[b.tensor[i]]
		if len(t.Open) != 1 || !t.Fields[0].Same() || c.Fields[i].Axes[t.Open[0].Axis].Counted {
			why = fmt.Sprintf("anchor %q: %s has dimension %q not just once", a.Name, a.Info, c.Dims[0].Name)
			continue
		}
		blocks[i] = t.Open[0].Axis
		if batch < 0 {
			batch = blocks[i]
		}
		for _, l := range t.Lead[:blocks[i]] {
			if l.Size != 1 {
				why = fmt.Sprintf("anchor %q: %s: the samples of a tensor do not lie one after the other", a.Name, a.Info)
			}
		}
		if b.opts.BatchDim != nil && *b.opts.BatchDim != blocks[i] {
			why = fmt.Sprintf("anchor %q: %s has open dimension %d", a.Name, a.Info, blocks[i])
		}
	}
	if why != "" {
		if b.opts.BatchDim != nil {
			b.problem("batch dimension %d: %s", *b.opts.BatchDim, why)
		}
		return
	}
	for _, m := range c.Members {
		p.BatchSize = max(p.BatchSize, m.Sizes[0])
	}
	if p.BatchSize == 0 {
		return
	}
	for i, a := range p.Anchors {
		if a.Role == contract.RunInput || a.Role == contract.RunOutput {
			t := &p.Tensors[b.tensor[i]]
			t.Blocks = 1
			for range t.Lead[:blocks[i]] {
				t.SampleShape = append(t.SampleShape, 1)
			}
			t.SampleShape = append(t.SampleShape, t.Shape...)
		}
	}
}

// openDoc documents a tensor with open dimensions.
func (b *builder) openDoc(t *Tensor, uses []string, name, info string) {
	t.Doc = fmt.Sprintf("%s is the %s %s: %s.", t.Name, strings.Join(uses, " and the "), name, info)
	t.FromDoc = fmt.Sprintf("%s returns flat, which must have exactly as many elements as the sizes make, as a *%s that shares its memory.", t.From, t.Name)
}

// sizeNames are the constants of the members, as the contract lists them.
func (p *Plan) sizeNames() []string {
	if p.Family == nil || len(p.Family.Members) == 0 {
		return nil
	}
	var out []string
	for _, m := range p.Family.Members {
		out = append(out, m.Name)
	}
	return out
}
