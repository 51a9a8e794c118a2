package genrt

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// agreement is what generated code and the model that it opens have in common.
type agreement struct {
	contract contract.Contract // the model's
	handles  []string          // stream handles in the model, by anchor of the spec
	extra    []string          // stream handles of outputs that the code does not know
	family   *Family           // that the code is for; nil for a model of one size
	branches *Branches         // likewise, for a fused model
}

// agree compares what the callers of generated code rely on with a model, and
// finds the model's streams for the code's anchors by their names. Everything
// that callers do not see may be another.
func agree(spec *Spec, m *popef.Model) (*agreement, error) {
	fields, err := contract.Parse(spec.Contract)
	if err != nil {
		return nil, fmt.Errorf("package %s: %w: its contract: %w", spec.Package, rt.ErrGenerated, err)
	}
	if spec.Iterations != fields.Iterations || spec.QueueDepth < 1 {
		return nil, fmt.Errorf("package %s: %w: %d iterations (the contract has %d), queue depth %d",
			spec.Package, rt.ErrGenerated, spec.Iterations, fields.Iterations, spec.QueueDepth)
	}
	want := contract.Published{Callers: fields, Samples: spec.Batch > 0}
	at := make([]int, len(spec.Anchors)) // its fields
	names := make([]string, len(fields.Fields))
	for i := range spec.Anchors {
		if at[i] = spec.Anchors[i].field(fields.Fields); at[i] < 0 {
			return nil, fmt.Errorf("package %s: %w: its contract has no %v %q", spec.Package, rt.ErrGenerated, spec.Anchors[i].Role, spec.Anchors[i].Name)
		}
		names[at[i]] = spec.Anchors[i].GoName
	}
	if !slices.Contains(names, "") {
		want.GoNames = names
	}
	a := &agreement{contract: contract.Of(m)}
	if err := a.contract.Refused; err != nil {
		return nil, err
	}
	found := a.contract.Published()
	compared := contract.Compare(want, found)
	findings, pairs := compared.Findings, compared.Fields
	if !contract.Opens(findings) {
		return nil, &rt.ContractError{
			Package: spec.Package, Model: callerr.ModelName(m), Want: want.Hash(), Found: found.Hash(), Findings: findings,
		}
	}
	for i := range spec.Anchors {
		a.handles = append(a.handles, found.Fields[pairs[at[i]]].Stream)
	}
	for i, f := range found.Fields {
		if !slices.Contains(pairs, i) {
			a.extra = append(a.extra, f.Stream)
		}
	}
	return a, nil
}

// field returns the index of the field that the anchor is, -1 if there is none.
func (a *AnchorSpec) field(fields []contract.Field) int {
	group := (&contract.Anchor{Role: a.Role}).Group()
	return slices.IndexFunc(fields, func(f contract.Field) bool {
		return f.Group == group && f.Name == a.Name && (f.Handle == "" || f.Handle == a.Handle)
	})
}

// freeze makes options that name a run input of the spec mean its stream, also
// where the model has a weight of that name.
func (a *agreement) freeze(spec *Spec, o *session.Options) {
	o.Frozen = slices.Clone(o.Frozen)
	for i := range o.Frozen {
		name := o.Frozen[i].Anchor
		at := slices.IndexFunc(spec.Anchors, func(s AnchorSpec) bool {
			return s.Role == RunInput && (s.Handle == name || s.Handle == "" && s.Name == name)
		})
		switch {
		case at < 0:
		case a.family != nil: // each member has a stream of its own
			handles := a.family.handles(&spec.Anchors[at])
			o.Frozen[i].Anchor = handles[0]
			for _, h := range handles[1:] {
				o.Frozen = append(o.Frozen, rt.Weight{Anchor: h, Data: o.Frozen[i].Data})
			}
		default:
			o.Frozen[i].Anchor = a.handles[at]
		}
	}
}

// drop connects outputs that the code does not know, since it was generated
// before the model had them, to nothing.
func (a *agreement) drop(s *session.Session) error {
	for _, handle := range a.extra {
		if i := s.IndexOf(handle); i >= 0 && s.Ends[i] == session.Vacant && s.Infos[i].Direction == ipu.DeviceToHost {
			if err := s.Attach(i, hostmem.Nothing{}, session.Drained); err != nil {
				return err
			}
		}
	}
	return nil
}
