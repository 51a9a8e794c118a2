package inspect

import (
	"fmt"
	"io"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef"
)

// joinedInfo is a stream with several inputs side by side in each transfer.
type joinedInfo struct {
	Name     string        `json:"name"`
	Handle   string        `json:"handle"`
	Programs []uint32      `json:"programs"`
	Bytes    int64         `json:"bytes"`
	Fields   []joinedField `json:"fields"`
}

// joinedField is one of the inputs.
type joinedField struct {
	Name   string `json:"name"`
	Offset int64  `json:"offset"` // bytes
	anchor int
}

// joinedOf says which inputs travel together.
func joinedOf(m *popef.Model) (all []joinedInfo) {
	for _, in := range m.Joined() {
		size, _ := in.Anchor.Info.SizeInBytes()
		j := joinedInfo{Name: in.Anchor.Name, Handle: in.Anchor.Handle, Programs: in.Anchor.Programs, Bytes: size}
		for _, f := range in.Fields {
			j.Fields = append(j.Fields, joinedField{m.Metadata.Anchors[f.Anchor].Name, f.Offset, f.Anchor})
		}
		all = append(all, j)
	}
	return all
}

func (j *joinedInfo) print(w io.Writer) {
	fmt.Fprintf(w, "joined inputs      %d in 1 stream, %s: %d bytes a transfer of programs %v\n", len(j.Fields), printable.Line(j.Handle), j.Bytes, j.Programs)
}
