package contract

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// Group says in which struct of generated code callers see an anchor.
type Group uint8

// The groups, in the order of [Callers.Text].
const (
	Hidden          Group = iota // in none
	Inputs                       // [RunInput]
	Outputs                      // [RunOutput]
	LoadInputs                   // [LoadInput], or a [Seed] that the files have no data for
	SaveOutputs                  // [SaveOutput]
	OptimizerValues              // [Optimizer]
	numGroups
)

var (
	structNames = [numGroups]string{"", "Inputs", "Outputs", "LoadInputs", "SaveOutputs", "Optimizer"}
	groupWords  = [numGroups]string{"", "input", "output", "load", "save", "optimizer"}
	groupNouns  = [numGroups]string{"hidden anchor", "run input", "run output", "load input", "save output", "optimizer value"}
)

// String returns the name of the struct, such as "Inputs", or "Hidden".
func (g Group) String() string {
	switch {
	case g == Hidden:
		return "Hidden"
	case g < numGroups:
		return structNames[g]
	}
	return fmt.Sprintf("group(%d)", uint8(g))
}

// Group returns where callers of generated code see the anchor, or what it is to
// another member of its family. A run output that counts is [Hidden].
func (a *Anchor) Group() Group {
	if a.Counts {
		return Hidden
	}
	switch a.Role {
	case RunInput:
		return Inputs
	case RunOutput:
		return Outputs
	case LoadInput:
		return LoadInputs
	case Seed:
		if !a.HasData {
			return LoadInputs
		}
	case SaveOutput:
		return SaveOutputs
	case Optimizer:
		return OptimizerValues
	}
	return Hidden
}

// Callers is the part of a contract that callers of a generated package see:
// the fields of its structs, in their order, with their types, and how many
// transfers a run makes. What the files carry data for, which programs move
// what, stream handles and the hardware are not in it.
type Callers struct {
	Replicas   uint32  // replication factor of the executable; generated code opens only 1
	Iterations int     // transfers of every run input and output in one run that has no number of its own, at least 1
	Fields     []Field // by group, and in the file's order within one

	// Of a family, else nil:
	Dims    []Dim    // open dimensions; nil if only data decides sizes
	Members []Member // sizes that there are, in ascending order: first by the first dimension

	// Trains says that the model changes its weights: its package has Step and Checkpoint.
	Trains bool

	// Branches are the names of the branches of a fused model, else nil. A run moves the inputs and outputs
	// of one of them, see [Field.Branch].
	Branches []string
}

// Field is an anchor that callers see.
type Field struct {
	Group   Group
	Name    string           // of the anchor
	Info    popef.TensorInfo // element type and shape of one transfer; of a family that in the first of its members
	Axes    []Axis           // of the shape, if one of them is open; else nil
	Repeats uint32           // equal blocks in a remote buffer, at least 1
	// Transfers is how many transfers a run makes of a run input or output that has a number of its own, else 0: see [Callers.Transfers].
	Transfers int
	Evaluated bool     // of a run output of a model that trains: Evaluate returns it too
	Weight    bool     // of a save output of a model that trains: it is a weight, which the model loads under the same name
	Kept      bool     // likewise, of what is no weight: state of the optimizer or of random numbers
	Handle    string   // stream handle where several fields of the group have the name, else ""
	Stream    string   // stream handle in the model; "" if the field was read from a text
	Streams   []string // of a run input or output of a family: stream handles in the model, by index in [Callers.Members]; else nil
}

// Visible returns the anchors that callers of generated code see: by group, and
// in the file's order within one. Of a tensor of a family it is the first
// member's.
func (c Contract) Visible() []Anchor {
	out := slices.DeleteFunc(slices.Clone(c.Anchors), func(a Anchor) bool { return a.Group() == Hidden || a.Member > 0 })
	slices.SortFunc(out, func(a, b Anchor) int { return cmp.Or(cmp.Compare(a.Group(), b.Group()), cmp.Compare(a.Index, b.Index)) })
	return out
}

