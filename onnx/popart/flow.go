package popart

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/onnx"
)

// AnchorReturn is PopART's AnchorReturnType: which values of an anchor a step returns.
type AnchorReturn struct {
	Type export.Return
	N    int // of [EveryN]: values of every N-th batch are returned
}

// The return types without a number. The shape of what is returned stands in brackets; dimensions of 1 before that of the tensor are left out.
var (
	All   = AnchorReturn{Type: export.All}   // of every micro-batch: [batches per step, accumulation, replicas, …tensor]
	Final = AnchorReturn{Type: export.Final} // of the last micro-batch of the step: [replicas, …tensor]
	Sum   = AnchorReturn{Type: export.Sum}   // the sum over the micro-batches of the step: [replicas, …tensor]
)

// EveryN returns the values of every n-th batch: [batches per step / n, accumulation, replicas, …tensor]. n divides the batches per step.
func EveryN(n int) AnchorReturn { return AnchorReturn{Type: export.EveryN, N: n} }

// AnchorReturnType returns the return type of PopART's name "ALL", "EVERYN", "FINAL" or "SUM", whose capitals do not matter. n is EVERYN's number; it is given for
// that type alone. The error wraps ErrDataFlow.
func AnchorReturnType(name string, n ...int) (AnchorReturn, error) {
	t, err := export.ParseReturn(name)
	if err != nil {
		return AnchorReturn{}, fail(ClassError, "return type", wrong(ErrDataFlow, "%v", err))
	}
	switch {
	case t != export.EveryN && len(n) > 0:
		err = wrong(ErrDataFlow, "return type %v has no number, found %d: leave it out, or take EVERYN", t, n[0])
	case t == export.EveryN && len(n) != 1:
		err = wrong(ErrDataFlow, "return type EVERYN with %d numbers, want one: after how many batches values are returned", len(n))
	case t == export.EveryN && n[0] < 1:
		err = wrong(ErrDataFlow, "return type EVERYN with %d, want 1 or more", n[0])
	case t == export.EveryN:
		return EveryN(n[0]), nil
	}
	return AnchorReturn{Type: t}, fail(ClassError, "return type", err)
}

// String returns the type as PopART writes it, such as "EVERYN(5)".
func (r AnchorReturn) String() string {
	if r.Type == export.EveryN {
		return fmt.Sprintf("EVERYN(%d)", r.N)
	}
	return strings.ToUpper(r.Type.String())
}

// Anchors says which tensors a step returns, by name. Any tensor of the model's graph can be one.
type Anchors map[string]AnchorReturn

// DataFlow says how many batches a step computes, and what it returns of them.
type DataFlow struct {
	BatchesPerStep int // at least 1
	Anchors        Anchors
}

// check refuses numbers that can't be.
func (f DataFlow) check() error {
	if f.BatchesPerStep <= 0 {
		return wrong(ErrDataFlow, "%d batches per step, want 1 or more", f.BatchesPerStep)
	}
	if len(f.Anchors) == 0 {
		return wrong(ErrDataFlow, "there are no anchors: a step would return nothing, name one tensor at least")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Anchors)) {
		r := f.Anchors[name]
		switch {
		case r.Type != export.EveryN && r.N != 0:
			return wrong(ErrDataFlow, "anchor %q: return type %v with N = %d: only EVERYN has an N, leave it out", name, r, r.N)
		case r.Type > export.Sum:
			return wrong(ErrDataFlow, "anchor %q: return type %d: want All, EveryN, Final or Sum", name, r.Type)
		case r.Type != export.EveryN:
		case r.N <= 0:
			return wrong(ErrDataFlow, "anchor %q: EVERYN with N = %d, want 1 or more", name, r.N)
		case r.N > f.BatchesPerStep:
			return wrong(ErrDataFlow, "anchor %q: EVERYN with N = %d, which is more than the %d batches per step: nothing would be returned", name, r.N, f.BatchesPerStep)
		case f.BatchesPerStep%r.N != 0:
			return wrong(ErrDataFlow, "anchor %q: EVERYN with N = %d, which is no factor of the %d batches per step", name, r.N, f.BatchesPerStep)
		}
	}
	return nil
}

// outputs returns the tensors that are anchors and no outputs of the model yet, given the names that the compiler adds.
func (f DataFlow) outputs(m *onnx.Model, added ...string) (more []string, err error) {
	there := append(m.Graph.OutputNames(), added...)
	made := tensors(m)
	for _, name := range slices.Sorted(maps.Keys(f.Anchors)) {
		switch {
		case slices.Contains(there, name):
		case slices.Contains(made, name):
			more = append(more, name)
		default:
			return nil, wrong(ErrDataFlow, "anchor %q is no tensor of the model%s", name, nearest.DidYouMean(name, append(there, made...)))
		}
	}
	return more, nil
}

// names returns the names of the anchors, sorted.
func (f DataFlow) names() []string { return slices.Sorted(maps.Keys(f.Anchors)) }
