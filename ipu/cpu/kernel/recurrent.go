package kernel

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

var recurrentKernels = map[string]binder{"LSTM": widened(bindLSTM)}

func bindLSTM(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	o := op.(*graph.LSTM)
	switch in[0].DType {
	case graph.F32:
		return newLSTM[float32](o, in)
	case graph.F64:
		return newLSTM[float64](o, in)
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// The operands of an LSTM.
const (
	lstmX = iota
	lstmW
	lstmR
	lstmB
	lstmLens
	lstmH
	lstmC
	lstmP
)

// lstm computes ONNX's LSTM. With X·Wᵀ + B for a chunk of time steps computed
// by one matrix product, what is left for every step is H·Rᵀ and the gates:
//
//	i = f(Xi + H·Riᵀ + Pi∘C)     c = g(Xc + H·Rcᵀ)
//	f = f(Xf + H·Rfᵀ + Pf∘C)     C' = f∘C + i∘c
//	o = f(Xo + H·Roᵀ + Po∘C')    H' = o∘h(C')
//
// Gates stand in ONNX's order i, o, f, c. W and R are packed per gate, so that
// panels do not straddle gates.
type lstm[T float] struct {
	steps, batch, input, hidden int
	dirs                        int
	reverse                     bool // the first direction runs backwards
	batchFirst                  bool
	inputForget                 bool
	clip                        T // 0: none
	acts                        [][3]activation[T]
	wPacked, rPacked            bool
	chunk                       int // time steps of one matrix product

	wBytes, rBytes            int // of packed W and R
	wAt, rAt, gatesAt, biasAt int // offsets in scratch memory
	stateAt                   int
	scratch                   int

	task lstmTask[T]
}

// lstmChunkBytes bounds the memory for the gates' inputs of one chunk.
const lstmChunkBytes = 4 << 20

func newLSTM[T float](o *graph.LSTM, in []graph.TensorType) (Kernel, error) {
	x := in[lstmX].Shape
	k := &lstm[T]{
		steps: int(x[0]), batch: int(x[1]), input: int(x[2]), hidden: int(o.Hidden), dirs: len(o.Activations) / 3,
		reverse: o.Direction == "reverse", batchFirst: o.BatchFirst, inputForget: o.InputForget, clip: T(o.Clip),
	}
	if o.BatchFirst {
		k.steps, k.batch = k.batch, k.steps
	}
	for d := range k.dirs {
		var acts [3]activation[T]
		for i := range acts {
			f, err := newActivation[T](o.Activations[3*d+i], o.ActAlpha[3*d+i], o.ActBeta[3*d+i])
			if err != nil {
				return nil, err
			}
			acts[i] = f
		}
		k.acts = append(k.acts, acts)
	}
	size := elementSize[T]()
	k.wBytes = k.dirs * 4 * packedLen(k.input, k.hidden) * size
	k.rBytes = k.dirs * 4 * packedLen(k.hidden, k.hidden) * size
	step := max(1, k.dirs*k.batch*4*k.hidden*size)
	k.chunk = max(1, min(k.steps, lstmChunkBytes/step))
	k.place()
	return k, nil
}

// place lays out the scratch memory.
func (k *lstm[T]) place() {
	k.scratch = 0
	place := func(n int) int {
		at := k.scratch
		k.scratch += (n + 63) &^ 63
		return at
	}
	size := elementSize[T]()
	k.gatesAt = place(k.dirs * k.chunk * k.batch * 4 * k.hidden * size)
	k.biasAt = place(k.dirs * 4 * k.hidden * size)
	k.stateAt = place(lstmStates * k.dirs * k.batch * k.hidden * size)
	if !k.wPacked {
		k.wAt = place(k.wBytes)
	}
	if !k.rPacked {
		k.rAt = place(k.rBytes)
	}
}

// lstmStates is the number of state-sized buffers: H before and after a step,
// C, and h(C).
const lstmStates = 4

// Scratch implements [Kernel].
func (k *lstm[T]) Scratch() int { return k.scratch }

// Packed implements [Packer].
func (k *lstm[T]) Packed(i int) int {
	switch i {
	case lstmW:
		return k.wBytes
	case lstmR:
		return k.rBytes
	}
	return 0
}

// Pack implements [Packer].
func (k *lstm[T]) Pack(i int, dst, src []byte) {
	depth := k.input
	if i == lstmR {
		depth = k.hidden
	}
	d, s := view[T](dst), view[T](src)
	packed := packedLen(depth, k.hidden)
	for gate := range 4 * k.dirs {
		if depth > 0 {
			packPanels(d[gate*packed:][:packed], matrix[T]{s[gate*k.hidden*depth:], 1, depth}, depth, k.hidden)
		}
	}
}

// UsePacked implements [Packer].
func (k *lstm[T]) UsePacked(i int) {
	switch i {
	case lstmW:
		k.wPacked = true
	case lstmR:
		k.rPacked = true
	}
	k.place()
}

// Run implements [Kernel].
func (k *lstm[T]) Run(p Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	t.lstm = k
	if err := t.bind(in, out, scratch); err != nil {
		return err
	}
	t.start()
	if k.batch > 0 {
		for s := 0; s < k.steps; s += k.chunk {
			t.first, t.count = s, min(k.chunk, k.steps-s)
			t.inputs(p)
			t.recur(p)
		}
	}
	t.finish()
	*t = lstmTask[T]{}
	return nil
}

// backwards reports whether direction d runs from the last step to the first.
func (k *lstm[T]) backwards(d int) bool { return d == 1 || k.reverse }

// stateIndex returns where the state of a batch entry lies in an operand or
// result of ONNX's layout.
func (k *lstm[T]) stateIndex(d, b int) int {
	if k.batchFirst {
		return (b*k.dirs + d) * k.hidden
	}
	return (d*k.batch + b) * k.hidden
}

// outputIndex returns where Y holds time step s of a batch entry.
func (k *lstm[T]) outputIndex(d, b, s int) int {
	if k.batchFirst {
		return ((b*k.steps+s)*k.dirs + d) * k.hidden
	}
	return ((s*k.dirs+d)*k.batch + b) * k.hidden
}