// Callers returns what callers of generated code see of the contract. Its
// fields are the anchors of [Contract.Visible].
func (c Contract) Callers() Callers {
	out := Callers{Replicas: c.Replicas, Iterations: c.DeviceIterations()}
	visible := c.Visible()
	for _, a := range visible {
		out.Fields = append(out.Fields, Field{Group: a.Group(), Name: a.Name, Info: a.Info, Repeats: a.Repeats, Transfers: a.Transfers, Stream: a.Handle})
	}
	type key struct {
		group Group
		name  string
	}
	count := map[key]int{}
	for _, f := range out.Fields {
		count[key{f.Group, f.Name}]++
	}
	for i := range out.Fields {
		if f := &out.Fields[i]; count[key{f.Group, f.Name}] > 1 {
			f.Handle = f.Stream
		}
	}
	if c.Family != nil {
		out.family(c.Family, visible, c.Anchors)
	}
	c.training(&out)
	for i := range c.Branches {
		out.Branches = append(out.Branches, c.Branches[i].Name)
	}
	return out
}

// header is the first line of the canonical text, headerFamily that of a
// family's, headerUneven that of a model whose inputs and outputs differ in transfers.
const (
	header       = "popefgen contract 2"
	headerFamily = "popefgen contract 3"
	headerUneven = "popefgen contract 5"
)

// Text returns the canonical text: the header, the device iterations, one line
// for each field. The number of replicas stands there if it is not 1, the
// repeats of a field if they are not 1, and its stream handle where several of
// a group share a name. Two packages look the same to their callers, but for
// what the options of the generator add, if and only if these texts are the
// same. Names are quoted as Go strings in ASCII, so that the text does not
// depend on which characters a Go release considers printable.
//
//	popefgen contract 2
//	iterations 1
//	input "image" F32 [4 1 28 28]
//	output "logits" F32 [4 10]
//	load "rate" F32 []
//	save "w" F16 [10] repeats 2
//
// The text of a family is of format 3. It names the open dimensions, in whose
// place shapes have their names or what follows from them; behind the fields are
// the dimensions along which rows are independent, what is padded, and the
// members:
//
//	popefgen contract 3
//	iterations 1
//	dims batch seq
//	input "tokens" S64 [batch seq]
//	output "logits" F32 [batch (seq+1)/2 30]
//	output "boxes" F32 [batch <=300 4]
//	output "flat" F32 [?]
//	rows batch
//	pad seq "tokens" "0"
//	member 1 16 loose 480
//	member 4 32 loose 1920
//
// A length <=300 is one that data decides, at most 300; a ? is one that follows
// from no single dimension, which members list behind the word loose.
//
// The text of a fused model is of format 4. It names the branches, and every run input and output is called
// after one of them:
//
//	popefgen contract 4
//	iterations 1
//	branches detector reader
//	input "detector/image" F32 [1 3 320 320]
//	input "reader/image" F32 [1 3 48 192]
//	output "detector/boxes" F32 [100 4]
//	output "reader/text" S64 [1 24]
//
// The text of a model of which a run makes other numbers of transfers for some inputs and outputs than iterations says, as
// a training model has them, is of format 5. These say how many:
//
//	popefgen contract 5
//	iterations 8
//	input "x" F32 [16 8 8]
//	output "loss" F32 [] transfers 1
//
// The text of a model that trains is of format 6. It says which outputs Evaluate returns, which of what is saved are weights, and
// which values of the optimizer can be set:
//
//	popefgen contract 6
//	iterations 8
//	input "x" F32 [16 8 8]
//	output "loss" F32 [] transfers 1 evaluate
//	save "w" F32 [64 10] weight
//	save "Accl___w" F32 [64 10] state
//	optimizer "learningRate___default___FLOAT" F32 []
//
// That of one of several sizes is of format 7: as that of a family, with what format 6 says of fields.
func (c Callers) Text() string {
	if c.Family() {
		return c.pinned() + c.membersText()
	}
	return c.pinned()
}

// pinned is the part of the text whose hash is the contract's: all but how many
// sizes a family has, and what of them may be padded.
func (c *Callers) pinned() string {
	var b strings.Builder
	switch {
	case c.Family() && c.Trains:
		b.WriteString(headerTrainingFamily + "\n")
	case c.Family():
		b.WriteString(headerFamily + "\n")
	case c.Branches != nil:
		b.WriteString(headerBranches + "\n")
	case c.Trains:
		b.WriteString(headerTraining + "\n")
	case c.uneven():
		b.WriteString(headerUneven + "\n")
	default:
		b.WriteString(header + "\n")
	}
	if c.Replicas != 1 {
		fmt.Fprintf(&b, "replicas %d\n", c.Replicas)
	}
	fmt.Fprintf(&b, "iterations %d\n", c.Iterations)
	b.WriteString(c.dimsLine())
	b.WriteString(c.branchesLine())
	for i := range c.Fields {
		b.WriteString(c.line(&c.Fields[i]) + "\n")
	}
	return b.String()
}

