package family

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// Bounds on what a blob may claim. No size of a tensor in memory comes near maxNumber.
const (
	maxBytes   = 4 << 20
	maxMembers = 1024
	maxDims    = 16
	maxTensors = 4096
	maxValues  = 1 << 18 // numbers, texts, lists and objects
	maxDepth   = 16
	maxPlaces  = 1 << 22 // axes of all tensors of all members
	maxNumber  = 1 << 40
	maxFactor  = 1 << 20
)

// blob is a family as it stands in the file: what the anchors do not say.
type blob struct {
	Version int          `json:"version"`
	Dims    []blobDim    `json:"dims,omitempty"`
	Members []blobMember `json:"members"`
	Tensors []blobTensor `json:"tensors"`
}

type blobDim struct {
	Name string `json:"name"`
	Rows bool   `json:"rows,omitempty"`
	Pads []Pad  `json:"pads,omitempty"`
}

type blobMember struct {
	Program uint32  `json:"program"`
	Sizes   []int64 `json:"sizes,omitempty"`
	Cost    float64 `json:"cost,omitempty"`
}

type blobTensor struct {
	Name   string     `json:"name"`
	Output bool       `json:"output,omitempty"`
	Axes   []blobAxis `json:"axes,omitempty"` // those that are open
}

// blobAxis is an axis that follows from a dimension, or has a count.
type blobAxis struct {
	Axis  int    `json:"axis"`
	Dim   string `json:"dim,omitempty"`
	Mul   int64  `json:"mul,omitempty"` // 0: 1
	Add   int64  `json:"add,omitempty"`
	Div   int64  `json:"div,omitempty"` // 0: 1
	Count string `json:"count,omitempty"`
}

// Encode returns the family as the payload of a blob. What its anchors say is not in it.
func (f *Family) Encode() []byte {
	b := blob{Version: 1, Members: []blobMember{}, Tensors: []blobTensor{}}
	for _, d := range f.Dims {
		b.Dims = append(b.Dims, blobDim(d))
	}
	for _, m := range f.Members {
		b.Members = append(b.Members, blobMember(m))
	}
	for _, t := range f.Tensors {
		out := blobTensor{Name: t.Name, Output: t.Type == popef.Output}
		for i, a := range t.Axes {
			if a.Dim < 0 && a.Count == "" {
				continue
			}
			x := blobAxis{Axis: i, Count: a.Count}
			if a.Dim >= 0 {
				x.Dim = f.Dims[a.Dim].Name
				if !a.Same() {
					x.Mul, x.Add, x.Div = a.Mul, a.Add, a.Div
				}
			}
			out.Axes = append(out.Axes, x)
		}
		b.Tensors = append(b.Tensors, out)
	}
	data, err := json.Marshal(b)
	if err != nil {
		panic(err) // of numbers that are none: costs are finite
	}
	return data
}

// refuse returns an error that wraps [ErrFamily].
func refuse(format string, args ...any) error {
	return fmt.Errorf("opaque blob %q: %w: %s; compile the model again, or write the file without the blob", BlobName, ErrFamily, fmt.Sprintf(format, args...))
}

// decode reads a blob and holds it against the metadata.
func decode(meta *popef.Metadata, carries func(string) bool, data []byte) (*Family, error) {
	if len(data) > maxBytes {
		return nil, refuse("it has %d bytes, want at most %d", len(data), maxBytes)
	}
	if err := scan(data); err != nil {
		return nil, refuse("%v", err)
	}
	var b blob
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&b); err != nil {
		return nil, refuse("it is not read as JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, refuse("there is more behind the JSON")
	}
	if b.Version != 1 {
		return nil, refuse("it is of version %d, and this popefgen reads version 1", b.Version)
	}
	if n := len(b.Members); n == 0 || n > maxMembers {
		return nil, refuse("it has %d members, want 1 to %d", n, maxMembers)
	}
	if len(b.Dims) > maxDims {
		return nil, refuse("it has %d dimensions, want at most %d", len(b.Dims), maxDims)
	}
	if len(b.Tensors) > maxTensors {
		return nil, refuse("it has %d run inputs and outputs, want at most %d", len(b.Tensors), maxTensors)
	}
	f := &Family{}
	dims := map[string]int{}
	for i, d := range b.Dims {
		if _, ok := dims[d.Name]; ok || d.Name == "" {
			return nil, refuse("dimension %d is called %q, want a name that no other has", i, d.Name)
		}
		dims[d.Name] = i
		f.Dims = append(f.Dims, Dim(d))
	}
	if err := f.members(b.Members, meta); err != nil {
		return nil, err
	}
	if err := f.tensors(b.Tensors, dims, meta, carries); err != nil {
		return nil, err
	}
	if err := f.checkDims(); err != nil {
		return nil, err
	}
	return f, nil
}

