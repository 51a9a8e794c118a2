package popxl

import (
	"context"
	"errors"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// Export returns the PopEF model: program 0 loads the variables, program 5
// copies the inputs in, computes, and copies the outputs out. [export.Model] writes it to a
// file or opens it from memory. The Ir can't be changed any more, also if an error
// is returned: that of [Ir.Err], an Ir without outputs, or what hinders the passes that optimise the graph.
func (ir *Ir) Export(ctx context.Context) (*export.Model, error) {
	if !ir.usable() {
		return nil, ErrNoIr
	}
	if ir.taken {
		return nil, ErrTaken
	}
	ir.taken = true
	if err := ir.Err(); err != nil {
		return nil, err
	}
	if len(ir.layout.Outputs) == 0 {
		return nil, errors.New("the Ir returns nothing: add an output with popxl.NewOutput")
	}
	exe, err := ir.b.Finish()
	if err != nil {
		return nil, err
	}
	m, err := export.Inference(exe, ir.layout)
	if err != nil {
		return nil, err
	}
	load := export.LoadProgram
	if err := pass.OptimizeContext(ctx, exe, pass.OptimizeOptions{Load: &load}); err != nil {
		return nil, err
	}
	return m, m.Encode()
}
