package genrt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/sizes"
)

// maxDims is how many open dimensions a request may have.
const maxDims = 16

// fitting checks what requests to a family are given and chooses their members. All
// that does not depend on the request is looked up when the model is opened.
type fitting struct {
	family  *family.Family
	table   *sizes.Table
	tensors []fitted
	inputs  int          // of tensors
	from    []asked      // by dimension
	cells   []sizes.Code // of table
	plain   []plain
	derived bool // an open input is not plain
	results []result
	counted bool // data decides a size
	trains  bool
}

// ask is a request that fits: who computes it.
type ask struct {
	member int
	exact  bool // all tensors have the member's own sizes
	sizes  [maxDims]int
}

// asked is where a request says the size of a dimension.
type asked struct {
	tensor, field int
	ranks         []sizes.Code
}

// plain is an open input whose fields are an axis each, of the size of a dimension: what checking it takes.
type plain struct {
	tensor int
	fixed  int
	fields int
	dims   [maxFields]uint8 // by field
}

// maxFields is how many fields a plain input has at most, as those of images do.
const maxFields = 3

// result is an open output: what giving it sizes takes.
type result struct {
	tensor int
	twice  bool // a field of it is more than one axis
	fields []resultField
}

// resultField is the size of one field of a result.
type resultField struct {
	same bool // as the dimension
	dim  uint8
	axis *family.Axis
}

// fitted is a run input or output as the code knows it.
type fitted struct {
	spec   *AnchorSpec
	tensor *family.Tensor
	role   string // "Inputs" or "Outputs"
	open   bool
	elem   int         // bytes of an element of its slice, or of all of it
	scalar int         // bytes of an element of the tensor
	fixed  int         // elements of the slice for each of the open axes' elements
	fields []sizeField // of the Go type
	axes   []int       // by open axis of spec: its field
	counts []count     // axes that data decides
	length []int       // by member: elements of the slice
	own    [][]int     // by member and field
	shape  [][]int     // by member and axis
	pad    []byte      // what it is filled up with; nil for zeros
}

// sizeField is a field of a tensor that is a size.
type sizeField struct {
	name string
	axis *family.Axis
}

// count is an axis of which data decides how much is filled.
type count struct {
	axis, field int
	by          int // index among the outputs that count
}

// fit returns what requests of a spec mean to a family. counters are the names of the outputs
// that count.
func fit(spec *Spec, f *family.Family) (*fitting, []string, error) {
	t := &fitting{family: f, table: sizes.New(f), from: make([]asked, len(f.Dims))}
	t.cells = t.table.Cells()
	var counters []string
	if len(f.Dims) > maxDims {
		return nil, nil, fmt.Errorf("package %s: %w: %d open dimensions, want at most %d", spec.Package, rt.ErrGenerated, len(f.Dims), maxDims)
	}
	seen := make([]bool, len(f.Dims))
	for _, role := range []Role{RunInput, RunOutput} {
		for i := range spec.Anchors {
			a := &spec.Anchors[i]
			if a.Role != role {
				continue
			}
			typ := popef.Input
			if role == RunOutput {
				typ = popef.Output
			}
			tensor := f.Tensor(a.Name, typ)
			if tensor == nil {
				return nil, nil, fmt.Errorf("package %s: %w: the model's family has no %v %q", spec.Package, rt.ErrGenerated, role, a.Name)
			}
			out, err := newFitted(spec, a, f, tensor, &counters)
			if err != nil {
				return nil, nil, err
			}
			if role == RunInput {
				out.role = "Inputs"
				t.inputs++
				for k := range out.fields {
					if x := out.fields[k].axis; x.Same() && !seen[x.Dim] {
						t.from[x.Dim], seen[x.Dim] = asked{len(t.tensors), k, t.table.Ranks(x.Dim)}, true
					}
				}
			}
			t.counted = t.counted || len(out.counts) > 0
			t.sort(out, len(t.tensors))
			t.tensors = append(t.tensors, *out)
		}
	}
	for d, ok := range seen {
		if !ok {
			return nil, nil, fmt.Errorf("package %s: %w: no input has the open dimension %q", spec.Package, rt.ErrGenerated, f.Dims[d].Name)
		}
	}
	return t, counters, nil
}

