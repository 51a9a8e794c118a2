package window

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// planePool folds the windows of planes, or of rows, many rows of windows in a
// call: first the rows of the input under each, then stretches of that.
type planePool struct {
	fold     PoolFold
	axis     *PoolAxis // of a row
	per      int       // rows of the output that table has, after which it repeats
	plane    int       // elements of the input until then
	table    []int32   // where the first row under a row of windows begins, in bytes, and how many there are
	step     int       // elements from one of these to the next
	width    int       // elements of scratch memory for a row of windows
	chunk    int       // rows of windows in a call
	sets     []int32   // where the divisors of a row of windows are, in bytes
	divisors []float32 // a vector of them and one of their reciprocals in turn
	ones     []float32 // as divisors, of windows at every place
}

// Bounds of a planePool: elements of scratch memory that stay in the
// first-level cache, and bytes of the input that the table can tell apart.
const (
	poolChunk = 6 << 10
	poolTable = 1 << 30
)

// newPlanePool returns a planePool, nil if there is none for the shape. The
// counts of the last axis' windows are for means.
func newPlanePool(s *PoolShape, fold PoolFold, counts []float32, countPad bool) *planePool {
	if tensor.Path == tensor.PathGo || len(s.Axes) > 2 || s.Global || s.Planes*s.Plane == 0 || 4*s.Planes*s.Plane > poolTable {
		return nil
	}
	lanes := tensor.Path.Lanes()
	a := &s.Axes[len(s.Axes)-1]
	k := &planePool{fold: fold, axis: a, per: s.Rows, plane: s.Plane}
	k.width = max(a.Pad+tensor.RoundUp(a.In, lanes), (a.Out-1)*a.Stride+(a.Kernel-1)*a.Dilation+1)
	k.chunk = max(1, poolChunk/k.width)
	if len(s.Axes) == 1 {
		k.per, k.plane = s.Planes, s.Planes*s.Plane
	}
	k.chunk = min(k.chunk, k.per)
	if fold == AddWindow && a.Stride > 2 {
		k.ones = make([]float32, 2*tensor.RoundUp((a.Out-1)*a.Stride+1, lanes))
		vec.FillWith(k.ones, 1)
	}
	found := map[int]int32{}
	k.table = make([]int32, 0, 2*k.per)
	if fold == AddWindow {
		k.sets = make([]int32, 0, k.per)
	}
	for r := range k.per {
		at, taps, rows := r, 1, 1
		if len(s.Axes) == 2 {
			b := &s.Axes[0]
			lo, hi := b.Taps(r)
			at, taps, k.step = r*b.Stride-b.Pad+lo*b.Dilation, hi-lo, b.Dilation*a.In
			rows = taps
			if countPad {
				rows = b.Padded(r)
			}
		}
		if taps <= 0 {
			at, taps = 0, 0
		}
		k.table = append(k.table, int32(4*at*a.In), int32(taps))
		if fold != AddWindow {
			continue
		}
		set, ok := found[rows]
		if !ok {
			set = int32(4 * len(k.divisors))
			found[rows] = set
			first := len(k.divisors)
			k.divisors = slices.Grow(k.divisors, 2*tensor.RoundUp(a.Out, lanes))[:first+2*tensor.RoundUp(a.Out, lanes)]
			for o := 0; o < a.Out; o += lanes {
				both := k.divisors[first+2*o:][:2*lanes]
				for i, n := range counts[o:min(o+lanes, a.Out)] {
					both[i] = n * float32(rows)
					both[lanes+i] = 1 / both[i]
				}
			}
		}
		k.sets = append(k.sets, set)
	}
	return k
}

// scratch returns how many elements of scratch memory a part needs.
func (k *planePool) scratch() int {
	a := k.axis
	// What the last row's vectors may read, then all of its windows.
	return k.chunk*k.width + 2*tensor.RoundUp(a.Out, tensor.Path.Lanes())*a.Stride + a.Kernel*a.Dilation + 2*tensor.Path.Lanes()
}

// foldPlanes folds the windows of rows of the output from one to another. It
// calls other for ranges in which there is a NaN that a maximum may miss.
func foldPlanes[T tensor.Number](k *planePool, to, from []T, strip []float32, first, end int, other func(first, end int)) {
	a, y, x := k.axis, tensor.AsFloat32(to), tensor.AsFloat32(from)
	for at := first; at < end; {
		row := at % k.per
		n := min(end-at, k.per-row, k.chunk)
		u, v := x[at/k.per*k.plane:][:k.plane], y[at*a.Out:][:n*a.Out]
		if !k.fill(v, u, strip, row, n) {
			other(at, at+n)
		}
		at += n
	}
}

