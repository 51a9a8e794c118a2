package plan

import (
	"cmp"
	"slices"
)

// Joined is memory in which inputs lie as they do in a transfer that has all of them: what
// NewInputs returns is read there, without a copy.
type Joined struct {
	Fields []JoinedField // ascending by offset
	Gap    int64         // bytes behind the last one
	Bytes  int64
}

// JoinedField is one of the inputs.
type JoinedField struct {
	Input  int // index in Plan.Inputs
	Offset int64
	Gap    int64 // bytes before it that are nobody's
}

// joined lays inputs side by side where the model moves them as one. Repeated inputs and
// those of several sizes or branches are copied together when they are moved.
func (b *builder) joined() {
	p := &b.plan
	all := b.model.Joined()
	if len(all) != 1 || p.Family != nil || p.Branches != nil || p.Repeated() || len(b.problems) > 0 {
		return
	}
	size, err := all[0].Anchor.Info.SizeInBytes()
	if err != nil {
		b.problem("anchor %q: %v", all[0].Anchor.Name, err)
		return
	}
	j := &Joined{Bytes: size}
	for _, f := range all[0].Fields {
		at := slices.IndexFunc(p.Inputs, func(in Field) bool { return b.metas[in.Anchor] == &b.model.Metadata.Anchors[f.Anchor] })
		if at < 0 {
			return // an input that callers do not give
		}
		if p.Tensors[p.Inputs[at].Tensor].Bytes > 0 {
			j.Fields = append(j.Fields, JoinedField{Input: at, Offset: f.Offset})
		}
	}
	slices.SortFunc(j.Fields, func(a, b JoinedField) int { return cmp.Compare(a.Offset, b.Offset) })
	end := int64(0)
	for i := range j.Fields {
		f := &j.Fields[i]
		f.Gap, end = f.Offset-end, f.Offset+p.Tensors[p.Inputs[f.Input].Tensor].Bytes
	}
	if j.Gap = size - end; len(j.Fields) > 0 {
		p.Joined = j
	}
}

// IsJoined reports whether an input, by index, lies beside others.
func (p *Plan) IsJoined(input int) bool {
	return p.Joined != nil && slices.ContainsFunc(p.Joined.Fields, func(f JoinedField) bool { return f.Input == input })
}
