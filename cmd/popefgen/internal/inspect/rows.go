package inspect

import (
	"fmt"
	"io"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/rows"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// rowsInfo says whether the rows of a batch are independent of each other.
type rowsInfo struct {
	Count       int64  `json:"count"`
	Independent bool   `json:"independent"`
	Because     string `json:"because,omitempty"` // why they are not, or not proven to be
}

// rowsOf looks at the first dimension, if all run inputs and outputs have the same and it
// counts more than one row; else there is nothing to say.
func rowsOf(md *popef.Metadata, roles []contract.Role, e *graph.Executable) *rowsInfo {
	r, axes := rowsInfo{Independent: true}, map[string]int{}
	for i := range md.Anchors {
		a := &md.Anchors[i]
		if roles[i] != contract.RunInput && roles[i] != contract.RunOutput {
			continue
		}
		if len(a.Info.Shape) == 0 || a.Info.Shape[0] < 2 || a.Repeats > 1 || r.Count > 0 && a.Info.Shape[0] != r.Count {
			return nil
		}
		r.Count, axes[a.Handle] = a.Info.Shape[0], 0
	}
	if r.Count == 0 {
		return nil
	}
	for _, p := range md.ProgramFlow.Main {
		if err := rows.Independent(e, int(p), r.Count, axes); err != nil {
			r.Independent, r.Because = false, err.Error()
			break
		}
	}
	return &r
}

func (r *rowsInfo) print(w io.Writer) {
	if r.Independent {
		fmt.Fprintf(w, "rows independent   yes, %d in the first dimension\n", r.Count)
		return
	}
	fmt.Fprintf(w, "rows independent   no: %s\n", printable.Line(r.Because))
}
