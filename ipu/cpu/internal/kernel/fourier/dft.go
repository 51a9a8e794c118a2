package fourier

import (
	"fmt"
	"math"
	"runtime"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindDFT(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.DFT)
	switch in[0].DType {
	case graph.F32:
		return newDFT[float32](o, in[0]), nil
	case graph.F64:
		return newDFT[float64](o, in[0]), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// dft transforms lines of x along an axis.
type dft[T tensor.Float] struct {
	fft               *fft
	inverse, oneSided bool
	outer, inner      int // lines: elements before the axis, and between it and the last
	from, to          int // elements of a line of x and of y
	parts, wide       int // of the last axis of x and of y
	slots             int // parts of the task that have scratch memory
	task              dftTask[T]
}

// dftScratchBytes is about the most scratch memory for more than one worker.
const dftScratchBytes = 64 << 20

func newDFT[T tensor.Float](o *graph.DFT, x graph.TensorType) *dft[T] {
	last := len(x.Shape) - 1
	n := int(o.Length)
	k := &dft[T]{
		fft: newFFT(n), inverse: o.Inverse, oneSided: o.OneSided,
		outer: tensor.Elements(x.Shape[:o.Axis]), inner: tensor.Elements(x.Shape[o.Axis+1 : last]),
		from: int(x.Shape[o.Axis]), to: n, parts: int(x.Shape[last]), wide: 2,
	}
	switch {
	case o.OneSided && o.Inverse:
		k.wide = 1
	case o.OneSided:
		k.to = n/2 + 1
	}
	k.slots = max(1, min(tensor.MaxParts, 4*runtime.GOMAXPROCS(0), dftScratchBytes/(k.slot()*16)))
	return k
}

// slot returns the complex numbers of scratch memory for one part: a line, and
// what the transform wants.
func (k *dft[T]) slot() int { return k.fft.n + k.fft.scratch() }

// Scratch implements [Kernel].
func (k *dft[T]) Scratch() int { return k.slots * k.slot() * 16 }

// Run implements [Kernel].
func (k *dft[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = dftTask[T]{dft: k, x: tensor.View[T](in[0]), y: tensor.View[T](out[0]), scratch: tensor.View[complex128](scratch)}
	lines := k.outer * k.inner
	t.cuts, t.watch = min(tensor.CutSlots(p, lines, 20*k.fft.n), k.slots), tensor.NewWatch(p, 20*k.fft.n)
	p.Run(t, t.cuts)
	*t = dftTask[T]{}
	return nil
}

type dftTask[T tensor.Float] struct {
	*dft[T]
	x, y    []T
	scratch []complex128
	cuts    int
	watch   tensor.Watch
}

// Do implements [Task].
func (t *dftTask[T]) Do(part int) {
	slot := t.scratch[part*t.slot():][:t.slot()]
	line, rest := slot[:t.fft.n], slot[t.fft.n:]
	i, end := tensor.Span(t.outer*t.inner, t.cuts, part, 1)
	for to := i; i < end; i++ {
		if i == to {
			if to = t.watch.Next(i, end); to == i {
				return
			}
		}
		outer, inner := i/t.inner, i%t.inner
		t.load(line, t.x[min((outer*t.from*t.inner+inner)*t.parts, len(t.x)):]) // there may be nothing of a line
		t.fft.transform(line, rest)
		t.store(t.y[(outer*t.to*t.inner+inner)*t.wide:], line)
	}
}

// load fills a line from x. The transform back is that forth of the complex
// conjugates.
func (t *dftTask[T]) load(line []complex128, x []T) {
	n := min(t.from, len(line))
	if t.inverse && t.oneSided {
		n = min(n, len(line)/2+1)
	}
	step := t.inner * t.parts
	for i := range n {
		re, im := x[i*step], T(0)
		if t.parts == 2 {
			im = x[i*step+1]
		}
		if t.inverse {
			im = -im
		}
		line[i] = complex(float64(re), float64(im))
	}
	clear(line[n:])
	if !t.inverse || !t.oneSided {
		return
	}
	// Frequencies of a real sequence are conjugates, and real in the middle.
	line[0] = complex(real(line[0]), 0)
	for i := 1; 2*i <= len(line); i++ {
		v := line[i]
		if 2*i == len(line) {
			line[i] = complex(real(v), 0)
		} else {
			line[len(line)-i] = complex(real(v), -imag(v))
		}
	}
}

// store writes a transformed line to y.
func (t *dftTask[T]) store(y []T, line []complex128) {
	step := t.inner * t.wide
	scale, sign := 1.0, 1.0
	if t.inverse {
		scale = 1 / float64(len(line))
		sign = -scale
	}
	for i, v := range line[:t.to] {
		y[i*step] = T(real(v) * scale)
		if t.wide == 2 {
			y[i*step+1] = T(imag(v) * sign)
		}
	}
}

// dftTableBytes: roots of unity and, where the length has a great prime factor, the
// chirp and its transform.
func dftTableBytes(op graph.Op, _, _ []graph.TensorType) int64 {
	n := max(1, op.(*graph.DFT).Length)
	power := int64(1)
	for power < n {
		if power > math.MaxInt64/4 {
			return math.MaxInt64
		}
		power *= 2
	}
	return budget.Mul(16, budget.Add(budget.Mul(6, power), n))
}