// sort puts the tensor with index i among its like.
func (t *fitting) sort(f *fitted, i int) {
	once := len(f.fields) == len(f.axes)
	if f.open && f.role == "Outputs" {
		r := result{tensor: i, twice: !once}
		for k := range f.fields {
			x := f.fields[k].axis
			r.fields = append(r.fields, resultField{x.Same(), uint8(max(x.Dim, 0)), x})
		}
		t.results = append(t.results, r)
	}
	if !f.open || f.role == "Outputs" {
		return
	}
	p := plain{tensor: i, fixed: f.fixed, fields: len(f.fields)}
	for k := range f.fields {
		x := f.fields[k].axis
		if !x.Same() || !once || p.fields > maxFields {
			t.derived = true
			return
		}
		p.dims[k] = uint8(x.Dim)
	}
	t.plain = append(t.plain, p)
}

// newFitted returns one tensor.
func newFitted(spec *Spec, a *AnchorSpec, f *family.Family, tensor *family.Tensor, counters *[]string) (*fitted, error) {
	out := &fitted{spec: a, tensor: tensor, role: "Outputs", open: len(a.Open) > 0, elem: a.Bytes, scalar: tensor.Elem.Size(), fixed: 1}
	if out.open != tensor.Open() {
		return nil, fmt.Errorf("package %s: %w: %s and anchor %q of the model differ in their open dimensions", spec.Package, rt.ErrGenerated, a.GoName, a.Name)
	}
	behind := -1 // the last axis that is no part of the element
	for _, o := range a.Open {
		if o.Axis <= behind || o.Axis >= len(tensor.Axes) {
			return nil, fmt.Errorf("package %s: %w: %s has an open axis %d, and anchor %q %d axes", spec.Package, rt.ErrGenerated, a.GoName, o.Axis, a.Name, len(tensor.Axes))
		}
		behind = o.Axis
		k := slices.IndexFunc(out.fields, func(s sizeField) bool { return s.name == o.Name })
		if k < 0 {
			k = len(out.fields)
			out.fields = append(out.fields, sizeField{o.Name, &tensor.Axes[o.Axis]})
		}
		out.axes = append(out.axes, k)
		if by := tensor.Axes[o.Axis].Count; by != "" {
			at := slices.Index(*counters, by)
			if at < 0 {
				at = len(*counters)
				*counters = append(*counters, by)
			}
			out.counts = append(out.counts, count{o.Axis, k, at})
		}
	}
	element := out.scalar
	for i := range tensor.Axes {
		x := &tensor.Axes[i]
		at := slices.IndexFunc(a.Open, func(o OpenAxis) bool { return o.Axis == i })
		switch {
		case at >= 0:
		case x.Sizes != nil || x.Count != "":
			return nil, fmt.Errorf("package %s: %w: axis %d of anchor %q is open, and of no field of %s", spec.Package, rt.ErrGenerated, i, a.Name, a.GoName)
		case i > behind:
			element *= int(x.Size)
		default:
			out.fixed *= int(x.Size)
		}
	}
	if element != a.Bytes {
		return nil, fmt.Errorf("package %s: %w: an element of %s has %d bytes, and those of anchor %q %d", spec.Package, rt.ErrGenerated, a.GoName, a.Bytes, a.Name, element)
	}
	for m := range f.Members {
		shape := make([]int, len(tensor.Axes))
		for i := range tensor.Axes {
			shape[i] = int(tensor.Axes[i].Of(m))
		}
		own := make([]int, len(out.fields))
		for k, o := range a.Open {
			own[out.axes[k]] = shape[o.Axis]
		}
		out.shape, out.own = append(out.shape, shape), append(out.own, own)
		out.length = append(out.length, out.count(own))
	}
	var err error
	out.pad, err = sizes.Padding(f, tensor)
	return out, err
}

// count returns how many elements the slice has if the fields have these sizes.
func (t *fitted) count(fields []int) int {
	n := t.fixed
	for _, k := range t.axes {
		n *= fields[k]
	}
	return n
}

// choose checks the inputs of a request and says who computes it.
func (t *fitting) choose(views []View, a *ask) error {
	if !t.derived && t.quick(views, a) {
		return nil
	}
	return t.slow(views, a)
}