// scan reads JSON and refuses what two readers might understand in two ways, a name that an object
// has twice, and what would take much more memory than it has bytes.
func scan(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	var open []map[string]bool // objects around; nil for a list
	name := false              // the next token is a name, or the end of an object
	values := 0
	for {
		token, err := d.Token()
		if err != nil {
			return nil // who reads it says why; the end of the JSON is no error
		}
		inside := func() bool { return len(open) > 0 && open[len(open)-1] != nil }
		switch token {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		default:
			if text, ok := token.(string); ok && name {
				text = strings.ToLower(text) // as encoding/json compares names
				if open[len(open)-1][text] {
					return fmt.Errorf("an object has the name %q twice", text)
				}
				open[len(open)-1][text] = true
				name = false
				continue
			}
		}
		if values++; values > maxValues {
			return fmt.Errorf("it has more than %d values", maxValues)
		}
		if len(open) > maxDepth {
			return fmt.Errorf("it has objects and lists in each other, %d deep", len(open))
		}
		name = inside()
		if len(open) == 0 {
			return nil // what follows is looked at elsewhere
		}
	}
}

// members checks and takes over the members.
func (f *Family) members(all []blobMember, meta *popef.Metadata) error {
	mains := map[uint32]bool{}
	for _, p := range meta.ProgramFlow.Main {
		mains[p] = true
	}
	programs, sizes := map[uint32]bool{}, map[string]bool{}
	for i, m := range all {
		switch {
		case !mains[m.Program]:
			return refuse("member %d is program %d, which is no main program of the program flow%s", i, m.Program, listed(meta.ProgramFlow.Main))
		case programs[m.Program]:
			return refuse("two members are program %d", m.Program)
		case len(m.Sizes) != len(f.Dims):
			return refuse("member %d has %d sizes for %d dimensions", i, len(m.Sizes), len(f.Dims))
		case !(m.Cost >= 0) || math.IsInf(m.Cost, 0):
			return refuse("member %d costs %v operations", i, m.Cost)
		}
		for k, n := range m.Sizes {
			if n < 0 || n > maxNumber {
				return refuse("member %d has the size %d of dimension %q", i, n, f.Dims[k].Name)
			}
		}
		if key := fmt.Sprint(m.Sizes); sizes[key] {
			return refuse("two members have the sizes %v", m.Sizes)
		} else {
			sizes[key] = true
		}
		programs[m.Program] = true
		f.Members = append(f.Members, Member(m))
	}
	for p := range mains {
		if !programs[p] {
			return refuse("main program %d is no member", p)
		}
	}
	return f.ordered()
}

// listed returns programs as text, a few of many.
func listed(programs []uint32) string {
	const most = 8
	if len(programs) > most {
		return fmt.Sprintf(" (%d of %d: %v)", most, len(programs), programs[:most])
	}
	return fmt.Sprintf(" %v", programs)
}

// ordered checks that no member stands behind one that it fits into.
func (f *Family) ordered() error {
	for i := range f.Members {
		for k := range i {
			if f.Members[k].Fits(f.Members[i].Sizes) {
				return refuse("the member of sizes %v stands behind that of %v, into which it fits", f.Members[i].Sizes, f.Members[k].Sizes)
			}
		}
	}
	return nil
}

