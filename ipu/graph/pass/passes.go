package pass

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Pass is one optimisation of a verified executable. It keeps streams, programs
// and what they compute; results of floating-point arithmetic may differ by
// rounding.
type Pass struct {
	Name string // what [OptimizeOptions.Disabled] calls it
	Doc  string // what it does, for people
	Run  func(*graph.Executable, *passContext)
}

// Passes are the optimisations, in the order in which [Optimize] runs them.
var Passes = []Pass{
	{"movement", "merges and removes transposes, reshapes, casts and expansions; selections by known indices become slices", mergeMovement},
	{"identity", "removes operators that change nothing", removeIdentities},
	{"common", "common subexpression elimination: computes equal expressions once, keeps equal constants once", shareCommon},
	{"strength", "strength reduction: replaces powers, divisions by constants and maxima by cheaper operators", reduceStrength},
	{"norm", "recognises softmax, layer and RMS normalisation written as primitives", recogniseNorms},
	{"activation", "recognises gelu, swish, mish, hard-sigmoid and hard-swish written as primitives", recogniseActivations},
	{"integer", "multiplies bytes as bytes where floats were converted from them", useIntegers},
	{"quantised", "removes quantisations of what has these values already", dropRequantisation},
	{"attention", "recognises attention written as primitives; it reads and writes heads where they lie", recogniseAttention},
	{"select", "turns products with one-hot matrices into selections of rows", selectRows},
	{"affine", "folds factors, addends and batch normalisation into the convolution or product before them", foldAffine},
	{"transposed", "writes transposed convolutions as convolutions", convolveTransposed},
	{"bounds", "fuses the rectifier or limits that follow into the epilogue of convolutions and products", fuseBounds},
	{"load", "hoists what depends on weights alone out of requests, to where they are loaded, and folds constants", hoistToLoad},
	{"pointwise", "fuses elementwise operators that follow each other into one loop", fusePointwise},
	{"dead-code", "dead code elimination: removes what nobody reads", func(e *graph.Executable, _ *passContext) { removeDead(e) }},
}

// OptimizeOptions say how [Optimize] works.
type OptimizeOptions struct {
	// Disabled names passes that are left out.
	Disabled []string
	// Held are local tensors that the passes before "bounds" take for read once more, as if programs returned them
	// where the graph that writes them has run. These passes join operators whose results inside nobody else reads, and
	// what is joined rounds otherwise: what a training step reads on its way back is to be held though it be computed
	// again, so that the way there has the same bits. The passes after them change no bits.
	Held []graph.TensorID
	// Load is the program that sets the weights, and that the host runs before
	// any other and again whenever it changes a weight; nil if there is none.
	// What depends on weights alone is computed at its end.
	Load *int
	// Evaluate computes an operator whose operands are known, as the engine
	// would; nil leaves constants as they are. It may decline with an error.
	Evaluate func(op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte, error)
	// After is called after each pass, with what it did; nil if nobody wants to know. It must not change the executable.
	After func(graph.PassReport)
}

// passContext is what a pass is given besides the executable.
type passContext struct {
	*OptimizeOptions
	report *graph.PassReport
	ctx    context.Context
}

// ended reports whether nobody wants the result any more: a pass may return at
// once, whatever state it leaves the executable in.
func (c *passContext) ended() bool { return c.ctx.Err() != nil }

// did counts one rewrite.
func (c *passContext) did(what string) {
	for i := range c.report.Rewrites {
		if c.report.Rewrites[i].What == what {
			c.report.Rewrites[i].Count++
			return
		}
	}
	c.report.Rewrites = append(c.report.Rewrites, graph.Rewrite{What: what, Count: 1})
}

// Optimize runs all [Passes] but the disabled ones on e, in place, and notes in
// e.Passes what each did. It verifies e before the first and after each.
func Optimize(e *graph.Executable, o OptimizeOptions) error {
	return OptimizeContext(context.Background(), e, o)
}

// OptimizeContext is [Optimize] until ctx is done, whose error it returns then;
// e is good for nothing any more in that case.
func OptimizeContext(ctx context.Context, e *graph.Executable, o OptimizeOptions) error {
	names := make([]string, len(Passes))
	for i, p := range Passes {
		names[i] = p.Name
	}
	for _, d := range o.Disabled {
		if !slices.Contains(names, d) {
			return fmt.Errorf("optimise executable %q: there is no pass %q to disable, want one of %s", e.Name, d, strings.Join(names, ", "))
		}
	}
	if err := graph.Verify(e); err != nil {
		return fmt.Errorf("optimise executable %q: %w", e.Name, err)
	}
	var reports []graph.PassReport
	let := hold(e, o.Held)
	for _, p := range Passes {
		if p.Name == heldUntil {
			let()
		}
		if slices.Contains(o.Disabled, p.Name) {
			continue
		}
		r := graph.PassReport{Name: p.Name, Before: countNodes(e)}
		p.Run(e, &passContext{&o, &r, ctx})
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("optimise executable %q: pass %s: %w", e.Name, p.Name, err)
		}
		r.After = countNodes(e)
		if err := graph.Verify(e); err != nil {
			return fmt.Errorf("optimise executable %q: after pass %s: %w", e.Name, p.Name, err)
		}
		reports = append(reports, r)
		if o.After != nil {
			o.After(r)
		}
	}
	e.Passes = reports
	return nil
}

func countNodes(e *graph.Executable) int64 {
	n := int64(0)
	for i := range e.Graphs {
		n += int64(len(e.Graphs[i].Nodes))
	}
	return n
}
