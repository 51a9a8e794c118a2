package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/popef/contract"
)

// PackOptions say how sequences of different lengths share the rows of a model's
// inputs. Tensors are named as in [Options.Renames].
type PackOptions struct {
	// Inputs are the run inputs that a sequence has something in for each of its
	// positions.
	Inputs []string
	// Axis is the dimension of them that counts positions; those before it
	// count rows.
	Axis int
	// Mask, if it is not empty, is the one of Inputs that is zero where a caller's
	// sequence has padding at its ends.
	Mask string
	// Fill maps what the runner fills to the run input that it fills with it:
	// "segments", "positions", "first", "blocks" or "bias". By one of them, other
	// than positions, the model keeps the sequences of a row apart. For a model that has no need
	// of them, since it computes each position by itself, the key "none" maps to
	// the empty string.
	Fill map[string]string
	// Unpack maps run outputs that have a part for each sequence, in the order
	// of their numbers, to the input that tells the model of them, "segments" or
	// "first". All other outputs have something for each position.
	Unpack map[string]string
}

// Pack is how sequences share a run.
type Pack struct {
	Rows, Length int64
	Entries      int64         // most sequences of a run
	Tensors      []Packed      // run inputs and then run outputs, as in Plan.Inputs and Plan.Outputs
	Inputs       []PackedField // of the type Sequence
	Outputs      []PackedField // of the type SequenceOut
}

// Packed is what a run input or output is to packing.
type Packed struct {
	Kind  string // name of genrt's constant, without Pack: "Nothing", "Position", "Mask", "Segments", "Positions", "First", "Blocks", "Bias", "Entry"
	Parts int64  // equal parts that it has; 0 for Nothing
}

// PackedField is a field of Sequence or SequenceOut.
type PackedField struct {
	Name   string  // Go name, that of the tensor
	Tensor int     // index in Plan.Tensors
	Shape  []int64 // of a position, or of what a sequence has once
	Once   bool    // there is one for each sequence: an unpacked output
	Doc    string  // comment at the end of the line
}

// fills maps what a runner can fill to the kind.
var fills = map[string]string{"segments": "Segments", "positions": "Positions", "first": "First", "blocks": "Blocks", "bias": "Bias"}

// packing decides how sequences share a run.
func (b *builder) packing() {
	o := b.opts.Pack
	if o == nil {
		return
	}
	if len(b.problems) > 0 {
		return // of the tensors themselves
	}
	p := &b.plan
	k := &Pack{}
	c := &packer{builder: b, opts: o, pack: k, kinds: map[int]string{}}
	if p.Uneven() {
		b.problem("pack: a run moves inputs and outputs another number of times each, and sequences are packed into one transfer of all")
	}
	if p.DeviceIterations > 1 {
		b.problem("pack: the model has %d device iterations, and sequences are packed into one; compile it without --iterations", p.DeviceIterations)
	}
	if o.Axis < 0 {
		b.problem("pack: axis %d: want 0 or more", o.Axis)
		return
	}
	c.inputs()
	c.filled()
	c.unpacked()
	if len(b.problems) > 0 {
		return
	}
	c.outputs()
	if k.Entries == 0 || k.Entries > k.Rows*k.Length {
		k.Entries = k.Rows * k.Length
	}
	for _, role := range []contract.Role{contract.RunInput, contract.RunOutput} {
		for i, a := range p.Anchors {
			if a.Role == role {
				k.Tensors = append(k.Tensors, Packed{Kind: c.kind(i), Parts: c.parts(i)})
			}
		}
	}
	p.Pack = k
}

// packer is the state of [builder.packing].
type packer struct {
	*builder
	opts  *PackOptions
	pack  *Pack
	kinds map[int]string // of anchors; none is Nothing
	order []int          // anchors of Inputs
}

func (c *packer) kind(anchor int) string {
	if k := c.kinds[anchor]; k != "" {
		return k
	}
	return "Nothing"
}

// parts returns how many equal parts an anchor has.
func (c *packer) parts(anchor int) int64 {
	switch c.kinds[anchor] {
	case "":
		return 0
	case "First":
		return c.plan.Tensors[c.tensor[anchor]].Elements
	case "Entry":
		return c.shape(anchor)[0]
	case "Blocks", "Bias":
		return c.pack.Rows * c.pack.Length * c.pack.Length
	}
	return c.pack.Rows * c.pack.Length
}

