// Package joined reads and writes the plan by which a file moves several inputs as one: for each
// stream that does, which input stands at which byte of a transfer. It knows nothing of
// metadata; package popef holds a plan against it.
package joined

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Bounds on what a plan may claim.
const (
	MaxBytes   = 4 << 20 // of the blob
	maxStreams = 1024
	maxFields  = 1 << 16 // of all streams
	maxRank    = 64
	maxNumber  = 1 << 40
)

// Stream is one stream and the inputs that a transfer of it has.
type Stream struct {
	Name   string  `json:"anchor"` // of the anchor in the metadata
	Handle string  `json:"handle"`
	Bytes  int64   `json:"bytes"` // of one transfer
	Fields []Field `json:"fields"`
}

// Field is one input.
type Field struct {
	Name   string  `json:"name"`
	Handle string  `json:"handle"` // that it has where it is an input of its own
	Type   string  `json:"type"`   // such as "F32"
	Shape  []int64 `json:"shape"`
	Offset int64   `json:"offset"` // bytes
	Place  int     `json:"place"`  // among all anchors, if each field is one
}

// plan is what stands in the blob.
type plan struct {
	Version int      `json:"version"`
	Joined  []Stream `json:"joined"`
}

// Encode returns the plan as the payload of a blob.
func Encode(streams []Stream) []byte {
	data, err := json.Marshal(plan{1, streams})
	if err != nil {
		panic(err) // there is nothing in it that JSON has not
	}
	return data
}

// Decode reads a plan. size returns the bytes of an element of a type, 0 if there is none of that
// name. No two fields of the plan returned have a byte, a handle, or within one stream a
// name in common, and each lies in its stream at a multiple of the size of its elements.
func Decode(data []byte, size func(typ string) int) ([]Stream, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("it has %d bytes, want at most %d", len(data), MaxBytes)
	}
	var p plan
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("it is not read as JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more behind the JSON")
	}
	if p.Version != 1 {
		return nil, fmt.Errorf("it is of version %d, and this popefgen reads version 1", p.Version)
	}
	if n := len(p.Joined); n == 0 || n > maxStreams {
		return nil, fmt.Errorf("it has %d joined inputs, want 1 to %d", n, maxStreams)
	}
	handles, places, fields := map[string]bool{}, map[int]bool{}, 0
	for i := range p.Joined {
		s := &p.Joined[i]
		if s.Name == "" || s.Handle == "" || handles[s.Handle] {
			return nil, fmt.Errorf("joined input %d: it has the name %q and the handle %q, want a name and a handle of its own", i, s.Name, s.Handle)
		}
		handles[s.Handle] = true
		if fields += len(s.Fields); fields > maxFields {
			return nil, fmt.Errorf("joined input %q: there are %d fields, want at most %d", s.Name, fields, maxFields)
		}
		if len(s.Fields) == 0 {
			return nil, fmt.Errorf("joined input %q: it has no fields", s.Name)
		}
		if s.Bytes <= 0 || s.Bytes > maxNumber {
			return nil, fmt.Errorf("joined input %q: it has %d bytes", s.Name, s.Bytes)
		}
		if err := s.check(size, handles, places); err != nil {
			return nil, fmt.Errorf("joined input %q: %w", s.Name, err)
		}
	}
	return p.Joined, nil
}

// extent is where a field lies.
type extent struct {
	name       string
	start, end int64
}

// check checks the fields of one stream, and notes their handles and places.
func (s *Stream) check(size func(string) int, handles map[string]bool, places map[int]bool) error {
	names := map[string]bool{}
	var all []extent
	for i := range s.Fields {
		f := &s.Fields[i]
		bytes, err := f.check(size)
		switch {
		case f.Name == "" || names[f.Name]:
			return fmt.Errorf("field %d is called %q, want a name that no other has", i, f.Name)
		case err != nil:
			return fmt.Errorf("field %q: %w", f.Name, err)
		case f.Handle == "" || handles[f.Handle]:
			return fmt.Errorf("field %q: it has the handle %q, want one that no other has", f.Name, f.Handle)
		case f.Place < 0 || f.Place > maxNumber || places[f.Place]:
			return fmt.Errorf("field %q: it is anchor %d, want a place that no other has", f.Name, f.Place)
		case f.Offset > s.Bytes || bytes > s.Bytes-f.Offset:
			return fmt.Errorf("field %q: %d bytes from byte %d on run past the end of a transfer of %d bytes", f.Name, bytes, f.Offset, s.Bytes)
		}
		names[f.Name], handles[f.Handle], places[f.Place] = true, true, true
		if bytes > 0 {
			all = append(all, extent{f.Name, f.Offset, f.Offset + bytes})
		}
	}
	slices.SortFunc(all, func(a, b extent) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; b.start < a.end {
			return fmt.Errorf("field %q: it begins at byte %d, and field %q ends at byte %d: they overlap", b.name, b.start, a.name, a.end)
		}
	}
	return nil
}

// check returns the bytes of the field.
func (f *Field) check(size func(string) int) (int64, error) {
	elem := int64(size(f.Type))
	if elem <= 0 {
		return 0, fmt.Errorf("there is no element type %q", f.Type)
	}
	if len(f.Shape) > maxRank {
		return 0, fmt.Errorf("its shape has %d dimensions, want at most %d", len(f.Shape), maxRank)
	}
	if f.Offset < 0 || f.Offset > maxNumber || f.Offset%elem != 0 {
		return 0, fmt.Errorf("it begins at byte %d, want a multiple of the %d bytes of an element of type %s", f.Offset, elem, f.Type)
	}
	bytes := elem
	for _, n := range f.Shape {
		if n < 0 || n > maxNumber {
			return 0, fmt.Errorf("its shape is %v", f.Shape)
		}
		if bytes > 0 && n > maxNumber/bytes {
			bytes = maxNumber + 1 // unless a later dimension is 0
			n = 1
		}
		bytes *= n
	}
	if bytes > maxNumber {
		return 0, fmt.Errorf("its shape is %v: more than %d bytes", f.Shape, int64(maxNumber))
	}
	return bytes, nil
}
