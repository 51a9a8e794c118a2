package dynamic

import (
	"fmt"
	"io"
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// Fill gives every input a value: first those that files names, pairs of an input and the value
// that --input gives it, then the others, at random, if seed is not nil. It is an error if an input
// has none then; one that was given before keeps it.
func (d *Model) Fill(files [][2]string, seed *uint64) error {
	for _, f := range files {
		p := d.input(f[0])
		if p == nil {
			var names []string
			for _, p := range d.inputs {
				names = append(names, p.Anchor.Name)
			}
			return UnknownInput(f, names)
		}
		data, err := tensorfile.ReadValue(f[1], p.Anchor.Info, p.transfers)
		if err != nil {
			return fmt.Errorf("input %q: %w", f[0], err)
		}
		copy(p.Data, data)
		p.given = true
	}
	var missing []string
	for i := range d.inputs {
		p := &d.inputs[i]
		switch {
		case p.given:
		case seed != nil:
			FillRandom(p.Anchor.Info.DataType, p.Data, *seed+uint64(i))
		default:
			missing = append(missing, fmt.Sprintf("\n  --input %s=VALUE  %s", printable.Line(p.Anchor.Name), p.Info()))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("inputs are missing:%s\nhint: give each a .npy, .pb or .bin file, a number or a list (1,2,3), or those that are left random values with --random SEED", strings.Join(missing, ""))
	}
	return nil
}

// GivenByCases says that the inputs of every run are given by the cases of goldens: [Model.Fill]
// leaves them alone.
func (d *Model) GivenByCases() {
	for i := range d.inputs {
		d.inputs[i].given = d.inputs[i].Anchor.Role == contract.RunInput
	}
}

// Info returns the type of what the port moves in one run.
func (p *Port) Info() popef.TensorInfo { return Iterated(p.Anchor.Info, p.transfers) }

// Iterated returns the type of all transfers of one run.
func Iterated(info popef.TensorInfo, iterations int64) popef.TensorInfo {
	if iterations > 1 {
		info.Shape = append([]int64{iterations}, info.Shape...)
	}
	return info
}

// Print shows the beginning of a tensor, which has data of the type info.
func Print(w io.Writer, name string, info popef.TensorInfo, data []byte) error {
	const most = 16
	n, err := info.Elements()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n ", printable.Line(name), info)
	for i := range min(n, most) {
		b.WriteString(" " + elementText(info.DataType, data[i*int64(info.DataType.Size()):]))
	}
	if n > most {
		fmt.Fprintf(&b, " … %d more", n-most)
	}
	_, err = fmt.Fprintln(w, b.String())
	return err
}