func (c *packer) shape(anchor int) []int64 { return c.plan.Tensors[c.tensor[anchor]].Shape }

// anchor finds a run input or output by its name or handle, and gives it a kind.
func (c *packer) anchor(flag, name string, role contract.Role, kind string) int {
	var names []string
	for _, match := range []func(a Anchor, i int) bool{
		func(a Anchor, _ int) bool { return a.Name == name },
		func(_ Anchor, i int) bool { return c.metas[i].Handle == name },
	} {
		found := -1
		for i, a := range c.plan.Anchors {
			if a.Role != role {
				continue
			}
			names = append(names, a.Name)
			switch {
			case !match(a, i):
			case found >= 0:
				c.problem("%s %q: several %ss have this name; choose one by its stream handle", flag, name, roleNoun(role))
				return -1
			default:
				found = i
			}
		}
		switch {
		case found < 0:
		case c.kinds[found] != "":
			c.problem("%s %q: it was given before; want each %s once", flag, name, roleNoun(role))
			return -1
		default:
			c.kinds[found] = kind
			return found
		}
	}
	c.problem("%s %q: the model has no such %s%s", flag, name, roleNoun(role), nearest.DidYouMean(name, names))
	return -1
}

// positions checks that an anchor has rows of positions, and returns the shape of
// what belongs to one.
func (c *packer) positions(what string, anchor int) []int64 {
	k, a, shape := c.pack, c.plan.Anchors[anchor], c.shape(anchor)
	if c.opts.Axis >= len(shape) {
		c.problem("%s %q: %s has no dimension %d to count positions (--pack-axis)", what, a.Name, a.Info, c.opts.Axis)
		return nil
	}
	rows, length := product(shape[:c.opts.Axis]), shape[c.opts.Axis]
	each := shape[c.opts.Axis+1:]
	switch {
	case rows == 0 || length == 0 || product(each) == 0:
		c.problem("%s %q: %s has no elements", what, a.Name, a.Info)
	case k.Length == 0:
		k.Rows, k.Length = rows, length
	case rows != k.Rows || length != k.Length:
		c.problem("%s %q: %s has %d rows of %d positions (--pack-axis %d), and %q has %d of %d", what, a.Name, a.Info, rows, length, c.opts.Axis,
			c.plan.Anchors[c.order[0]].Name, k.Rows, k.Length)
	}
	return each
}

