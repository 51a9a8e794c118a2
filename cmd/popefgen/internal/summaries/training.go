// Package summaries prints what was compiled, for people.
package summaries

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/internal/sizes"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// Training prints what a model is that learns, compiled to the file at path: how large, what it learns, in which sizes, and what
// a step is given and gives. Errors are those of w, or say what of the model or its file can't be read.
func Training(ctx context.Context, w io.Writer, r *train.Result, path string, took time.Duration) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	plan, err := cpu.PlanOfContext(ctx, r.Executable, 1)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	nodes := 0
	for _, g := range r.Executable.Graphs {
		nodes += len(g.Nodes)
	}
	var bytes uint64
	elements := int64(0)
	for _, d := range r.Data {
		bytes += uint64(len(d.Data))
		if slices.Contains(r.Trained, d.Name) {
			n := int64(1)
			for _, s := range d.Info.Shape {
				n *= s
			}
			elements += n
		}
	}
	frozen := ""
	if n := len(r.Frozen); n > 0 {
		frozen = fmt.Sprintf(", %d frozen", n)
	}
	members := ""
	if r.Family != nil {
		members = fmt.Sprintf("%d sizes, ", len(r.Family.Members))
	}
	fmt.Fprintf(w, "%s: %s, %s%d operators, %d weights of %s numbers%s, %s with the optimizer's state, %s working memory, compiled in %s\n", path, humanize.IBytes(uint64(st.Size())), members,
		nodes, len(r.Trained), humanize.Comma(elements), frozen, humanize.IBytes(bytes), humanize.IBytes(uint64(plan.ArenaBytes)), took.Round(time.Millisecond))
	if r.Family != nil {
		if err := trainedSizes(w, r.Family); err != nil {
			return err
		}
	}
	head := []string{"", "ANCHOR", "TYPE", "SHAPE", "BYTES", "HANDLE"}
	if r.Family != nil {
		head = []string{"", "ANCHOR", "TYPE", "SHAPE", "HANDLES"}
	}
	t := table.New(head...)
	for i := range r.Metadata.Anchors {
		a := &r.Metadata.Anchors[i]
		what, shape := "", table.Shape(a.Info.Shape)
		switch a.Programs[0] {
		case export.MainProgram:
			if what = "input"; a.Type == popef.Output {
				what = "output"
			}
		case export.OptimizerProgram:
			what = "optimizer"
		default:
			continue
		}
		if r.Family == nil {
			size, err := a.Info.SizeInBytes()
			if err != nil {
				return err
			}
			t.Row(what, a.Name, a.Info.DataType, shape, size, a.Handle)
			continue
		}
		handle := a.Handle
		if x := r.Family.Tensor(a.Name, a.Type); x != nil && a.Programs[0] == export.MainProgram {
			shape, handle = sizes.ShapeText(r.Family, x), handle+" …"
		}
		t.Row(what, a.Name, a.Info.DataType, shape, handle)
	}
	return t.Print(w)
}

// trainedSizes prints the members of a family that learns: the programs of a step and of its evaluation, and the sizes.
func trainedSizes(w io.Writer, f *family.Family) error {
	head := []string{"PROGRAM"}
	for _, d := range f.Dims {
		head = append(head, printable.Line(d.Name))
	}
	t := table.New(append(head, "OPERATIONS")...)
	for _, m := range f.Members {
		row := []any{m.Program}
		for _, n := range m.Sizes {
			row = append(row, n)
		}
		t.Row(append(row, humanize.SIWithDigits(m.Cost, 1, ""))...)
	}
	return t.Print(w)
}
