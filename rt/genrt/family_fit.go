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
	inputs  int // of tensors
	dims    int // open dimensions
	checks  []check
	groups  []group
	derived bool // an input has an axis that follows from a dimension by a rule
	counted bool // data decides a size
}

// ask is a request that fits: who computes it.
type ask struct {
	member int
	exact  bool // all tensors have the member's own sizes
	sizes  [maxDims]int
}

// check is a size that an input gives a dimension: the first one sets it, the others
// must agree.
type check struct {
	tensor, field, dim int
	first              bool
}

// group are the open inputs whose slices have equally many elements, as their sizes make.
type group struct {
	fixed   int
	dims    []int // those whose sizes make the number, each as often as it is an axis; nil if the fields must be asked
	tensors []int
}

// grouped puts input i in its group.
func (t *fitting) grouped(i int) {
	in := &t.tensors[i]
	if !in.open {
		return
	}
	g := group{fixed: in.fixed, tensors: []int{i}}
	for _, k := range in.axes {
		if x := in.fields[k].axis; x.Same() {
			g.dims = append(g.dims, x.Dim)
		}
	}
	if len(g.dims) < len(in.axes) {
		g.dims = nil
	}
	for k := range t.groups {
		if o := &t.groups[k]; g.dims != nil && o.fixed == g.fixed && slices.Equal(o.dims, g.dims) {
			o.tensors = append(o.tensors, i)
			return
		}
	}
	t.groups = append(t.groups, g)
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
	t := &fitting{family: f, table: sizes.New(f), dims: len(f.Dims)}
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
					if x := out.fields[k].axis; x.Same() {
						t.checks = append(t.checks, check{len(t.tensors), k, x.Dim, !seen[x.Dim]})
						seen[x.Dim] = true
					} else {
						t.derived = true
					}
				}
			}
			t.counted = t.counted || len(out.counts) > 0
			t.tensors = append(t.tensors, *out)
			if role == RunInput {
				t.grouped(len(t.tensors) - 1)
			}
		}
	}
	for d, ok := range seen {
		if !ok {
			return nil, nil, fmt.Errorf("package %s: %w: no input has the open dimension %q", spec.Package, rt.ErrGenerated, f.Dims[d].Name)
		}
	}
	return t, counters, nil
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
	out.pad, err = padding(f, tensor)
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
	if len(views) != len(t.tensors) {
		return fmt.Errorf("%w: %d tensors of %d", rt.ErrGenerated, len(views), len(t.tensors))
	}
	for i := range t.checks {
		c := &t.checks[i]
		switch n := *views[c.tensor].size(c.field); {
		case c.first:
			a.sizes[c.dim] = n
		case a.sizes[c.dim] != n:
			return t.disagree(views, c)
		}
	}
	a.member, a.exact = t.table.Choose(a.sizes[:t.dims])
	if a.member < 0 {
		return t.refuse(views, a)
	}
	if t.derived {
		if err := t.follow(views, a); err != nil {
			return err
		}
	}
	for k := range t.groups {
		g := &t.groups[k]
		want := g.fixed
		if g.dims == nil {
			want = t.tensors[g.tensors[0]].now(&views[g.tensors[0]])
		}
		for _, d := range g.dims {
			want *= a.sizes[d]
		}
		for _, i := range g.tensors {
			if n, _ := views[i].elements(); n != want {
				return t.short(views, i, n, want)
			}
		}
	}
	return nil
}

// now returns how many elements the slice of a view has by its fields.
func (t *fitted) now(v *View) int {
	n := t.fixed
	for _, k := range t.axes {
		n *= *v.size(k)
	}
	return n
}

// follow checks the axes of inputs that follow from a dimension by a rule, or from none.
func (t *fitting) follow(views []View, a *ask) error {
	for i := range t.inputs {
		in := &t.tensors[i]
		for k := range in.fields {
			x := in.fields[k].axis
			if x.Same() {
				continue
			}
			want := in.own[a.member][k]
			if x.Dim >= 0 {
				want = int(x.At(int64(a.sizes[x.Dim])))
			}
			if n := *views[i].size(k); n != want {
				return t.sizeError(i, k, n, "", nil, fmt.Sprintf("is %d, and the other sizes make it %d", n, want))
			}
		}
	}
	return nil
}

// prepare gives the outputs of a request the sizes that follow from its inputs, and
// memory for them.
func (t *fitting) prepare(views []View, a *ask) {
	for i := t.inputs; i < len(t.tensors); i++ {
		out, v := &t.tensors[i], &views[i]
		if !out.open {
			continue
		}
		for k := range out.fields {
			n := out.own[a.member][k]
			if x := out.fields[k].axis; !a.exact && x.Dim >= 0 {
				n = int(x.At(int64(a.sizes[x.Dim])))
			}
			*v.size(k) = n
		}
		n := out.length[a.member]
		if !a.exact {
			n = out.now(v)
		}
		if length, _ := v.elements(); length != n || n == 0 {
			v.resize(n, out.length[a.member], out.elem) // with room for all that the member computes
		}
	}
}

// sizeError says what is wrong with the size in field k of tensor i.
func (t *fitting) sizeError(i, k, n int, dim string, all []int, reason string) error {
	f := &t.tensors[i]
	return &rt.SizeError{Field: f.role + "." + f.spec.GoName + "." + f.fields[k].name, Anchor: f.spec.Name, Dim: dim, Size: n, Sizes: slices.Clone(all), Reason: reason}
}

// disagree is the error of two inputs that give a dimension different sizes.
func (t *fitting) disagree(views []View, c *check) error {
	dim := t.family.Dims[c.dim].Name
	for i := range t.checks {
		if o := &t.checks[i]; o.dim == c.dim && o.first {
			f := &t.tensors[o.tensor]
			n, m := *views[c.tensor].size(c.field), *views[o.tensor].size(o.field)
			return t.sizeError(c.tensor, c.field, n, dim, nil, fmt.Sprintf("is %d, and Inputs.%s.%s is %d: both are the dimension %q, so give them one size",
				n, f.spec.GoName, f.fields[o.field].name, m, dim))
		}
	}
	return nil
}

// refuse is the error of sizes that no member computes: of the first dimension that has none
// for its size, else of all together.
func (t *fitting) refuse(views []View, a *ask) error {
	var last *check
	for i := range t.checks {
		c := &t.checks[i]
		if !c.first {
			continue
		}
		last = c
		n, dim := a.sizes[c.dim], t.family.Dims[c.dim].Name
		all, padded := t.table.Sizes(c.dim)
		has := fmt.Sprintf("is %d: dimension %q has the %s", n, dim, these(all))
		most := all[len(all)-1]
		switch {
		case n > most:
			return t.sizeError(c.tensor, c.field, n, dim, all, fmt.Sprintf("%s: give at most %d elements at a time, or compile the model with --dim %s=…,%d", has, most, dim, n))
		case n < 1 && !slices.Contains(all, n):
			return t.sizeError(c.tensor, c.field, n, dim, all, has+": give at least one element")
		case !padded && !slices.Contains(all, n):
			return t.sizeError(c.tensor, c.field, n, dim, all, fmt.Sprintf("%s, and what is smaller would change the results if it were padded: give one of these, "+
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
	return t.sizeError(last.tensor, last.field, a.sizes[last.dim], t.family.Dims[last.dim].Name, nil,
		fmt.Sprintf("is %d: no member of the family computes %s: there are %s", a.sizes[last.dim], strings.Join(asked, " "), strings.Join(members, ", ")))
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
