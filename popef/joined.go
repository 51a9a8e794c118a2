package popef

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/popef/internal/joined"
)

// JoinedBlob is the name of the opaque blob, JSON, that says which inputs a file moves side by side in
// one transfer.
const JoinedBlob = "popefgen.concat"

// JoinedInput is a stream of an executable each transfer of which has several inputs side by side.
// In the file it is an anchor of its own, and the inputs stand in the blob [JoinedBlob]; in
// [Model.Metadata] it is the inputs that are anchors.
type JoinedInput struct {
	Anchor Anchor        // as it stands in the file
	Fields []JoinedField // in the order of their anchors
}

// JoinedField is one of the inputs.
type JoinedField struct {
	Anchor int   // index in the metadata's anchors
	Offset int64 // bytes from the beginning of a transfer; a multiple of the size of an element
}

// Joined returns the inputs of which the executable moves several as one; nil if there are none. Fields
// lie within their transfers and do not overlap.
func (m *Model) Joined() []JoinedInput { return m.joined }

// JoinInputs returns the metadata of a file that moves inputs of meta as all says, and the payload
// of its blob [JoinedBlob]. All fields of a joined input belong to the same programs.
func JoinInputs(meta *Metadata, all []JoinedInput) (Metadata, []byte) {
	file := *meta
	file.Anchors = nil
	first := map[int]*Anchor{} // anchors of the file that stand where their first field did
	field := map[int]bool{}
	streams := make([]joined.Stream, len(all))
	for i := range all {
		j := &all[i]
		first[j.Fields[0].Anchor] = &j.Anchor
		size, _ := j.Anchor.Info.SizeInBytes()
		streams[i] = joined.Stream{Name: j.Anchor.Name, Handle: j.Anchor.Handle, Bytes: size}
		for _, f := range j.Fields {
			a := &meta.Anchors[f.Anchor]
			field[f.Anchor] = true
			streams[i].Fields = append(streams[i].Fields, joined.Field{Name: a.Name, Handle: a.Handle, Type: a.Info.DataType.String(),
				Shape: append([]int64{}, a.Info.Shape...), Offset: f.Offset, Place: f.Anchor})
		}
	}
	for i, a := range meta.Anchors {
		switch {
		case first[i] != nil:
			file.Anchors = append(file.Anchors, *first[i])
		case !field[i]:
			file.Anchors = append(file.Anchors, a)
		}
	}
	return file, joined.Encode(streams)
}

// typeNamed returns the element type of that name.
func typeNamed(name string) (DataType, bool) {
	i := slices.IndexFunc(dataTypes[:], func(t struct {
		name string
		size int
	}) bool {
		return t.name == name
	})
	return DataType(i), i >= 0
}

// join gives a model the fields of its joined inputs in place of their anchors, if it has any.
func (l *linker) join(m *Model) {
	var blob *Blob
	for _, b := range m.opaques {
		if b.Name != JoinedBlob {
			continue
		}
		if blob != nil {
			l.problem(b, errorf(ErrJoined, "there is one already at %s", blob.seenFrom(b)), joinedHint)
			return
		}
		blob = b
	}
	if blob == nil {
		return
	}
	if err := m.readJoined(blob); err != nil {
		l.problem(blob, errorf(ErrJoined, "%w", err), joinedHint)
	}
}

const joinedHint = "compile the model again, with or without --concat-inputs"