// fill folds the windows of n rows of a plane. It returns false if it met a NaN
// that a maximum may have missed.
func (k *planePool) fill(y, x, strip []float32, row, n int) bool {
	a := k.axis
	row0, table, width, step, dilation := &strip[a.Pad], &k.table[2*row], 4*k.width, 4*k.step, 4*a.Dilation
	if k.fold == AddWindow {
		loopSumDown(row0, &x[0], table, a.In, n, step, width)
	} else if loopMostDown(row0, &x[0], table, a.In, n, step, width) != 0 {
		return false
	}
	switch {
	case a.Stride > 2:
		// The windows at every place, of which few are wanted.
		lanes, all, first := tensor.Path.Lanes(), (a.Out-1)*a.Stride+1, [1]int32{}
		every := strip[len(strip)-all:]
		for r := range n {
			u, v := &strip[r*k.width], y[r*a.Out:][:a.Out]
			if k.fold == AddWindow {
				loopSumAlong(&every[0], u, &k.ones[0], &first[0], all, 1, a.Kernel, dilation, width)
				d := k.divisors[k.sets[row+r]/4:]
				for o := range v {
					v[o] = every[o*a.Stride] / d[2*(o/lanes*lanes)+o%lanes]
				}
				continue
			}
			loopMostAlong(&every[0], u, all, 1, a.Kernel, dilation, width)
			for o := range v {
				v[o] = every[o*a.Stride]
			}
		}
	case k.fold == AddWindow && a.Stride == 2:
		loopSumAlong2(&y[0], &strip[0], &k.divisors[0], &k.sets[row], a.Out, n, a.Kernel, dilation, width)
	case k.fold == AddWindow:
		loopSumAlong(&y[0], &strip[0], &k.divisors[0], &k.sets[row], a.Out, n, a.Kernel, dilation, width)
	case a.Stride == 2:
		loopMostAlong2(&y[0], &strip[0], a.Out, n, a.Kernel, dilation, width)
	default:
		loopMostAlong(&y[0], &strip[0], a.Out, n, a.Kernel, dilation, width)
	}
	return true
}

func loopSumDown(dst, x *float32, table *int32, n, rows, step, width int) {
	if tensor.Path == tensor.PathAVX512 {
		sumDownAVX512(dst, x, table, n, rows, step, width)
	} else {
		sumDownAVX2(dst, x, table, n, rows, step, width)
	}
}

func loopMostDown(dst, x *float32, table *int32, n, rows, step, width int) int {
	if tensor.Path == tensor.PathAVX512 {
		return mostDownAVX512(dst, x, table, n, rows, step, width)
	}
	return mostDownAVX2(dst, x, table, n, rows, step, width)
}

func loopSumAlong(dst, x, divisors *float32, table *int32, n, rows, taps, dilation, width int) {
	if tensor.Path == tensor.PathAVX512 {
		sumAlongAVX512(dst, x, divisors, table, n, rows, taps, dilation, width)
	} else {
		sumAlongAVX2(dst, x, divisors, table, n, rows, taps, dilation, width)
	}
}

func loopSumAlong2(dst, x, divisors *float32, table *int32, n, rows, taps, dilation, width int) {
	if tensor.Path == tensor.PathAVX512 {
		sumAlong2AVX512(dst, x, divisors, table, n, rows, taps, dilation, width)
	} else {
		sumAlong2AVX2(dst, x, divisors, table, n, rows, taps, dilation, width)
	}
}

func loopMostAlong(dst, x *float32, n, rows, taps, dilation, width int) {
	if tensor.Path == tensor.PathAVX512 {
		mostAlongAVX512(dst, x, n, rows, taps, dilation, width)
	} else {
		mostAlongAVX2(dst, x, n, rows, taps, dilation, width)
	}
}

func loopMostAlong2(dst, x *float32, n, rows, taps, dilation, width int) {
	if tensor.Path == tensor.PathAVX512 {
		mostAlong2AVX512(dst, x, n, rows, taps, dilation, width)
	} else {
		mostAlong2AVX2(dst, x, n, rows, taps, dilation, width)
	}
}
