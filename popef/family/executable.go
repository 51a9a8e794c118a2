package family

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/popef"
)

// CheckExecutable returns an error, which wraps [ErrFamily], if the executable does not have what
// the family says: a program for each member, which moves the streams of the member's tensors. meta is
// the metadata that f was found in; streams has the programs that move each stream of the executable, by
// its handle.
func (f *Family) CheckExecutable(meta *popef.Metadata, streams map[string][]int) error {
	for m := range f.Members {
		program, found := int(f.Members[m].Program), false
		var missing *popef.Anchor
		for i := range f.Tensors {
			a := &meta.Anchors[f.Tensors[i].Anchors[m]]
			switch {
			case slices.Contains(streams[a.Handle], program):
				found = true
			case missing == nil:
				missing = a
			}
		}
		if missing == nil {
			continue
		}
		what := fmt.Sprintf("program %d", program)
		if found {
			what = fmt.Sprintf("stream %q in program %d, of anchor %q", missing.Handle, program, missing.Name)
		}
		return fmt.Errorf("member %s: %w: the executable has no %s; metadata and executable are of different compilations: compile the model again",
			f.Named(f.Members[m].Sizes), ErrFamily, what)
	}
	return nil
}
