package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/popef/contract"
)

// document writes what the package's documentation says of each tensor and
// field. Everything in it follows from the contract, so that a model with the
// same contract gives the same text.
func (b *builder) document() {
	p := &b.plan
	uses, handles := make([][]string, len(p.Tensors)), make([][]string, len(p.Tensors))
	for _, g := range []*[]Field{&p.LoadInputs, &p.Inputs, &p.Outputs, &p.SaveOutputs} {
		for i := range *g {
			f := &(*g)[i]
			a := p.Anchors[f.Anchor]
			uses[f.Tensor] = append(uses[f.Tensor], roleNoun(a.Role))
			if a.Handle != "" { // else the name says which it is
				handles[f.Tensor] = append(handles[f.Tensor], strconv.Quote(a.Handle))
			}
			f.Doc = fmt.Sprintf("%q: %s", a.Name, a.Info)
			switch {
			case f.Iterated && f.Uneven:
				f.Doc += fmt.Sprintf(", %d times in a run", f.Transfers)
			case f.Uneven:
				f.Doc += ", once in a run"
			case f.Iterated:
				f.Doc += ", once per device iteration"
			}
		}
	}
	for i := range p.Tensors {
		t, name := &p.Tensors[i], strconv.Quote(p.Tensors[i].Anchor)
		if len(handles[i]) > 0 {
			name += fmt.Sprintf(" (stream handle %s)", strings.Join(handles[i], " and "))
		}
		if t.IsOpen() {
			b.openDoc(t, uses[i], name, b.infoOf(i))
			continue
		}
		t.FromDoc = fmt.Sprintf("%s returns flat, which must have exactly %s, as a *%s that shares its memory.",
			t.From, counted(t.Elements, "element", "elements"), t.Name)
		info := fmt.Sprintf("%s, %s", b.infoOf(i), counted(t.Bytes, "byte", "bytes"))
		t.Doc = fmt.Sprintf("%s is the %s %s: %s.", t.Name, strings.Join(uses[i], " and the "), name, info)
	}
}

// infoOf returns the type and shape of tensor t as the model file has them.
func (b *builder) infoOf(t int) string {
	for i, u := range b.tensor {
		if u == t {
			return b.plan.Anchors[i].Info
		}
	}
	return ""
}

// roleNoun is what documentation calls an anchor of that role.
func roleNoun(r contract.Role) string {
	switch r {
	case contract.RunInput:
		return "input"
	case contract.RunOutput:
		return "output"
	case contract.LoadInput, contract.Seed:
		return "load input"
	case contract.SaveOutput:
		return "save output"
	}
	return r.String()
}

// counted returns "1 byte" or "2 bytes".
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
