package reduce

import (
	"fmt"
	"math"
	"runtime"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindGroupNorm(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.GroupNorm)
	switch in[0].DType {
	case graph.F32:
		return newGroupNorm[float32](o, in[0].Shape), nil
	case graph.F64:
		return newGroupNorm[float64](o, in[0].Shape), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// groupNorm computes (x-mean)·scale/√(variance+ε) + bias over groups of
// channels.
type groupNorm[T tensor.Float] struct {
	epsilon         float64
	rows            int // samples by groups
	groups          int
	channels, plane int // channels of a group, elements of a channel
	task            groupNormTask[T]
}

func newGroupNorm[T tensor.Float](o *graph.GroupNorm, x []int64) *groupNorm[T] {
	return &groupNorm[T]{
		epsilon: o.Epsilon, rows: int(x[0] * o.Groups), groups: int(o.Groups),
		channels: int(x[1] / o.Groups), plane: tensor.Elements(x[2:]),
	}
}

// Scratch implements [Kernel].
func (k *groupNorm[T]) Scratch() int { return 0 }

// InPlace implements [InPlacer].
func (k *groupNorm[T]) InPlace(i int) bool { return i == 0 }

// Run implements [Kernel].
func (k *groupNorm[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	t := &k.task
	*t = groupNormTask[T]{
		groupNorm: k, x: tensor.View[T](in[0]), scale: tensor.View[T](in[1]), bias: tensor.View[T](in[2]),
		y: tensor.View[T](tensor.Memory(out, 0)), mean: tensor.F32s(tensor.Memory(out, 1)), deviation: tensor.F32s(tensor.Memory(out, 2)),
	}
	t.parts = tensor.Cut(p, k.rows, 4*k.channels*k.plane+16)
	p.Run(t, t.parts)
	*t = groupNormTask[T]{}
	return nil
}

type groupNormTask[T tensor.Float] struct {
	*groupNorm[T]
	x, scale, bias, y []T
	mean, deviation   []float32
	parts             int
}

// Do implements [Task].
func (t *groupNormTask[T]) Do(part int) {
	n := t.channels * t.plane
	for i, end := tensor.Span(t.rows, t.parts, part, 1); i < end; i++ {
		x := t.x[i*n:][:n]
		mean := LongSum(x) / float64(n)
		r := 1 / math.Sqrt(LongSquares(x, T(mean))/float64(n)+t.epsilon)
		if t.mean != nil {
			t.mean[i] = float32(mean)
		}
		if t.deviation != nil {
			t.deviation[i] = float32(r)
		}
		if t.y == nil {
			continue
		}
		for c := range t.channels {
			channel := i%t.groups*t.channels + c
			a, m, b := T(r)*t.scale[channel], T(mean), t.bias[channel]
			x := x[c*t.plane:][:t.plane]
			y := t.y[i*n+c*t.plane:][:len(x)]
			if vec.VectorNormalise(y, x, m, a, b) {
				continue
			}
			for j, v := range x {
				y[j] = T((v-m)*a) + b
			}
		}
	}
}

func bindLRN(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.LRN)
	switch in[0].DType {
	case graph.F32:
		return newLRN[float32](o, in[0].Shape), nil
	case graph.F64:
		return newLRN[float64](o, in[0].Shape), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// lrn divides by a power of the squares of the neighbouring channels.
type lrn[T tensor.Float] struct {
	before, after   int // neighbours
	factor, bias    T
	beta            float64
	planes          int // samples by channels
	channels, plane int
	x, y            []T
	parts           int
	pool            tensor.Pool
}

func newLRN[T tensor.Float](o *graph.LRN, x []int64) *lrn[T] {
	size := int(o.Size)
	return &lrn[T]{
		before: (size - 1) / 2, after: size / 2, factor: T(o.Alpha / float64(size)), bias: T(o.Bias), beta: o.Beta,
		planes: tensor.Elements(x[:2]), channels: int(x[1]), plane: tensor.Elements(x[2:]),
	}
}

// Scratch implements [Kernel].
func (k *lrn[T]) Scratch() int { return 0 }

// Run implements [Kernel].
func (k *lrn[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.x, k.y = tensor.View[T](in[0]), tensor.View[T](out[0])
	if len(k.y) > 0 {
		k.parts, k.pool = tensor.Cut(p, k.planes, k.plane*(16+min(k.before+k.after, k.channels))), p
		p.Run(k, k.parts)
	}
	k.x, k.y = nil, nil
	return nil
}

// lrnStrip is how many elements of a channel are computed together.
const lrnStrip = 256

// Do implements [Task].
func (k *lrn[T]) Do(part int) {
	var memory [lrnStrip]T
	pace := tensor.Pace{Pool: k.pool}
	for i, end := tensor.Span(k.planes, k.parts, part, 1); i < end; i++ {
		c := i % k.channels
		first, last := i-min(k.before, c), i+min(k.after, k.channels-1-c)
		for at := 0; at < k.plane; at += lrnStrip {
			n := min(lrnStrip, k.plane-at)
			if pace.Ended(n * (last - first + 16)) {
				return
			}
			squares := memory[:n]
			clear(squares)
			for j := first; j <= last; j++ {
				for e, v := range k.x[j*k.plane+at:][:n] {
					squares[e] += T(v * v)
				}
			}
			x, y := k.x[i*k.plane+at:][:n], k.y[i*k.plane+at:][:n]
			for e, v := range squares {
				y[e] = x[e] / power(k.bias+T(k.factor*v), k.beta)
			}
		}
	}
}

// power returns v to the power of p, quickly for the one that everybody uses.
func power[T tensor.Float](v T, p float64) T {
	if p == 0.75 {
		root := math.Sqrt(float64(v))
		return T(root * math.Sqrt(root))
	}
	return T(math.Pow(float64(v), p))
}

func bindDet(_ graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	switch in[0].DType {
	case graph.F32:
		return newDet[float32](in[0].Shape), nil
	case graph.F64:
		return newDet[float64](in[0].Shape), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// det computes determinants by elimination, in float64.
type det[T tensor.Float] struct {
	n, count int // rows of a matrix, matrices
	slots    int // parts that have scratch memory
	x, y     []T
	scratch  []float64
	parts    int
	pool     tensor.Pool
}

func newDet[T tensor.Float](x []int64) *det[T] {
	k := &det[T]{n: int(x[len(x)-1]), count: tensor.Elements(x[:len(x)-2])}
	most := max(1, tensor.MostScratch/max(1, 8*k.n*k.n))
	k.slots = min(tensor.MaxParts, 4*runtime.GOMAXPROCS(0), most)
	return k
}

// Scratch implements [Kernel].
func (k *det[T]) Scratch() int { return k.slots * 8 * k.n * k.n }

// Run implements [Kernel].
func (k *det[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	k.x, k.y, k.scratch = tensor.View[T](in[0]), tensor.View[T](out[0]), tensor.F64s(scratch)
	k.parts, k.pool = min(tensor.CutSlots(p, k.count, k.n*k.n*(k.n/3+1)+1), k.slots), p
	p.Run(k, k.parts)
	k.x, k.y, k.scratch = nil, nil, nil
	return nil
}

// Do implements [Task].
func (k *det[T]) Do(part int) {
	size := k.n * k.n
	m := k.scratch[part*size:][:size]
	for i, end := tensor.Span(k.count, k.parts, part, 1); i < end; i++ {
		for j, v := range k.x[i*size:][:size] {
			m[j] = float64(v)
		}
		k.y[i] = T(determinant(k.pool, m, k.n))
	}
}

// determinant eliminates an n×n matrix with partial pivoting, unless the run that
// p belongs to ends before.
func determinant(p tensor.Pool, m []float64, n int) float64 {
	d := 1.0
	for c := range n {
		if c%16 == 15 && p.Ended() {
			return d
		}
		pivot := c
		for r := c + 1; r < n; r++ {
			if math.Abs(m[r*n+c]) > math.Abs(m[pivot*n+c]) {
				pivot = r
			}
		}
		top := m[c*n:][:n]
		if pivot != c {
			d = -d
			for j, v := range m[pivot*n:][:n] {
				m[pivot*n+j], top[j] = top[j], v
			}
		}
		d *= top[c]
		if top[c] == 0 {
			return d
		}
		for r := c + 1; r < n; r++ {
			row := m[r*n:][:n]
			f := row[c] / top[c]
			for j := c + 1; j < n; j++ {
				row[j] -= float64(f * top[j])
			}
		}
	}
	return d
}