// readJoined reads the plan and holds it against the anchors.
func (m *Model) readJoined(b *Blob) error {
	if b.PayloadSize > joined.MaxBytes {
		return fmt.Errorf("it has %d bytes, want at most %d", b.PayloadSize, joined.MaxBytes)
	}
	data, err := b.Bytes()
	if err != nil {
		return err
	}
	streams, err := joined.Decode(data, func(name string) int {
		t, ok := typeNamed(name)
		if !ok {
			return 0
		}
		return t.Size()
	})
	if err != nil {
		return err
	}
	file := m.Metadata.Anchors
	total := len(file)
	at := map[string]int{} // anchors of the file, by handle
	for i := range file {
		if _, taken := at[file[i].Handle]; taken {
			at[file[i].Handle] = -1
		} else {
			at[file[i].Handle] = i
		}
	}
	gone := map[int]bool{}
	for i := range streams {
		s := &streams[i]
		k, ok := at[s.Handle]
		if !ok || k < 0 || file[k].Name != s.Name {
			return fmt.Errorf("joined input %q: the metadata has no anchor of this name alone with the handle %q", s.Name, s.Handle)
		}
		if err := m.joinable(&file[k], s); err != nil {
			return fmt.Errorf("joined input %q: %w", s.Name, err)
		}
		gone[k] = true
		total += len(s.Fields) - 1
	}
	anchors := make([]Anchor, total)
	set := make([]bool, total)
	for i := range streams {
		s := &streams[i]
		whole := &file[at[s.Handle]]
		j := JoinedInput{Anchor: *whole}
		for k := range s.Fields {
			f := &s.Fields[k]
			other, taken := at[f.Handle]
			switch {
			case taken:
				name := "several anchors"
				if other >= 0 {
					name = fmt.Sprintf("anchor %q", file[other].Name)
				}
				return fmt.Errorf("joined input %q: field %q: its handle %q is that of %s too", s.Name, f.Name, f.Handle, name)
			case f.Place >= total:
				return fmt.Errorf("joined input %q: field %q: it is anchor %d, and there are %d with the fields", s.Name, f.Name, f.Place, total)
			case m.byName[f.Name] != nil:
				return fmt.Errorf("joined input %q: field %q: the files carry data of this name, so that nobody gives it with a request", s.Name, f.Name)
			}
			t, _ := typeNamed(f.Type)
			a := *whole
			a.Name, a.Handle, a.Info = f.Name, f.Handle, TensorInfo{Shape: f.Shape, DataType: t}
			if len(f.Shape) == 0 {
				a.Info.Shape = nil
			}
			anchors[f.Place], set[f.Place] = a, true
			j.Fields = append(j.Fields, JoinedField{f.Place, f.Offset})
		}
		slices.SortFunc(j.Fields, func(a, b JoinedField) int { return cmp.Compare(a.Anchor, b.Anchor) })
		m.joined = append(m.joined, j)
	}
	place := 0
	for i := range file {
		if gone[i] {
			continue
		}
		for set[place] {
			place++
		}
		anchors[place] = file[i]
		place++
	}
	inputs := map[moved]int{} // how many have the name
	for i := range anchors {
		for _, id := range movedBy(&anchors[i]) {
			inputs[id]++
		}
	}
	for _, j := range m.joined {
		for _, f := range j.Fields {
			for _, id := range movedBy(&anchors[f.Anchor]) {
				if inputs[id] > 1 {
					return fmt.Errorf("joined input %q: field %q: %d inputs that program %d moves have this name", j.Anchor.Name, id.name, inputs[id], id.program)
				}
			}
		}
	}
	m.Metadata.Anchors = anchors
	return nil
}

// moved is an input of a program.
type moved struct {
	name    string
	program uint32
}

// movedBy lists the programs that move an input.
func movedBy(a *Anchor) (all []moved) {
	if a.Type != Input {
		return nil
	}
	for _, p := range a.Programs {
		all = append(all, moved{a.Name, p})
	}
	return all
}

// joinable returns why an anchor can't be the joined input s.
func (m *Model) joinable(a *Anchor, s *joined.Stream) error {
	size, err := a.Info.SizeInBytes()
	switch {
	case err != nil:
		return err
	case a.Type != Input:
		return fmt.Errorf("its anchor is an %v, want an input", a.Type)
	case size != s.Bytes:
		return fmt.Errorf("its anchor is %v, %d bytes, and the blob says %d", a.Info, size, s.Bytes)
	case a.RemoteBuffer || a.Repeats > 1 || a.Handle == m.Metadata.SeedHandle:
		return fmt.Errorf("its anchor is a remote buffer or the seed, want an input that requests bring")
	case m.byName[a.Name] != nil:
		return fmt.Errorf("the files carry data for its anchor, want an input that requests bring")
	}
	return nil
}
