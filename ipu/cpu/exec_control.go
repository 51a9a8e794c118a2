package cpu

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
)

// holds reports whether operand i of an instruction is true or left out.
func (in *instruction) holds(i int) bool {
	return i >= len(in.in) || in.in[i] == nil || in.in[i][0] != 0
}

// iterations returns how often the loop that in starts may run.
func (in *instruction) iterations() int64 {
	switch {
	case !in.holds(1):
		return 0
	case in.count >= 0:
		return in.count
	case in.in[0] != nil:
		return int64(binary.LittleEndian.Uint64(in.in[0]))
	}
	return math.MaxInt64
}

// setIteration writes the number of the iteration, if there is a tensor for it.
func (in *instruction) setIteration(i int64) {
	if len(in.out) > 0 {
		binary.LittleEndian.PutUint64(in.out[0], uint64(i))
	}
}

// nextIteration adds one to the number of the iteration.
func (in *instruction) nextIteration() {
	if len(in.out) > 0 {
		in.setIteration(int64(binary.LittleEndian.Uint64(in.out[0])) + 1)
	}
}

// collect copies in[0] to its place among the values of all iterations.
func (in *instruction) collect() {
	n := len(in.in[0])
	copy(in.out[0][int(binary.LittleEndian.Uint64(in.in[1]))*n:][:n], in.in[0])
}

// spend counts the work of one more iteration of a loop that may go on for ever,
// and returns why the run ends if that is too much.
func (e *Engine) spend(in *instruction) error {
	if e.spent = budget.Add(e.spent, in.work); e.spent <= e.opts.Work {
		return nil
	}
	return &ipu.Error{Kind: ipu.KindApplication, Message: fmt.Sprintf(
		"its loops have taken more than the limit of %.1g operations; %s", float64(e.opts.Work), plan.MoreWork)}
}
