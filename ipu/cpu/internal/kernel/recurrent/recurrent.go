package recurrent

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindRecurrent(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	switch in[0].DType {
	case graph.F32:
		return newRecurrent[float32](op, in)
	case graph.F64:
		return newRecurrent[float64](op, in)
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// The operands of a recurrent operator; the last two only of an LSTM.
const (
	recurrentX = iota
	recurrentW
	recurrentR
	recurrentB
	recurrentLens
	recurrentH
	recurrentC
	recurrentP
)

// cellKind is what a recurrent operator does in every step.
type cellKind uint8

const (
	rnnCell       cellKind = iota
	gruCell                // the reset gate goes before the product with R
	gruLinearCell          // the reset gate goes after it
	lstmCell
)

// cellKinds tells of every kind of cell how many gates it has, how many
// activations, how many state-sized buffers (H before and after a step, and
// what [recurrentTask.states] says), and how many gates are multiplied with the
// same H at a time.
var cellKinds = [...]struct {
	gates, acts, states int
	groups              []int
}{
	rnnCell: {1, 1, 2, []int{1}}, gruCell: {3, 2, 3, []int{2, 1}}, gruLinearCell: {3, 2, 2, []int{3}}, lstmCell: {4, 3, 4, []int{4}},
}

// group returns the first gate of a group and how many there are.
func (k cellKind) group(i int) (first, count int) {
	groups := cellKinds[k].groups
	for _, n := range groups[:i] {
		first += n
	}
	return first, groups[i]
}

// extent is the kind and the sizes of a recurrent operator.
type extent struct {
	kind                        cellKind
	gates                       int
	steps, batch, input, hidden int
	dirs                        int
	reverse                     bool // the first direction runs backwards
	batchFirst                  bool
}

// time returns the position in the sequence of direction d's step s.
func (e *extent) time(d, s int) int {
	if e.backwards(d) {
		return e.steps - 1 - s
	}
	return s
}

// recurrent computes ONNX's LSTM, GRU and RNN. With X·Wᵀ + B for a chunk of
// time steps computed by one matrix product, what is left for every step is
// H·Rᵀ and the gates. W and R are packed per gate, so that panels do not
// straddle gates, and the sums of a gate are as long as its panels are wide. In
// R the rows of the gates of a group take turns, so that a step reads all that
// belongs to a hidden unit in one go, and workers that share a step have
// nothing of R in common.
type recurrent[T tensor.Float] struct {
	extent
	padded           int // hidden, rounded up to whole panels
	inputForget      bool
	clip             T                  // 0: none
	acts             [][3]activation[T] // per direction
	usual            bool               // nothing but the gates with their usual activations
	wPacked, rPacked bool
	chunk            int // time steps of one matrix product

	wBytes, rBytes            int // of packed W and R
	wAt, rAt, gatesAt, biasAt int // offsets in scratch memory
	stateAt                   int
	scratch                   int

	task recurrentTask[T]
}

// recurrentChunkBytes bounds the memory for the gates' inputs of one chunk.
const recurrentChunkBytes = 4 << 20

func newRecurrent[T tensor.Float](op graph.Op, in []graph.TensorType) (tensor.Kernel, error) {
	k := &recurrent[T]{}
	var names []string
	var alpha, beta []float64
	var direction string
	switch o := op.(type) {
	case *graph.RNN:
		k.kind, k.hidden, k.batchFirst, k.clip = rnnCell, int(o.Hidden), o.BatchFirst, T(o.Clip)
		names, alpha, beta, direction = o.Activations, o.ActAlpha, o.ActBeta, o.Direction
	case *graph.GRU:
		k.kind, k.hidden, k.batchFirst, k.clip = gruCell, int(o.Hidden), o.BatchFirst, T(o.Clip)
		names, alpha, beta, direction = o.Activations, o.ActAlpha, o.ActBeta, o.Direction
		if o.LinearBeforeReset {
			k.kind = gruLinearCell
		}
	case *graph.LSTM:
		k.kind, k.hidden, k.batchFirst, k.clip = lstmCell, int(o.Hidden), o.BatchFirst, T(o.Clip)
		names, alpha, beta, direction = o.Activations, o.ActAlpha, o.ActBeta, o.Direction
		k.inputForget = o.InputForget
	}
	cell := cellKinds[k.kind]
	x := in[recurrentX].Shape
	k.steps, k.batch, k.input = int(x[0]), int(x[1]), int(x[2])
	if k.batchFirst {
		k.steps, k.batch = k.batch, k.steps
	}
	k.gates, k.dirs, k.reverse = cell.gates, len(names)/cell.acts, direction == "reverse"
	for d := range k.dirs {
		var acts [3]activation[T]
		for i := range cell.acts {
			f, err := newActivation[T](names[cell.acts*d+i], alpha[cell.acts*d+i], beta[cell.acts*d+i])
			if err != nil {
				return nil, err
			}
			acts[i] = f
		}
		k.acts = append(k.acts, acts)
	}
	k.usual = k.clip == 0 && !k.inputForget && tensor.Operand(in, recurrentP).DType == graph.Invalid && usualActivations(names, cell.acts)
	k.padded = (k.hidden + gemm.Panel - 1) / gemm.Panel * gemm.Panel
	size := tensor.ElementSize[T]()
	k.wBytes = k.dirs * k.gates * gemm.PackedLen(k.input, k.hidden) * size
	k.rBytes = k.dirs * k.gates * gemm.PackedLen(k.hidden, k.hidden) * size
	step := max(1, k.dirs*k.batch*k.gates*k.padded*size)
	k.chunk = max(1, min(k.steps, recurrentChunkBytes/step))
	k.place()
	return k, nil
}

// place lays out the scratch memory.
func (k *recurrent[T]) place() {
	k.scratch = 0
	place := func(n int) int {
		at := k.scratch
		k.scratch += (n + 63) &^ 63
		return at
	}
	size := tensor.ElementSize[T]()
	k.gatesAt = place(k.dirs * k.chunk * k.batch * k.gates * k.padded * size)
	k.biasAt = place(k.dirs * k.gates * k.padded * size)
	k.stateAt = place((cellKinds[k.kind].states*k.dirs*k.batch*k.hidden + k.sums()) * size)
	if !k.wPacked {
		k.wAt = place(k.wBytes)
	}
	if !k.rPacked {
		k.rAt = place(k.rBytes)
	}
}

// sums is how many sums gruLinearCell keeps besides those of X: the last gate's
// H·Rᵀ + B of every batch entry.
func (k *recurrent[T]) sums() int {
	if k.kind != gruLinearCell {
		return 0
	}
	return k.dirs * (k.batch + 1) * k.padded
}

// Scratch implements [Kernel].
func (k *recurrent[T]) Scratch() int { return k.scratch }

// Packed implements [Packer].
func (k *recurrent[T]) Packed(i int) int {
	switch i {
	case recurrentW:
		return k.wBytes
	case recurrentR:
		return k.rBytes
	}
	return 0
}

// Pack implements [Packer].
func (k *recurrent[T]) Pack(i int, dst, src []byte) {
	d, s := tensor.View[T](dst), tensor.View[T](src)
	if i == recurrentW {
		packed := gemm.PackedLen(k.input, k.hidden)
		for gate := range k.gates * k.dirs {
			if k.input > 0 {
				gemm.PackPanels(d[gate*packed:][:packed], gemm.Matrix[T]{Data: s[gate*k.hidden*k.input:], Row: 1, Col: k.input}, k.input, k.hidden)
			}
		}
		return
	}
	packed := gemm.PackedLen(k.hidden, k.hidden)
	for dir := range k.dirs {
		for i := range cellKinds[k.kind].groups {
			first, count := k.kind.group(i)
			for gate := range count {
				at := dir*k.gates + first
				packTurns(d[at*packed:][:count*packed], gate, count, gemm.Matrix[T]{Data: s[(at+gate)*k.hidden*k.hidden:], Row: 1, Col: k.hidden}, k.hidden, k.hidden)
			}
		}
	}
}

// packTurns writes a K×N matrix as panels, of which each row is followed by
// those of others: it is one, counted from 0, of so many.
func packTurns[T tensor.Float](dst []T, one, of int, b gemm.Matrix[T], k, n int) {
	var rows [gemm.PackedAtOnce * gemm.Panel]T
	for j := 0; j < n; j += gemm.Panel {
		for p := 0; p < k; p += gemm.PackedAtOnce {
			count := min(gemm.PackedAtOnce, k-p)
			gemm.PackBlock(rows[:count*gemm.Panel], b.At(p, j), count, min(gemm.Panel, n-j))
			for i := range count {
				copy(dst[(j*k/gemm.Panel+p+i)*of*gemm.Panel+one*gemm.Panel:][:gemm.Panel], rows[i*gemm.Panel:])
			}
		}
	}
}

// Packing implements [Packer].
func (k *recurrent[T]) Packing(i int) tensor.Packing {
	if i == recurrentW {
		return tensor.PackingOf("gates of W", tensor.ElementSize[T](), k.gates*k.dirs, k.input, k.hidden)
	}
	return tensor.PackingOf("gates of R", tensor.ElementSize[T](), int(k.kind), k.dirs, k.hidden)
}

// UsePacked implements [Packer].
func (k *recurrent[T]) UsePacked(i int) {
	switch i {
	case recurrentW:
		k.wPacked = true
	case recurrentR:
		k.rPacked = true
	}
	k.place()
}

// Run implements [Kernel].
func (k *recurrent[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	t.recurrent = k
	if err := t.bind(in, out, scratch); err != nil {
		return err
	}
	t.start()
	if k.batch > 0 {
		for s := 0; s < k.steps; s += k.chunk {
			t.first, t.count = s, min(k.chunk, k.steps-s)
			t.compute(p)
		}
	}
	t.finish()
	*t = recurrentTask[T]{}
	return nil
}

// backwards reports whether direction d runs from the last step to the first.
func (e *extent) backwards(d int) bool { return d == 1 || e.reverse }

// stateIndex returns where the state of a batch entry lies in an operand or
// result of ONNX's layout.
func (e *extent) stateIndex(d, b int) int {
	if e.batchFirst {
		return (b*e.dirs + d) * e.hidden
	}
	return (d*e.batch + b) * e.hidden
}

// outputIndex returns where Y holds time step s of a batch entry.
func (e *extent) outputIndex(d, b, s int) int {
	if e.batchFirst {
		return ((b*e.steps+s)*e.dirs + d) * e.hidden
	}
	return ((s*e.dirs+d)*e.batch + b) * e.hidden
}