// quick is choose where all open inputs are plain. It has no calls, and says no more than whether a request fits.
func (t *fitting) quick(views []View, a *ask) bool {
	if len(views) != len(t.tensors) {
		return false
	}
	at, codes := 0, sizes.Code(0)
	for d := range t.from {
		p := &t.from[d]
		n := *views[p.tensor].size(p.field)
		a.sizes[d&(maxDims-1)] = n
		if uint(n) >= uint(len(p.ranks)) {
			return false
		}
		code := p.ranks[n]
		at += code.Index()
		codes |= code
	}
	if codes < 0 {
		return false
	}
	c := t.cells[at]
	if a.member, a.exact = c.Index(), (codes | c).Exact(); c < 0 {
		return false
	}
	for i := range t.plain {
		p := &t.plain[i]
		v := &views[p.tensor]
		size := *v.sizes
		if size != a.sizes[p.dims[0]%maxDims] {
			return false
		}
		n := p.fixed * size
		if p.fields > 1 {
			if size = *v.size(1); size != a.sizes[p.dims[1]%maxDims] {
				return false
			}
			n *= size
		}
		if p.fields > 2 {
			if size = *v.size(2); size != a.sizes[p.dims[2]%maxDims] {
				return false
			}
			n *= size
		}
		if length, _ := v.elements(); length != n {
			return false
		}
	}
	return true
}

// now returns how many elements the slice of a view has by its fields.
func (t *fitted) now(v *View) int {
	n := t.fixed
	for _, k := range t.axes {
		n *= *v.size(k)
	}
	return n
}

// slow is choose for every request, and says what is wrong with one that does not fit.
func (t *fitting) slow(views []View, a *ask) error {
	if len(views) != len(t.tensors) {
		return fmt.Errorf("%w: %d tensors of %d", rt.ErrGenerated, len(views), len(t.tensors))
	}
	for d := range t.from {
		a.sizes[d] = *views[t.from[d].tensor].size(t.from[d].field)
	}
	a.member, a.exact = t.table.Choose(a.sizes[:len(t.from)])
	for i := range t.inputs {
		in := &t.tensors[i]
		for k := range in.fields {
			if x := in.fields[k].axis; x.Same() && *views[i].size(k) != a.sizes[x.Dim] {
				return t.disagree(views, i, k, x.Dim)
			}
		}
	}
	if a.member < 0 {
		return t.refuse(views, a)
	}
	for i := range t.inputs {
		in := &t.tensors[i]
		if !in.open {
			continue
		}
		for k := range in.fields {
			x := in.fields[k].axis
			want := in.own[a.member][k]
			if x.Dim >= 0 {
				want = int(x.At(int64(a.sizes[x.Dim])))
			}
			if n := *views[i].size(k); n != want {
				return t.underivable(views, i, k, want)
			}
		}
		want := in.now(&views[i])
		if n, _ := views[i].elements(); n != want {
			return t.short(views, i, n, want)
		}
	}
	return nil
}

// prepare gives the outputs of a request the sizes that follow from its inputs, and
// memory for them.
func (t *fitting) prepare(views []View, a *ask) {
	for i := range t.results {
		r := &t.results[i]
		out, v := &t.tensors[r.tensor], &views[r.tensor]
		if v.sizes == nil { // of an evaluation that does not compute it
			continue
		}
		n := out.fixed
		for k := range r.fields {
			f := &r.fields[k]
			size := a.sizes[f.dim%maxDims]
			if !f.same {
				size = f.of(a, out.own[a.member][k])
			}
			*v.size(k) = size
			n *= size
		}
		switch {
		case a.exact:
			n = out.length[a.member]
		case r.twice:
			n = out.now(v)
		}
		if length, _ := v.elements(); length != n || n == 0 {
			v.resize(n, out.length[a.member], out.elem) // with room for all that the member computes
		}
	}
}

// of returns the size of a field whose axis has own elements in the member.
func (f *resultField) of(a *ask, own int) int {
	if a.exact || f.axis.Dim < 0 {
		return own
	}
	return int(f.axis.At(int64(a.sizes[f.dim])))
}

// sizeError says what is wrong with the size in field k of tensor i.
func (t *fitting) sizeError(i, k, n int, dim string, all []int, reason string) error {
	f := &t.tensors[i]
	return &rt.SizeError{Field: f.role + "." + f.spec.GoName + "." + f.fields[k].name, Anchor: f.spec.Name, Dim: dim, Size: n, Sizes: slices.Clone(all), Reason: reason}
}

// disagree is the error of input i, whose field k gives a dimension another size than the first one.
func (t *fitting) disagree(views []View, i, k, d int) error {
	dim, first := t.family.Dims[d].Name, t.from[d]
	f := &t.tensors[first.tensor]
	n, m := *views[i].size(k), *views[first.tensor].size(first.field)
	return t.sizeError(i, k, n, dim, nil, fmt.Sprintf("is %d, and Inputs.%s.%s is %d: both are the dimension %q, so give them one size",
		n, f.spec.GoName, f.fields[first.field].name, m, dim))
}

