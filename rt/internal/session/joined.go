package session

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
)

// join is a stream of the engine whose transfers have several inputs side by side. Behind the engine's
// streams the session has one for each input.
type join struct {
	stream *hostmem.Joined
	first  int // index of its first input among the streams
	end    int
}

// Joined returns the stream that moves the input with that index among the streams together with others; nil if
// it has one of its own.
func (s *Session) Joined(i int) *hostmem.Joined {
	if j, _ := s.joinOf(i); j != nil {
		return j.stream
	}
	return nil
}

// joinOf returns the joined stream that input i is in, and which it is there.
func (s *Session) joinOf(i int) (*join, int) {
	for k := range s.joins {
		if j := &s.joins[k]; i >= j.first && i < j.end {
			return j, i - j.first
		}
	}
	return nil, 0
}

// join adds a stream for each input that the executable has in a joined one.
func (s *Session) join() error {
	for _, in := range s.model.Joined() {
		at := s.IndexOf(in.Anchor.Handle)
		if at < 0 {
			return fmt.Errorf("opaque blob %q: joined input %q: %w: the executable has no stream %q", popef.JoinedBlob, in.Anchor.Name, popef.ErrJoined, in.Anchor.Handle)
		}
		st := s.Infos[at]
		size, err := in.Anchor.Info.SizeInBytes()
		switch {
		case err != nil:
			return err
		case st.Direction != ipu.HostToDevice || int64(st.Bytes) != size:
			return fmt.Errorf("opaque blob %q: joined input %q: %w: it has %d bytes, and the executable's stream goes %v with %d", popef.JoinedBlob, in.Anchor.Name, popef.ErrJoined, size, st.Direction, st.Bytes)
		case st.Fields != nil && len(st.Fields) != len(in.Fields):
			return fmt.Errorf("opaque blob %q: joined input %q: %w: it has %d fields, and the executable takes %d out of a transfer", popef.JoinedBlob, in.Anchor.Name, popef.ErrJoined, len(in.Fields), len(st.Fields))
		}
		j := join{stream: hostmem.NewJoined(st.Bytes), first: len(s.Infos), end: len(s.Infos) + len(in.Fields)}
		for _, f := range in.Fields {
			a := &s.model.Metadata.Anchors[f.Anchor]
			if err := sameField(&st, a, f.Offset); err != nil {
				return fmt.Errorf("opaque blob %q: joined input %q: field %q: %w: %w", popef.JoinedBlob, in.Anchor.Name, a.Name, popef.ErrJoined, err)
			}
			bytes, err := a.Info.SizeInBytes()
			if err != nil {
				return fmt.Errorf("anchor %q: %w", a.Name, err)
			}
			j.stream.Add(int(f.Offset), int(bytes))
			s.Infos = append(s.Infos, ipu.StreamInfo{Handle: a.Handle, Direction: ipu.HostToDevice, Bytes: int(bytes),
				Type: a.Info.DataType.String(), Shape: slices.Clone(a.Info.Shape), Programs: slices.Clone(st.Programs), Transfers: slices.Clone(st.Transfers)})
		}
		s.Ends = append(s.Ends, make([]End, len(s.Infos)-len(s.Ends))...)
		s.joins = append(s.joins, j)
		if err := s.engine.Connect(in.Anchor.Handle, j.stream); err != nil {
			return err
		}
		s.Ends[at] = Given
	}
	return nil
}

// typesOf says in which types of a file elements of an engine's are.
var typesOf = map[string]popef.DataType{
	"bool": popef.Bool, "i8": popef.S8, "u8": popef.U8, "i16": popef.S16, "u16": popef.U16, "i32": popef.S32, "u32": popef.U32,
	"i64": popef.S64, "u64": popef.U64, "f16": popef.F16, "bf16": popef.U16, "f32": popef.F32, "f64": popef.F64,
	"i4": popef.S8, "u4": popef.U8, "i2": popef.S8, "u2": popef.U8, "f8e4m3": popef.F8143, "f8e5m2": popef.F8152,
}

// sameField returns in what a field of a stream differs from what the engine says of it.
func sameField(st *ipu.StreamInfo, a *popef.Anchor, offset int64) error {
	if st.Fields == nil {
		return nil
	}
	i := slices.IndexFunc(st.Fields, func(f ipu.FieldInfo) bool { return f.Handle == a.Handle })
	if i < 0 {
		return fmt.Errorf("the executable has no field with the handle %q in the stream %q", a.Handle, st.Handle)
	}
	f := &st.Fields[i]
	if typ, ok := typesOf[f.Type]; int64(f.Offset) != offset || ok && typ != a.Info.DataType || !slices.Equal(f.Shape, a.Info.Shape) {
		return fmt.Errorf("it is %v at byte %d, and the executable has %s %v at byte %d", a.Info, offset, f.Type, f.Shape, f.Offset)
	}
	return nil
}
