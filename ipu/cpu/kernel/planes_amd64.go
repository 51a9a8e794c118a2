package kernel

import "slices"

// planePool folds the windows of planes, or of rows, many rows of windows in a
// call: first the rows of the input under each, then stretches of that.
type planePool struct {
	fold     poolFold
	axis     *poolAxis // of a row
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
func newPlanePool(s *poolShape, fold poolFold, counts []float32, countPad bool) *planePool {
	if path == pathGo || len(s.axes) > 2 || s.global || s.planes*s.plane == 0 || 4*s.planes*s.plane > poolTable {
		return nil
	}
	lanes := path.lanes()
	a := &s.axes[len(s.axes)-1]
	k := &planePool{fold: fold, axis: a, per: s.rows, plane: s.plane}
	k.width = max(a.pad+roundUp(a.in, lanes), (a.out-1)*a.stride+(a.kernel-1)*a.dilation+1)
	k.chunk = max(1, poolChunk/k.width)
	if len(s.axes) == 1 {
		k.per, k.plane = s.planes, s.planes*s.plane
	}
	k.chunk = min(k.chunk, k.per)
	if fold == addWindow && a.stride > 2 {
		k.ones = make([]float32, 2*roundUp((a.out-1)*a.stride+1, lanes))
		fillWith(k.ones, 1)
	}
	found := map[int]int32{}
	k.table = make([]int32, 0, 2*k.per)
	if fold == addWindow {
		k.sets = make([]int32, 0, k.per)
	}
	for r := range k.per {
		at, taps, rows := r, 1, 1
		if len(s.axes) == 2 {
			b := &s.axes[0]
			lo, hi := b.taps(r)
			at, taps, k.step = r*b.stride-b.pad+lo*b.dilation, hi-lo, b.dilation*a.in
			rows = taps
			if countPad {
				rows = b.padded(r)
			}
		}
		if taps <= 0 {
			at, taps = 0, 0
		}
		k.table = append(k.table, int32(4*at*a.in), int32(taps))
		if fold != addWindow {
			continue
		}
		set, ok := found[rows]
		if !ok {
			set = int32(4 * len(k.divisors))
			found[rows] = set
			first := len(k.divisors)
			k.divisors = slices.Grow(k.divisors, 2*roundUp(a.out, lanes))[:first+2*roundUp(a.out, lanes)]
			for o := 0; o < a.out; o += lanes {
				both := k.divisors[first+2*o:][:2*lanes]
				for i, n := range counts[o:min(o+lanes, a.out)] {
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
	return k.chunk*k.width + 2*roundUp(a.out, path.lanes())*a.stride + a.kernel*a.dilation + 2*path.lanes()
}

// foldPlanes folds the windows of rows of the output from one to another. It
// calls other for ranges in which there is a NaN that a maximum may miss.
func foldPlanes[T number](k *planePool, to, from []T, strip []float32, first, end int, other func(first, end int)) {
	a, y, x := k.axis, asFloat32(to), asFloat32(from)
	for at := first; at < end; {
		row := at % k.per
		n := min(end-at, k.per-row, k.chunk)
		u, v := x[at/k.per*k.plane:][:k.plane], y[at*a.out:][:n*a.out]
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
	row0, table, width, step, dilation := &strip[a.pad], &k.table[2*row], 4*k.width, 4*k.step, 4*a.dilation
	if k.fold == addWindow {
		loopSumDown(row0, &x[0], table, a.in, n, step, width)
	} else if loopMostDown(row0, &x[0], table, a.in, n, step, width) != 0 {
		return false
	}
	switch {
	case a.stride > 2:
		// The windows at every place, of which few are wanted.
		lanes, all, first := path.lanes(), (a.out-1)*a.stride+1, [1]int32{}
		every := strip[len(strip)-all:]
		for r := range n {
			u, v := &strip[r*k.width], y[r*a.out:][:a.out]
			if k.fold == addWindow {
				loopSumAlong(&every[0], u, &k.ones[0], &first[0], all, 1, a.kernel, dilation, width)
				d := k.divisors[k.sets[row+r]/4:]
				for o := range v {
					v[o] = every[o*a.stride] / d[2*(o/lanes*lanes)+o%lanes]
				}
				continue
			}
			loopMostAlong(&every[0], u, all, 1, a.kernel, dilation, width)
			for o := range v {
				v[o] = every[o*a.stride]
			}
		}
	case k.fold == addWindow && a.stride == 2:
		loopSumAlong2(&y[0], &strip[0], &k.divisors[0], &k.sets[row], a.out, n, a.kernel, dilation, width)
	case k.fold == addWindow:
		loopSumAlong(&y[0], &strip[0], &k.divisors[0], &k.sets[row], a.out, n, a.kernel, dilation, width)
	case a.stride == 2:
		loopMostAlong2(&y[0], &strip[0], a.out, n, a.kernel, dilation, width)
	default:
		loopMostAlong(&y[0], &strip[0], a.out, n, a.kernel, dilation, width)
	}
	return true
}

func loopSumDown(dst, x *float32, table *int32, n, rows, step, width int) {
	if path == pathAVX512 {
		sumDownAVX512(dst, x, table, n, rows, step, width)
	} else {
		sumDownAVX2(dst, x, table, n, rows, step, width)
	}
}

func loopMostDown(dst, x *float32, table *int32, n, rows, step, width int) int {
	if path == pathAVX512 {
		return mostDownAVX512(dst, x, table, n, rows, step, width)
	}
	return mostDownAVX2(dst, x, table, n, rows, step, width)
}

func loopSumAlong(dst, x, divisors *float32, table *int32, n, rows, taps, dilation, width int) {
	if path == pathAVX512 {
		sumAlongAVX512(dst, x, divisors, table, n, rows, taps, dilation, width)
	} else {
		sumAlongAVX2(dst, x, divisors, table, n, rows, taps, dilation, width)
	}
}

func loopSumAlong2(dst, x, divisors *float32, table *int32, n, rows, taps, dilation, width int) {
	if path == pathAVX512 {
		sumAlong2AVX512(dst, x, divisors, table, n, rows, taps, dilation, width)
	} else {
		sumAlong2AVX2(dst, x, divisors, table, n, rows, taps, dilation, width)
	}
}

func loopMostAlong(dst, x *float32, n, rows, taps, dilation, width int) {
	if path == pathAVX512 {
		mostAlongAVX512(dst, x, n, rows, taps, dilation, width)
	} else {
		mostAlongAVX2(dst, x, n, rows, taps, dilation, width)
	}
}

func loopMostAlong2(dst, x *float32, n, rows, taps, dilation, width int) {
	if path == pathAVX512 {
		mostAlong2AVX512(dst, x, n, rows, taps, dilation, width)
	} else {
		mostAlong2AVX2(dst, x, n, rows, taps, dilation, width)
	}
}