// underivable is the error of input i, whose field k is not what the other sizes make it.
func (t *fitting) underivable(views []View, i, k, want int) error {
	n, x := *views[i].size(k), t.tensors[i].fields[k].axis
	if x.Dim < 0 {
		return t.sizeError(i, k, n, "", nil, fmt.Sprintf("is %d, and the other sizes make it %d", n, want))
	}
	first := t.from[x.Dim]
	f := &t.tensors[first.tensor]
	return t.sizeError(i, k, n, t.family.Dims[x.Dim].Name, nil, fmt.Sprintf("is %d, and Inputs.%s.%s is %d, from which it follows as %d: give sizes that agree",
		n, f.spec.GoName, f.fields[first.field].name, *views[first.tensor].size(first.field), want))
}

// refuse is the error of sizes that no member computes: of the first dimension that has none
// for its size, else of all together.
func (t *fitting) refuse(views []View, a *ask) error {
	var last *asked
	for d := range t.from {
		last = &t.from[d]
		n, dim := a.sizes[d], t.family.Dims[d].Name
		all, padded, least := t.table.Sizes(d)
		has := fmt.Sprintf("is %d: dimension %q has the %s", n, dim, these(all))
		most := all[len(all)-1]
		switch {
		case n > most:
			return t.sizeError(last.tensor, last.field, n, dim, all, fmt.Sprintf("%s: give at most %d elements at a time, or compile the model with --dim %s=…,%d", has, most, dim, n))
		case n < least && padded && !slices.Contains(all, n) || n < 1 && !slices.Contains(all, n):
			return t.sizeError(last.tensor, last.field, n, dim, all, fmt.Sprintf("%s: give at least %d", has, least))
		case t.trains && !slices.Contains(all, n):
			return t.sizeError(last.tensor, last.field, n, dim, all, fmt.Sprintf("%s, and a step would learn of what it is filled up with: give one of these, or compile the model with --dim %s=…,%d", has, dim, n))
		case !padded && !slices.Contains(all, n):
			return t.sizeError(last.tensor, last.field, n, dim, all, fmt.Sprintf("%s, and what is smaller would change the results if it were padded: give one of these, "+
				"or compile the model with --dim %s=…,%d or with --pad %s=INPUT:VALUE", has, dim, n, dim))
		}
	}
	var asked, members []string
	for d := range t.family.Dims {
		asked = append(asked, fmt.Sprintf("%s=%d", t.family.Dims[d].Name, a.sizes[d]))
	}
	for m := range t.table.Len() {
		if m == 16 {
			members = append(members, fmt.Sprintf("… (%d in all)", t.table.Len()))
			break
		}
		members = append(members, t.name(m))
	}
	d := len(t.from) - 1
	return t.sizeError(last.tensor, last.field, a.sizes[d], t.family.Dims[d].Name, nil,
		fmt.Sprintf("is %d: no member of the family computes %s: there are %s", a.sizes[d], strings.Join(asked, " "), strings.Join(members, ", ")))
}

// name returns the sizes of a member as text.
func (t *fitting) name(m int) string {
	var b []string
	for d, n := range t.table.Of(m) {
		b = append(b, fmt.Sprintf("%s=%d", t.family.Dims[d].Name, n))
	}
	return strings.Join(b, " ")
}

// these lists sizes for people.
func these(all []int) string {
	if len(all) == 1 {
		return fmt.Sprintf("size %d", all[0])
	}
	var b strings.Builder
	b.WriteString("sizes ")
	for i, n := range all {
		switch {
		case i == len(all)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}

// short is the error of a tensor whose slice is not what its sizes make.
func (t *fitting) short(views []View, i, n, want int) error {
	f := &t.tensors[i]
	var all []string
	for k := range f.fields {
		all = append(all, fmt.Sprintf("%s %d", f.fields[k].name, *views[i].size(k)))
	}
	return &rt.SizeError{Field: f.role + "." + f.spec.GoName, Anchor: f.spec.Name, Size: n,
		Reason: fmt.Sprintf("has %d elements of %d bytes, and %s make %d: make it with New%s or %sFrom", n, f.elem, strings.Join(all, ", "), want, f.spec.GoName, f.spec.GoName)}
}
