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
	Hidden      Group = iota // in none
	Inputs                   // [RunInput]
	Outputs                  // [RunOutput]
	LoadInputs               // [LoadInput], or a [Seed] that the files have no data for
	SaveOutputs              // [SaveOutput]
	numGroups
)

var (
	structNames = [numGroups]string{"", "Inputs", "Outputs", "LoadInputs", "SaveOutputs"}
	groupWords  = [numGroups]string{"", "input", "output", "load", "save"}
	groupNouns  = [numGroups]string{"hidden anchor", "run input", "run output", "load input", "save output"}
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

// Group returns where callers of generated code see the anchor.
func (a *Anchor) Group() Group {
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
	}
	return Hidden
}

// Callers is the part of a contract that callers of a generated package see:
// the fields of its structs, in their order, with their types, and how many
// transfers a run makes. What the files carry data for, which programs move
// what, stream handles and the hardware are not in it.
type Callers struct {
	Replicas   uint32  // replication factor of the executable; generated code opens only 1
	Iterations int     // transfers of every run input and output in one run, at least 1
	Fields     []Field // by group, and in the file's order within one
}

// Field is an anchor that callers see.
type Field struct {
	Group   Group
	Name    string           // of the anchor
	Info    popef.TensorInfo // element type and shape of one transfer
	Repeats uint32           // equal blocks in a remote buffer, at least 1
	Handle  string           // stream handle where several fields of the group have the name, else ""
	Stream  string           // stream handle in the model; "" if the field was read from a text
}

// Visible returns the anchors that callers of generated code see: by group, and
// in the file's order within one.
func (c Contract) Visible() []Anchor {
	out := slices.DeleteFunc(slices.Clone(c.Anchors), func(a Anchor) bool { return a.Group() == Hidden })
	slices.SortFunc(out, func(a, b Anchor) int { return cmp.Or(cmp.Compare(a.Group(), b.Group()), cmp.Compare(a.Index, b.Index)) })
	return out
}

// Callers returns what callers of generated code see of the contract. Its
// fields are the anchors of [Contract.Visible].
func (c Contract) Callers() Callers {
	out := Callers{Replicas: c.Replicas, Iterations: c.DeviceIterations()}
	for _, a := range c.Visible() {
		out.Fields = append(out.Fields, Field{Group: a.Group(), Name: a.Name, Info: a.Info, Repeats: a.Repeats, Stream: a.Handle})
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
	return out
}

// header is the first line of the canonical text.
const header = "popefgen contract 2"

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
func (c Callers) Text() string {
	var b strings.Builder
	b.WriteString(header + "\n")
	if c.Replicas != 1 {
		fmt.Fprintf(&b, "replicas %d\n", c.Replicas)
	}
	fmt.Fprintf(&b, "iterations %d\n", c.Iterations)
	for i := range c.Fields {
		b.WriteString(c.Fields[i].line() + "\n")
	}
	return b.String()
}

// line returns the field's line of the text, without the newline.
func (f *Field) line() string {
	s := fmt.Sprintf("%s %+q %v", groupWords[f.Group], f.Name, f.Info)
	if f.Repeats != 1 {
		s += fmt.Sprintf(" repeats %d", f.Repeats)
	}
	if f.Handle != "" {
		s += " handle " + strconv.QuoteToASCII(f.Handle)
	}
	return s
}

// Hash returns the SHA-256 of the canonical text, in 64 hexadecimal digits.
func (c Callers) Hash() string { return hashText(c.Text()) }

func hashText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Parse reads a canonical text. It accepts exactly what [Callers.Text] writes;
// every other text is an error that wraps [ErrText] and names the line.
func Parse(text string) (Callers, error) {
	p := parser{rest: text, line: 1}
	c := Callers{Replicas: 1}
	p.word(header)
	p.newline()
	if p.skip("replicas ") {
		c.Replicas = p.number()
		p.newline()
	}
	p.word("iterations ")
	c.Iterations = int(p.number())
	p.newline()
	for p.err == nil && p.rest != "" {
		c.Fields = append(c.Fields, p.field())
		p.newline()
	}
	if p.err != nil {
		return Callers{}, p.err
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

func (p *parser) field() Field {
	f := Field{Repeats: 1}
	for g := Inputs; g < numGroups && f.Group == Hidden; g++ {
		if p.skip(groupWords[g] + " ") {
			f.Group = g
		}
	}
	if f.Group == Hidden {
		p.fail("input, output, load or save")
	}
	f.Name = p.quoted()
	p.word(" ")
	f.Info = p.info()
	if p.skip(" repeats ") {
		f.Repeats = p.number()
	}
	if p.skip(" handle ") {
		f.Handle = p.quoted()
	}
	return f
}