// line returns a field's line of the text, without the newline.
func (c *Callers) line(f *Field) string {
	s := fmt.Sprintf("%s %+q %s", groupWords[f.Group], f.Name, c.info(f))
	if f.Repeats != 1 {
		s += fmt.Sprintf(" repeats %d", f.Repeats)
	}
	if f.Transfers > 0 {
		s += fmt.Sprintf(" transfers %d", f.Transfers)
	}
	if f.Evaluated {
		s += " evaluate"
	}
	if f.Weight {
		s += " weight"
	}
	if f.Kept {
		s += " state"
	}
	if f.Handle != "" {
		s += " handle " + strconv.QuoteToASCII(f.Handle)
	}
	return s
}

// Hash returns the SHA-256 of the canonical text, in 64 hexadecimal digits: of a
// family's text down to the last field, so that members may be added.
func (c Callers) Hash() string { return hashText(c.pinned()) }

func hashText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Parse reads a canonical text. It accepts exactly what [Callers.Text] writes;
// every other text is an error that wraps [ErrText] and names the line.
func Parse(text string) (Callers, error) {
	p := parser{rest: text, line: 1}
	c := Callers{Replicas: 1}
	of, fused, uneven := p.skip(headerFamily), p.skip(headerBranches), p.skip(headerUneven)
	both := p.skip(headerTrainingFamily)
	p.trains = p.skip(headerTraining) || both
	c.Trains, of = p.trains, of || both
	if !of && !fused && !uneven && !p.trains {
		p.word(header)
	}
	p.newline()
	if p.skip("replicas ") {
		c.Replicas = p.number()
		p.newline()
	}
	p.word("iterations ")
	c.Iterations = int(p.number())
	p.newline()
	switch {
	case of:
		p.family(&c)
	case fused:
		p.branches(&c)
	}
	for !of && !fused && p.err == nil && p.rest != "" {
		c.Fields = append(c.Fields, p.field(nil))
		p.newline()
	}
	if p.err != nil {
		return Callers{}, p.err
	}
	for i := range c.Fields {
		if f := &c.Fields[i]; f.Transfers > 0 && f.Transfers == c.Iterations {
			return Callers{}, fmt.Errorf("%w: %s: its %d transfers are those that the line iterations says", ErrText, f.what(), f.Transfers)
		}
	}
	if c.Trains && !slices.ContainsFunc(c.Fields, func(f Field) bool { return f.Weight || f.Group == OptimizerValues }) {
		return Callers{}, fmt.Errorf("%w: a model that trains has neither weights nor values of an optimizer", ErrText)
	}
	if at := differs(c.Text(), text); at > 0 {
		return Callers{}, fmt.Errorf("%w: line %d: written in another way", ErrText, at)
	}
	for i := 1; i < len(c.Fields); i++ {
		if c.Fields[i].Group < c.Fields[i-1].Group {
			return Callers{}, fmt.Errorf("%w: %s %q: out of order", ErrText, groupNouns[c.Fields[i].Group], c.Fields[i].Name)
		}
	}
	return c, nil
}

// field reads a field; axes reads the shape of a family's, nil that of a model
// of one size.
func (p *parser) field(axes func(f *Field)) Field {
	f := Field{Repeats: 1}
	for g := Inputs; g < numGroups && f.Group == Hidden; g++ {
		if p.skip(groupWords[g] + " ") {
			f.Group = g
		}
	}
	if f.Group == Hidden {
		p.fail("input, output, load, save or optimizer")
	}
	f.Name = p.quoted()
	p.word(" ")
	f.Info.DataType = p.elem()
	p.word(" ")
	if axes == nil {
		p.list(func() { f.Info.Shape = append(f.Info.Shape, p.dimension()) })
	} else {
		p.list(func() { axes(&f) })
	}
	if p.skip(" repeats ") {
		f.Repeats = p.number()
	}
	if f.runs() && axes == nil && p.skip(" transfers ") {
		f.Transfers = int(p.number())
	}
	p.flags(&f)
	if p.skip(" handle ") {
		f.Handle = p.quoted()
	}
	return f
}
