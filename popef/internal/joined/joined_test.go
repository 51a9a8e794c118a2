package joined

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var elements = map[string]int{"U8": 1, "F16": 2, "F32": 4, "S64": 8}

func size(typ string) int { return elements[typ] }

// sound is a plan with nothing wrong.
func sound() []Stream {
	return []Stream{{Name: "all", Handle: "h2d_all", Bytes: 24, Fields: []Field{
		{Name: "a", Handle: "h2d_a", Type: "S64", Shape: []int64{2}, Offset: 0, Place: 0},
		{Name: "b", Handle: "h2d_b", Type: "F32", Shape: []int64{}, Offset: 16, Place: 2},
		{Name: "z", Handle: "h2d_z", Type: "F16", Shape: []int64{0, 5}, Offset: 0, Place: 3},
		{Name: "c", Handle: "h2d_c", Type: "U8", Shape: []int64{1, 4}, Offset: 20, Place: 1},
	}}}
}

// TestDecodeRefuses changes a sound plan in one thing.
func TestDecodeRefuses(t *testing.T) {
	got, err := Decode(Encode(sound()), size)
	require.NoError(t, err)
	require.Equal(t, sound(), got)
	tests := []struct {
		name   string
		change func(*Stream)
		want   string
	}{
		{"no name", func(s *Stream) { s.Name = "" }, `joined input 0: it has the name "" and the handle "h2d_all"`},
		{"no handle", func(s *Stream) { s.Handle = "" }, `joined input 0: it has the name "all" and the handle ""`},
		{"no bytes", func(s *Stream) { s.Bytes = 0 }, `joined input "all": it has 0 bytes`},
		{"negative bytes", func(s *Stream) { s.Bytes = -8 }, `it has -8 bytes`},
		{"no fields", func(s *Stream) { s.Fields = nil }, `joined input "all": it has no fields`},
		{"field without a name", func(s *Stream) { s.Fields[1].Name = "" }, `field 1 is called ""`},
		{"two of a name", func(s *Stream) { s.Fields[1].Name = "a" }, `field 1 is called "a", want a name that no other has`},
		{"handle of another", func(s *Stream) { s.Fields[1].Handle = "h2d_a" }, `field "b": it has the handle "h2d_a"`},
		{"handle of all", func(s *Stream) { s.Fields[1].Handle = "h2d_all" }, `field "b": it has the handle "h2d_all"`},
		{"type", func(s *Stream) { s.Fields[1].Type = "F33" }, `field "b": there is no element type "F33"`},
		{"negative size", func(s *Stream) { s.Fields[0].Shape[0] = -2 }, `field "a": its shape is [-2]`},
		{"sizes that overflow", func(s *Stream) { s.Fields[0].Shape = []int64{1 << 32, 1 << 32, 1 << 32} }, `field "a": its shape is [4294967296 4294967296 4294967296]: more than`},
		{"sizes that overflow to 0", func(s *Stream) { s.Fields[0].Shape = []int64{1 << 31, 1 << 31, 4} }, `more than`},
		{"rank", func(s *Stream) { s.Fields[0].Shape = make([]int64, 65) }, `field "a": its shape has 65 dimensions`},
		{"before", func(s *Stream) { s.Fields[1].Offset = -4 }, `field "b": it begins at byte -4`},
		{"between elements", func(s *Stream) { s.Fields[1].Offset = 18 }, `field "b": it begins at byte 18, want a multiple of the 4 bytes of an element of type F32`},
		{"overlap", func(s *Stream) { s.Fields[1].Offset = 12 }, `field "b": it begins at byte 12, and field "a" ends at byte 16: they overlap`},
		{"within", func(s *Stream) { s.Fields[3].Offset = 2 }, `field "c": it begins at byte 2, and field "a" ends at byte 16: they overlap`},
		{"the same bytes", func(s *Stream) { s.Fields[3].Offset = 16 }, `they overlap`},
		{"past the end", func(s *Stream) { s.Fields[3].Offset = 21 }, `field "c": 4 bytes from byte 21 on run past the end of a transfer of 24 bytes`},
		{"behind the end", func(s *Stream) { s.Fields[2].Offset = 26 }, `field "z": 0 bytes from byte 26 on run past the end`},
		{"far behind", func(s *Stream) { s.Fields[1].Offset = 1 << 62 }, `field "b": it begins at byte`},
		{"longer than all", func(s *Stream) { s.Fields[0].Shape[0] = 4 }, `field "a": 32 bytes from byte 0 on run past the end`},
		{"place of another", func(s *Stream) { s.Fields[1].Place = 0 }, `field "b": it is anchor 0`},
		{"place before", func(s *Stream) { s.Fields[1].Place = -1 }, `field "b": it is anchor -1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := sound()
			tt.change(&s[0])
			_, err := Decode(Encode(s), size)
			require.ErrorContains(t, err, tt.want)
		})
	}
	twice := append(sound(), sound()...)
	_, err = Decode(Encode(twice), size)
	require.ErrorContains(t, err, `joined input 1: it has the name "all" and the handle "h2d_all"`)
	for text, want := range map[string]string{
		"":                                "it is not read as JSON: EOF",
		"[]":                              "it is not read as JSON",
		`{"version":2,"joined":[]}`:       "it is of version 2",
		`{"version":1,"joined":[]}`:       "it has 0 joined inputs, want 1 to 1024",
		`{"version":1,"joined":[],"x":1}`: `unknown field "x"`,
		string(Encode(sound())) + "{}":    "there is more behind the JSON",
		strings.Replace(string(Encode(sound())), `"offset":0`, `"offset":0.5`, 1): "it is not read as JSON",
		strings.Repeat(" ", MaxBytes+1):                                           "it has 4194305 bytes",
	} {
		_, err := Decode([]byte(text), size)
		require.ErrorContains(t, err, want)
	}
}

// checked looks for what [Decode] promises of a plan.
func checked(t require.TestingT, streams []Stream) {
	handles := map[string]bool{}
	for _, s := range streams {
		taken := map[int64]string{}
		for _, f := range s.Fields {
			require.False(t, handles[f.Handle])
			handles[f.Handle] = true
			n := int64(size(f.Type))
			require.Zero(t, f.Offset%n)
			for _, d := range f.Shape {
				n *= d
			}
			require.True(t, f.Offset >= 0 && n >= 0 && f.Offset+n <= s.Bytes)
			for at := f.Offset; at < min(f.Offset+n, f.Offset+99); at++ {
				if other, ok := taken[at]; ok {
					t.Errorf("byte %d is of %q and of %q", at, other, f.Name)
					t.FailNow()
				}
				taken[at] = f.Name
			}
		}
	}
}

// TestDrawnPlans reads plans with fields anywhere.
func TestDrawnPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Stream{Name: "s", Handle: "s", Bytes: rapid.Int64Range(1, 64).Draw(t, "bytes")}
		for i := range rapid.IntRange(1, 6).Draw(t, "fields") {
			name := string(rune('a' + i))
			s.Fields = append(s.Fields, Field{Name: name, Handle: "h" + name, Type: rapid.SampledFrom([]string{"U8", "F16", "F32", "S64"}).Draw(t, "type"),
				Shape: rapid.SliceOfN(rapid.Int64Range(0, 4), 0, 3).Draw(t, "shape"), Offset: rapid.Int64Range(-1, 66).Draw(t, "offset"), Place: i})
		}
		got, err := Decode(Encode([]Stream{s}), size)
		if err == nil {
			checked(t, got)
		}
	})
}

// FuzzDecode reads arbitrary plans; what is read is written and read again as it was.
func FuzzDecode(f *testing.F) {
	f.Add(Encode(sound()))
	f.Add(Encode(append(sound(), Stream{Name: "b", Handle: "b", Bytes: 8, Fields: []Field{{Name: "a", Handle: "x", Type: "U8", Shape: []int64{8}, Place: 9}}})))
	f.Add([]byte(`{"version":1,"joined":[{"anchor":"s","handle":"s","bytes":1,"fields":[]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		streams, err := Decode(data, size)
		if err != nil {
			return
		}
		checked(t, streams)
		var plain plan
		require.NoError(t, json.Unmarshal(data, &plain))
		again, err := Decode(Encode(streams), size)
		require.NoError(t, err)
		if d := cmp.Diff(streams, again); d != "" {
			t.Fatal(d)
		}
	})
}
