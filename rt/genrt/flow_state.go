package genrt

import (
	"fmt"

	"github.com/popefgen/popefgen/rt"
)

// Save copies the state to views, in the order of the specification. It gives those with open dimensions
// their sizes.
func (s *Flow) Save(to []View) error {
	if _, _, err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.End()
	for i := range s.kept {
		k, v := &s.kept[i], &to[i]
		t := &s.family.fit.tensors[k.Input]
		if t.open {
			for f := range t.fields {
				*v.size(f) = lengthOf(t.fields[f].axis, s.spec, s.past)
			}
			n := t.now(v)
			v.resize(n, n, t.elem)
		}
		switch {
		case k.Grows == 0:
			mem := k.sets[s.now].bytes(t)
			copy(v.bytes(len(mem)/max(1, t.elem), t.elem), mem)
		case s.past > 0:
			n, mem, line := s.past*k.inner, k.bytes(), s.class*k.inner
			to := v.bytes(t.now(v), t.elem)
			for o := range k.outer {
				copy(to[o*n:][:n], mem[o*line:])
			}
		}
	}
	return nil
}

// Load makes the state that of views, in the order of the specification. If it fails the state stays as it
// was.
func (s *Flow) Load(from []View) error {
	if _, _, err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.End()
	if err := s.load(from); err != nil {
		return s.family.errorf("set the state of a stream", err)
	}
	return nil
}

func (s *Flow) load(from []View) error {
	fit, past := s.family.fit, -1
	for i := range s.kept {
		t, v := &fit.tensors[s.kept[i].Input], &from[i]
		for k := range t.fields {
			x, n := t.fields[k].axis, *v.size(k)
			want := lengthOf(x, s.spec, max(past, 0))
			if s.kept[i].Grows > 0 && x.Dim == s.spec.Past {
				if past < 0 && n >= 0 {
					past = n
				}
				want = past
			}
			if n != want {
				return &rt.SizeError{Field: "State." + t.spec.GoName + "." + t.fields[k].name, Anchor: t.spec.Name, Size: n,
					Reason: fmt.Sprintf("is %d, and that of a state is %d: give one that State has filled", n, max(want, 0))}
			}
		}
		if t.open {
			n, _ := v.elements()
			if want := t.now(v); n != want {
				return &rt.SizeError{Field: "State." + t.spec.GoName, Anchor: t.spec.Name, Size: n, Reason: fmt.Sprintf("has %d elements, and its sizes make %d", n, want)}
			}
		}
	}
	if past >= 0 {
		all, _, _ := fit.table.Sizes(s.spec.Past)
		if past > all[len(all)-1] {
			return s.over(past)
		}
		was := s.past
		s.past = 0
		class := 0
		for _, class = range all {
			if class >= past {
				break
			}
		}
		if err := s.move(class); err != nil {
			s.past = was
			return err
		}
		s.past = past
	}
	for i := range s.kept {
		k, v := &s.kept[i], &from[i]
		t := &fit.tensors[k.Input]
		if k.Grows == 0 {
			mem := k.sets[s.now].bytes(t)
			copy(mem, v.bytes(len(mem)/max(1, t.elem), t.elem))
			continue
		}
		n, mem, line, of := past*k.inner, k.bytes(), s.class*k.inner, v.bytes(t.now(v), t.elem)
		for o := range k.outer {
			copy(mem[o*line:][:n], of[o*n:])
		}
	}
	return nil
}
