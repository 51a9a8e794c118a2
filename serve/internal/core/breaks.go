package core

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// fits compares a version with those that it would take requests from.
func fits(serving []*Version, v *Version) error {
	for i, old := range serving {
		if old.Name == v.Name || i == 0 && later(v.Name, old.Name) > 0 {
			if err := breaks(old, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// breaks returns why callers of old would not get along with new, nil if they would.
func breaks(old, new *Version) error {
	var why []string
	if old.Spec.Contract != "" && new.Spec.Contract != "" && old.hash != new.hash {
		a, err := contract.Parse(old.Spec.Contract)
		if err != nil {
			return err
		}
		b, err := contract.Parse(new.Spec.Contract)
		if err != nil {
			return err
		}
		for _, f := range contract.Judge(contract.Published{Callers: a}, contract.Published{Callers: b}) {
			// A typed client compares as the Open of its package does, which is stricter than the verdict: it has buffers of the old bound of
			// an output, say, and would refuse every answer from then on.
			if f.Verdict == contract.Breaking || !f.Opens {
				why = append(why, f.Change())
			}
		}
		if n := len(new.Spec.Contract); len(why) == 0 && n > agree.MaxText {
			why = append(why, fmt.Sprintf("its contract has %d bytes and changed, and typed clients can compare %d at most", n, agree.MaxText))
		}
	}
	if len(why) == 0 {
		why = differ(old.Spec, new.Spec)
	}
	if len(why) == 0 {
		return nil
	}
	const most = 8
	text := why[0]
	for i, w := range why[1:] {
		if i+1 == most {
			text += fmt.Sprintf("; and %d more", len(why)-most)
			break
		}
		text += "; " + w
	}
	return oip.Errorf(oip.FailedPrecondition, "model '%s', version %s would break callers of version %s, which goes on serving: %s", old.Spec.Name, new.Name, old.Name, text)
}

// differ lists what requests that the old model takes rely on and the new one does not have.
func differ(old, new *oip.Spec) (why []string) {
	if new.Samples < old.Samples || old.Samples == 0 && new.Samples > 0 {
		why = append(why, fmt.Sprintf("samples of a request at most were %d, are %d", old.Samples, new.Samples))
	}
	for i := range old.Inputs {
		was := &old.Inputs[i]
		switch is := named(new.Inputs, was.Name); {
		case is == nil:
			why = append(why, fmt.Sprintf("input '%s' is gone", was.Name))
		case !takes(is, was):
			why = append(why, fmt.Sprintf("input '%s' was %s %s, is %s %s", was.Name, was.Type, wire.Shape(was), is.Type, wire.Shape(is)))
		}
	}
	for i := range new.Inputs {
		if is := &new.Inputs[i]; named(old.Inputs, is.Name) == nil {
			why = append(why, fmt.Sprintf("input '%s' is new", is.Name))
		}
	}
	for i := range old.Outputs {
		was := &old.Outputs[i]
		switch is := named(new.Outputs, was.Name); {
		case is == nil:
			why = append(why, fmt.Sprintf("output '%s' is gone", was.Name))
		case is.Type != was.Type || !slices.Equal(is.Shape, was.Shape):
			why = append(why, fmt.Sprintf("output '%s' was %s %s, is %s %s", was.Name, was.Type, wire.Shape(was), is.Type, wire.Shape(is)))
		}
	}
	return why
}

func named(of []oip.Tensor, name string) *oip.Tensor {
	if i := slices.IndexFunc(of, func(t oip.Tensor) bool { return t.Name == name }); i >= 0 {
		return &of[i]
	}
	return nil
}

// takes reports whether an input takes all that another one took.
func takes(is, was *oip.Tensor) bool {
	if is.Type != was.Type || len(is.Shape) != len(was.Shape) {
		return false
	}
	for i := range is.Shape {
		open := is.Shape[i] < 0
		if !open && is.Shape[i] != was.Shape[i] || open && was.Largest(i) > is.Largest(i) {
			return false
		}
	}
	return true
}
