package page

import (
	"fmt"
	"io"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
)

// WriteDOT writes an executable's graph in the language of Graphviz, groups
// as clusters. Anchors are called what anchors says of their handles.
func WriteDOT(w io.Writer, e *graph.Executable, anchors map[string]string) error {
	d := newDrawing(e, anchors)
	var s strings.Builder
	fmt.Fprintf(&s, "digraph %s {\n  node [shape=box, fontname=\"Helvetica\", fontsize=10];\n  edge [fontname=\"Helvetica\", fontsize=8];\n", dotString(e.Name))
	var draw func(*box, string)
	draw = func(b *box, indent string) {
		for _, k := range b.Kids {
			if k.Group {
				fmt.Fprintf(&s, "%ssubgraph cluster_%d {\n%s  label=%s;\n", indent, k.ID, indent, dotString(k.Title+"\n"+clip(k.Name)))
				if k.node >= 0 { // an operator with graphs: edges need a box to end at
					fmt.Fprintf(&s, "%s  n%d [label=%s];\n", indent, k.ID, dotString(strings.Join(k.labels(), "\n")))
				}
				draw(k, indent+"  ")
				fmt.Fprintf(&s, "%s}\n", indent)
				continue
			}
			fmt.Fprintf(&s, "%sn%d [label=%s];\n", indent, k.ID, dotString(strings.Join(k.labels(), "\n")))
		}
	}
	draw(d.root, "  ")
	for _, l := range d.edges {
		fmt.Fprintf(&s, "  n%d -> n%d [label=%s, tooltip=%s];\n", l.from.ID, l.to.ID, dotString(l.shape), dotString(l.tensor))
	}
	s.WriteString("}\n")
	_, err := io.WriteString(w, s.String())
	return err
}

// labels are the lines of a box.
func (b *box) labels() []string {
	title, lines, name := b.shows()
	lines = append([]string{title}, lines...)
	if name != "" {
		lines = append(lines, name)
	}
	return lines
}

// Anchors returns what a model calls its anchors, by the handles of their
// streams.
func Anchors(m *popef.Model) map[string]string {
	names := map[string]string{}
	for _, a := range m.Metadata.Anchors {
		names[a.Handle] = a.Name
	}
	return names
}

// dotString quotes any text for Graphviz. A backslash would begin one of its
// escapes.
func dotString(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable(l))
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}

// WriteSVG writes an executable's graph as a picture, nothing folded. Anchors
// are called what anchors says of their handles, see [Anchors].
func WriteSVG(w io.Writer, e *graph.Executable, anchors map[string]string) error {
	d, err := draw(e, anchors)
	if err != nil {
		return err
	}
	for _, b := range d.boxes {
		b.folded = false
	}
	_, err = io.WriteString(w, d.standalone())
	return err
}

// maxNodes bounds what is drawn.
const maxNodes = 20_000

// draw returns a drawing with its layout.
func draw(e *graph.Executable, anchors map[string]string) (*drawing, error) {
	if err := drawable(e); err != nil {
		return nil, err
	}
	d := newDrawing(e, anchors)
	return d, d.lay()
}

// drawable refuses executables that are too large for a picture.
func drawable(e *graph.Executable) error {
	if n := operators(e); n > maxNodes {
		return fmt.Errorf("executable %q has %d operators: pictures are drawn of at most %d; --dot prints any number for Graphviz", e.Name, n, maxNodes)
	}
	return nil
}