func product(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// inputs finds the inputs that callers give.
func (c *packer) inputs() {
	if len(c.opts.Inputs) == 0 {
		c.problem("pack: want the names of the inputs that a sequence has something in for each position")
		return
	}
	for _, name := range c.opts.Inputs {
		kind := "Position"
		if name == c.opts.Mask {
			kind = "Mask"
		}
		i := c.anchor("pack", name, contract.RunInput, kind)
		if i < 0 {
			continue
		}
		c.order = append(c.order, i)
		each := c.positions("pack", i)
		doc := "one for each position"
		if kind == "Mask" {
			doc = "0 for padding at either end of the sequence"
		}
		c.pack.Inputs = append(c.pack.Inputs, PackedField{Tensor: c.tensor[i], Shape: each, Doc: doc})
	}
	if c.opts.Mask != "" && !slices.Contains(c.opts.Inputs, c.opts.Mask) {
		c.problem("pack-mask %q: want one of the inputs of --pack: %s%s", c.opts.Mask, strings.Join(c.opts.Inputs, ", "), nearest.DidYouMean(c.opts.Mask, c.opts.Inputs))
	}
}

// filled finds the inputs that the runner fills.
func (c *packer) filled() {
	k := c.pack
	apart := false
	for _, what := range sortedKeys(c.opts.Fill) {
		name, flag := c.opts.Fill[what], "pack-fill "+what
		if what == "none" {
			if name != "" || len(c.opts.Fill) > 1 {
				c.problem("pack-fill none: it says that nothing is to be filled; want it alone")
			}
			apart = true
			continue
		}
		kind, ok := fills[what]
		if !ok {
			c.problem("pack-fill %s=%s: want segments, positions, first, blocks, bias or none%s", what, name, nearest.DidYouMean(what, sortedKeys(fills)))
			continue
		}
		i := c.anchor(flag, name, contract.RunInput, kind)
		if i < 0 || k.Length == 0 {
			continue
		}
		apart = apart || what != "positions"
		a, t := c.plan.Anchors[i], &c.plan.Tensors[c.tensor[i]]
		want, sense := k.Rows*k.Length, "position"
		switch what {
		case "first":
			want = t.Elements
			if k.Entries == 0 || t.Elements < k.Entries {
				k.Entries = t.Elements
			}
		case "blocks", "bias":
			want *= k.Length
			sense = "pair of positions of a row"
		}
		switch float := strings.HasPrefix(t.Elem, "float") || t.Elem == "rt.Float16"; {
		case t.Elements != want || want == 0:
			c.problem("%s %q: %s has %s, want %d: one for each %s", flag, name, a.Info, counted(t.Elements, "element", "elements"), want, sense)
		case strings.HasPrefix(t.Elem, "rt.") && t.Elem != "rt.Float16", t.Elem == "bool" && what != "blocks":
			c.problem("%s %q: %s: the runner can't fill elements of this type", flag, name, a.Info)
		case what == "bias" && !float:
			c.problem("%s %q: %s: what is added to scores is a floating-point number", flag, name, a.Info)
		case what != "blocks" && what != "bias" && want > largest[t.Elem]:
			c.problem("%s %q: %s: numbers up to %d do not fit into its elements", flag, name, a.Info, want)
		}
	}
	if !apart && len(c.problems) == 0 {
		c.problem("pack: nothing keeps the sequences of a row apart, and each would see its neighbours. Name the input by which the model does so, for the runner to fill it: " +
			"--pack-fill segments=INPUT (its number at each position), blocks=INPUT (1 where two positions may see each other), bias=INPUT (0 there, and the lowest value elsewhere) " +
			"or first=INPUT; or say --pack-fill none if the model computes each position by itself")
	}
}

// largest has the largest whole number up to which elements count without a gap.
var largest = map[string]int64{
	"int8": 1<<7 - 1, "uint8": 1<<8 - 1, "int16": 1<<15 - 1, "uint16": 1<<16 - 1, "int32": 1<<31 - 1, "uint32": 1<<32 - 1, "int64": 1<<63 - 1, "uint64": 1<<63 - 1,
	"rt.Float16": 1 << 11, "float32": 1 << 24, "float64": 1 << 53,
}

// unpacked finds the outputs that have a part for each sequence.
func (c *packer) unpacked() {
	for _, name := range sortedKeys(c.opts.Unpack) {
		flag := fmt.Sprintf("unpack %s=%s", name, c.opts.Unpack[name])
		by := c.opts.Unpack[name]
		if by != c.opts.Fill["segments"] && by != c.opts.Fill["first"] || by == "" {
			c.problem("%s: want an input that the runner fills with the sequences' numbers or first positions (--pack-fill segments=%s or first=%[2]s), for the model to take them apart by", flag, by)
			continue
		}
		i := c.anchor("unpack", name, contract.RunOutput, "Entry")
		if i < 0 {
			continue
		}
		shape := c.shape(i)
		if len(shape) == 0 || product(shape) == 0 {
			c.problem("unpack %q: %s has no part for each sequence", name, c.plan.Anchors[i].Info)
			continue
		}
		if c.pack.Entries == 0 || shape[0] < c.pack.Entries {
			c.pack.Entries = shape[0]
		}
	}
}

// outputs decides what callers get.
func (c *packer) outputs() {
	for i, a := range c.plan.Anchors {
		if a.Role != contract.RunOutput {
			continue
		}
		f := PackedField{Tensor: c.tensor[i], Doc: "one for each position"}
		if c.kinds[i] == "Entry" {
			f.Once, f.Shape, f.Doc = true, c.shape(i)[1:], "one for the sequence"
		} else {
			c.kinds[i] = "Position"
			f.Shape = c.positions("output (or does --unpack take it apart?)", i)
		}
		c.pack.Outputs = append(c.pack.Outputs, f)
	}
}

// packedNames gives the fields of sequences the names of their tensors.
func (b *builder) packedNames() {
	if b.plan.Pack == nil {
		return
	}
	for _, fields := range [][]PackedField{b.plan.Pack.Inputs, b.plan.Pack.Outputs} {
		for i := range fields {
			fields[i].Name = b.plan.Tensors[fields[i].Tensor].Name
		}
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// PackedElem returns the Go type of what a field of a sequence has for a position, or
// once.
func (p *Plan) PackedElem(f PackedField) string {
	var b strings.Builder
	for _, n := range f.Shape {
		fmt.Fprintf(&b, "[%d]", n)
	}
	return b.String() + p.Tensors[f.Tensor].Elem
}
