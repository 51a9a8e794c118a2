package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/internal/sizes"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/popefgen/popefgen/popef"
)

// tryPads tries whether declared padding changes results, see [verify.Padding].
func tryPads(ctx context.Context, path string, r *compile.Result) error {
	size := dynamic.SizeOf(path)
	unchecked, err := verify.Padding(ctx, r, func(ctx context.Context, m *popef.Model, inputs map[string][]byte) (map[string][]byte, error) {
		return dynamic.ExecuteOnCPU(ctx, m, size, inputs)
	})
	for _, u := range unchecked {
		r.Warnings = append(r.Warnings, u.Error())
	}
	if err != nil {
		return fmt.Errorf("%s: %w; --pad-untried (pad-untried: true in %s) compiles it as you say", path, err, projectFile)
	}
	return nil
}

// summariseFamily prints the members of a family, what they share, and their anchors.
func summariseFamily(w io.Writer, r *compile.Result) error {
	f := r.Family
	head := []string{"PROGRAM"}
	for _, d := range f.Dims {
		head = append(head, printable.Line(d.Name))
	}
	members := table.New(append(head, "OPERATORS", "OPERATIONS")...)
	shared := sizes.Sharing(r.Executable)
	for i, m := range f.Members {
		row := []any{m.Program}
		for _, n := range m.Sizes {
			row = append(row, n)
		}
		members.Row(append(row, shared.Operators[i+1], humanize.SIWithDigits(m.Cost, 1, ""))...)
	}
	if err := members.Print(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "shared by members: %s of %s weights and constants, %d operators on weights\n",
		humanize.IBytes(uint64(shared.Common)), humanize.IBytes(uint64(shared.Bytes)), shared.Operators[0])
	for _, d := range f.Dims {
		name := printable.Line(d.Name)
		switch {
		case d.Rows:
			fmt.Fprintf(w, "%s: smaller requests are filled up: rows do not depend on each other\n", name)
		case len(d.Pads) > 0:
			pads := make([]string, len(d.Pads))
			for i, p := range d.Pads {
				pads[i] = printable.Line(fmt.Sprintf("%s with %s", p.Input, p.Value))
			}
			fmt.Fprintf(w, "%s: smaller requests are filled up: %s\n", name, strings.Join(pads, ", "))
		default:
			why := ""
			if r.Mixed[d.Name] != nil {
				why = ": " + printable.Line(r.Mixed[d.Name].Error())
			}
			fmt.Fprintf(w, "%s: requests have to be of one of these sizes%s\n", name, why)
		}
	}
	t := table.New("", "ANCHOR", "TYPE", "SHAPE", "HANDLES")
	for i := range f.Tensors {
		x := &f.Tensors[i]
		handle := r.Metadata.Anchors[x.Anchors[0]].Handle
		t.Row(direction(x.Type), x.Name, x.Elem, sizes.ShapeText(f, x), handle+" …")
	}
	return t.Print(w)
}