// tensors finds the anchors of every tensor and checks their sizes.
func (f *Family) tensors(all []blobTensor, dims map[string]int, meta *popef.Metadata, carries func(string) bool) error {
	anchors := make([]map[key]int, len(f.Members))
	run := runAnchors(meta, carries)
	for i := range f.Members {
		anchors[i] = map[key]int{}
		for _, k := range run[f.Members[i].Program] {
			a := &meta.Anchors[k]
			id := key{a.Name, a.Type}
			if other, ok := anchors[i][id]; ok {
				return refuse("program %d moves two %ss %q (handles %q and %q)", f.Members[i].Program, a.Type, a.Name, meta.Anchors[other].Handle, a.Handle)
			}
			anchors[i][id] = k
		}
		if len(anchors[i]) != len(all) {
			return refuse("program %d moves %d run inputs and outputs, and the blob names %d", f.Members[i].Program, len(anchors[i]), len(all))
		}
	}
	seen := map[key]bool{}
	outputs, places := false, 0
	for _, b := range all {
		t := Tensor{Name: b.Name, Type: popef.Input}
		if b.Output {
			t.Type, outputs = popef.Output, true
		} else if outputs {
			return refuse("the input %q stands behind an output", b.Name)
		}
		id := key{t.Name, t.Type}
		if seen[id] {
			return refuse("the %s %q is there twice", t.Type, t.Name)
		}
		seen[id] = true
		for i := range f.Members {
			k, ok := anchors[i][id]
			if !ok {
				return refuse("program %d has no %s %q", f.Members[i].Program, t.Type, t.Name)
			}
			t.Anchors = append(t.Anchors, k)
		}
		if places += len(f.Members) * len(meta.Anchors[t.Anchors[0]].Info.Shape); places > maxPlaces {
			return refuse("its %d members have tensors of more than %d axes", len(f.Members), maxPlaces)
		}
		if err := f.axes(&t, meta); err != nil {
			return refuse("%s %q: %v", t.Type, t.Name, err)
		}
		last := -1
		for _, x := range b.Axes {
			if x.Axis <= last || x.Axis >= len(t.Axes) {
				return refuse("%s %q: axis %d, of %d, is out of order", t.Type, t.Name, x.Axis, len(t.Axes))
			}
			last = x.Axis
			if err := f.axis(&t.Axes[x.Axis], x, dims); err != nil {
				return refuse("%s %q: axis %d: %v", t.Type, t.Name, x.Axis, err)
			}
		}
		f.Tensors = append(f.Tensors, t)
	}
	return f.counts()
}

// axes fills in the element type and the sizes of a tensor from its anchors.
func (f *Family) axes(t *Tensor, meta *popef.Metadata) error {
	first := &meta.Anchors[t.Anchors[0]]
	t.Elem = first.Info.DataType
	for i := range first.Info.Shape {
		t.Axes = append(t.Axes, Axis{Size: first.Info.Shape[i], Dim: -1})
	}
	for i, k := range t.Anchors {
		a := &meta.Anchors[k]
		if a.Info.DataType != t.Elem || len(a.Info.Shape) != len(t.Axes) {
			return fmt.Errorf("it is %v in program %d and %v in program %d, which differ in more than sizes", first.Info, f.Members[0].Program, a.Info, f.Members[i].Program)
		}
		if max(1, a.Repeats) != 1 {
			return fmt.Errorf("it repeats %d times in program %d", a.Repeats, f.Members[i].Program)
		}
		for axis, n := range a.Info.Shape {
			if n < 0 || n > maxNumber {
				return fmt.Errorf("it is %v", a.Info)
			}
			if x := &t.Axes[axis]; x.Sizes == nil && n != x.Size {
				x.Sizes = make([]int64, len(t.Anchors))
				for j := range i {
					x.Sizes[j] = x.Size
				}
				x.Size = 0
			}
			if x := &t.Axes[axis]; x.Sizes != nil {
				x.Sizes[i] = n
			}
		}
	}
	return nil
}

// axis takes over what a blob says of one axis.
func (f *Family) axis(a *Axis, x blobAxis, dims map[string]int) error {
	a.Count = x.Count
	if x.Dim == "" {
		if x.Mul|x.Add|x.Div != 0 {
			return fmt.Errorf("a rule without a dimension")
		}
		return nil
	}
	d, ok := dims[x.Dim]
	if !ok {
		return fmt.Errorf("there is no dimension %q", x.Dim)
	}
	if x.Mul == 0 && x.Div == 0 && x.Add == 0 {
		x.Mul, x.Div = 1, 1
	}
	if x.Mul <= 0 || x.Mul > maxFactor || x.Div <= 0 || x.Div > maxFactor || x.Add < -maxNumber || x.Add > maxNumber {
		return fmt.Errorf("the rule (%d·n%+d)/%d", x.Mul, x.Add, x.Div)
	}
	a.Dim, a.Mul, a.Add, a.Div = d, x.Mul, x.Add, x.Div
	for i := range f.Members {
		if n := a.At(f.Members[i].Sizes[d]); n != a.Of(i) {
			return fmt.Errorf("dimension %q of %d elements makes %d, and program %d has %d", x.Dim, f.Members[i].Sizes[d], n, f.Members[i].Program, a.Of(i))
		}
	}
	return nil
}

