package plan

import (
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/popef/contract"
)

// document writes what the package's documentation says of each tensor and
// field. Everything in it follows from the contract, so that a model with the
// same contract gives the same text.
func (b *builder) document() {
	p := &b.plan
	uses := make([][]string, len(p.Tensors))
	for _, g := range []*[]Field{&p.LoadInputs, &p.Inputs, &p.Outputs, &p.SaveOutputs} {
		for i := range *g {
			f := &(*g)[i]
			a := p.Anchors[f.Anchor]
			use := roleNoun(a.Role)
			if a.Handle != "" { // else the name says which it is
				use += fmt.Sprintf(" of stream handle %q", a.Handle)
			}
			uses[f.Tensor] = append(uses[f.Tensor], use)
			f.Doc = fmt.Sprintf("%q: %s", a.Name, a.Info)
			if f.Iterated {
				f.Doc += ", once per device iteration"
			}
		}
	}
	for i := range p.Tensors {
		t, u := &p.Tensors[i], uses[i]
		t.FromDoc = fmt.Sprintf("%s views flat, which must have exactly %s, as *%s, without copying.",
			t.From, counted(t.Elements, "element", "elements"), t.Name)
		info := fmt.Sprintf("%s, %s", b.infoOf(i), counted(t.Bytes, "byte", "bytes"))
		t.Doc = fmt.Sprintf("%s is the %s %q: %s.", t.Name, strings.Join(u, " and the "), t.Anchor, info)
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
		return "run input"
	case contract.RunOutput:
		return "run output"
	case contract.LoadInput, contract.Seed:
		return "load-time input"
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