// counts checks that counts are single run outputs and that counted axes are outputs'.
func (f *Family) counts() error {
	for i := range f.Tensors {
		t := &f.Tensors[i]
		for axis := range t.Axes {
			a := &t.Axes[axis]
			if a.Count == "" {
				continue
			}
			c := f.Tensor(a.Count, popef.Output)
			if t.Type != popef.Output || c == nil || c.Elem != popef.S64 || len(c.Axes) != 0 {
				return refuse("%s %q: axis %d is counted by %q, want a run output of type S64 []", t.Type, t.Name, axis, a.Count)
			}
		}
	}
	return nil
}

// checkDims checks that an input shows each dimension, and what is declared for its padding.
func (f *Family) checkDims() error {
	shown := make([]bool, len(f.Dims))
	for i := range f.Tensors {
		for _, a := range f.Tensors[i].Axes {
			if f.Tensors[i].Type == popef.Input && a.Same() {
				shown[a.Dim] = true
			}
		}
	}
	corner := map[string]Pad{} // by input, along which dimension it is padded, and with what
	for d := range f.Dims {
		if !shown[d] {
			return refuse("no input has the dimension %q", f.Dims[d].Name)
		}
		inputs := map[string]bool{}
		for _, p := range f.Dims[d].Pads {
			t := f.Tensor(p.Input, popef.Input)
			if t == nil || inputs[p.Input] {
				return refuse("dimension %q pads %q, want an input, once", f.Dims[d].Name, p.Input)
			}
			inputs[p.Input] = true
			if !hasDim(t, d) {
				return refuse("dimension %q pads %q, which does not have it", f.Dims[d].Name, p.Input)
			}
			if !isElement(t.Elem, p.Value) {
				return refuse("dimension %q pads %q with %q, want a number of type %v", f.Dims[d].Name, p.Input, p.Value, t.Elem)
			}
			other, ok := corner[p.Input]
			if ok && !f.Dims[d].Rows && !sameNumber(other.Value, p.Value) {
				return refuse("dimension %q pads %q with %s, and dimension %q with %s: what lies behind both can't be both", f.Dims[d].Name, p.Input, p.Value, other.Input, other.Value)
			}
			if !f.Dims[d].Rows {
				corner[p.Input] = Pad{Input: f.Dims[d].Name, Value: p.Value}
			}
		}
		if len(inputs) == 0 {
			continue
		}
		for i := range f.Tensors {
			if t := &f.Tensors[i]; t.Type == popef.Input && hasDim(t, d) && !inputs[t.Name] {
				return refuse("dimension %q has no padding for the input %q", f.Dims[d].Name, t.Name)
			}
		}
	}
	return nil
}

// isElement reports whether a text is a number that an element of a type can have.
func isElement(t popef.DataType, text string) (ok bool) {
	var err error
	switch bits := 8 * t.Size(); t {
	case popef.Bool:
		_, err = strconv.ParseUint(text, 10, 1)
	case popef.U8, popef.U16, popef.U32, popef.U64:
		_, err = strconv.ParseUint(text, 10, bits)
	case popef.S8, popef.S16, popef.S32, popef.S64:
		_, err = strconv.ParseInt(text, 10, bits)
	default:
		_, err = strconv.ParseFloat(text, max(bits, 32))
	}
	return err == nil
}

// sameNumber reports whether two texts are the same number.
func sameNumber(a, b string) bool {
	x, _ := strconv.ParseFloat(a, 64)
	y, _ := strconv.ParseFloat(b, 64)
	return a == b || x == y
}

// hasDim reports whether an axis of t follows from dimension d.
func hasDim(t *Tensor, d int) bool {
	for _, a := range t.Axes {
		if a.Dim == d {
			return true
		}
	}
	return false
}
