package kernel

// vectorUnit is unit by vectors, for cells with the usual activations, if there
// are any for T; it reports whether it did it.
func (t *recurrentTask[T]) vectorUnit(d, b, stage, lo int, sums, h, next []T) bool {
	if path == pathGo || !isFloat32[T]() {
		return false
	}
	n := len(h)
	next = next[:n]
	first := func(x []T) *float32 { return &asFloat32(x[:n])[0] }
	gate := func(i int) *float32 { return first(sums[i*t.padded+lo:]) }
	switch t.kind {
	case rnnCell:
		loopTanh(first(next), gate(0), n)
	case gruCell:
		if stage == 0 {
			loopGated(first(t.states(2, d, b)[lo:]), gate(1), first(h), n)
		} else {
			loopGruCell(first(next), gate(0), gate(2), first(h), n)
		}
	case gruLinearCell:
		loopGruLinearCell(first(next), gate(0), gate(1), gate(2), first(t.lastSum(d, b)[lo:]), first(h), n)
	case lstmCell:
		loopLstmCell(first(next), first(t.states(2, d, b)[lo:]), gate(0), gate(1), gate(2), gate(3), n)
	}
	return true
}

// vectorProducts sets rows of some panels of y to c + A·B by vectors, if there
// are any for T; B has k rows. It reports whether it did it.
func vectorProducts[T float](y []T, step, rows, panels int, a matrix[T], b []T, k int, c []T) bool {
	if path == pathGo || !isFloat32[T]() || k == 0 {
		return false
	}
	f := asFloat32[T]
	x := matrix[float32]{f(a.data), a.row, a.col}
	if rows <= fewRows(path) {
		multiplyFew(path, f(y), step, rows, panels*panel, x, f(b), panel, k*panel, k, 1, addend{data: f(c)}, false)
		return true
	}
	for j := range panels {
		y, d := f(y)[j*panel:], addend{data: f(c)[j*panel:]}
		for p := 0; p < k; p += depthBlock {
			multiplyF32(path, y, step, rows, panel, x.at(0, p), f(b)[(j*k+p)*panel:], panel, min(depthBlock, k-p), 1, d, nil)
			d = addend{data: y, row: step}
		}
	}
	return true
}

// gatesArgs are the arguments of the loops that multiply a few rows of H by
// panels of R, in which the rows of several gates take turns. internal/asm
// knows the fields' offsets.
type gatesArgs struct {
	h, r           *float32
	rows, gates    int
	k, panels      int
	hRow, rStep    int // bytes from one row to the next
	rNext, next    int // bytes from one panel, and its sums, to the next
	to, from       [4]*float32
	toRow, fromRow [4]int // bytes
}

// gatesAtOnce returns for how many gates at a time, out of some, the path has
// loops over so many rows.
func gatesAtOnce(p vectorPath, rows, gates int) int {
	switch {
	case p == pathAVX512 && rows <= narrow:
		return gates
	case p == pathAVX512 || rows == 1:
		return min(gates, 2)
	}
	return 1
}

// vectorGates computes a product by vectors, if there are any for T, and reports
// whether it did it.
func (t *recurrentTask[T]) vectorGates(g *groupProduct) bool {
	switch {
	case path == pathGo || !isFloat32[T]():
		return false
	case g.rows > fewRows(path):
		t.manyGates(g)
		return true
	}
	f := asFloat32[T]
	h, r := f(t.state[g.h:]), f(t.r[g.r:])
	size := t.hidden * g.gates * panel // of a panel
	// The assembly trusts these.
	_, _ = h[(g.rows-1)*t.hidden+t.hidden-1], r[g.panels*size-1]
	args := gatesArgs{h: &h[0], rows: g.rows, k: t.hidden, panels: g.panels, hRow: 4 * t.hidden, rStep: 4 * g.gates * panel, rNext: 4 * size, next: 4 * panel}
	begin := 0
	if g.back {
		begin, args.rNext, args.next = g.panels-1, -args.rNext, -args.next
	}
	for first := 0; first < g.gates; first += args.gates {
		args.gates = gatesAtOnce(path, g.rows, g.gates-first)
		args.r = &r[begin*size+first*panel]
		for i := range args.gates {
			to, row, from, fromRow := t.sumsOf(g, first+i)
			_, _ = to[(g.rows-1)*row+g.panels*panel-1], from[(g.rows-1)*fromRow+g.panels*panel-1]
			args.to[i], args.from[i] = &f(to)[begin*panel], &f(from)[begin*panel]
			args.toRow[i], args.fromRow[i] = 4*row, 4*fromRow
		}
		if path == pathAVX512 {
			gatesAVX512(&args)
		} else {
			gatesAVX2(&args)
		}
	}
	return true
}

// manyGates is [recurrentTask.vectorGates] for more rows than there are loops
// for.
func (t *recurrentTask[T]) manyGates(g *groupProduct) {
	f := asFloat32[T]
	h, step := matrix[float32]{f(t.state[g.h:]), t.hidden, 1}, g.gates*panel
	for i := range g.gates {
		to, row, from, fromRow := t.sumsOf(g, i)
		for j := range g.panels {
			r, y, d := f(t.r[g.r+(j*t.hidden*g.gates+i)*panel:]), f(to[j*panel:]), addend{data: f(from[j*panel:]), row: fromRow}
			for p := 0; p < t.hidden; p += depthBlock {
				multiplyF32(path, y, row, g.rows, panel, h.at(0, p), r[p*step:], step, min(depthBlock, t.hidden-p), 1, d, nil)
				d = addend{data: y, row: row}
			}
		}
	}
}

func loopGated(dst, r, x *float32, n int) {
	if path == pathAVX512 {
		gatedAVX512(dst, r, x, n)
	} else {
		gatedAVX2(dst, r, x, n)
	}
}

func loopGruCell(dst, z, u, h *float32, n int) {
	if path == pathAVX512 {
		gruCellAVX512(dst, z, u, h, n)
	} else {
		gruCellAVX2(dst, z, u, h, n)
	}
}

func loopGruLinearCell(dst, z, r, u, p, h *float32, n int) {
	if path == pathAVX512 {
		gruLinearCellAVX512(dst, z, r, u, p, h, n)
	} else {
		gruLinearCellAVX2(dst, z, r, u, p, h, n)
	}
}

func loopLstmCell(h, c, i, o, f, u *float32, n int) {
	if path == pathAVX512 {
		lstmCellAVX512(h, c, i, o, f, u, n)
	} else {
		lstmCellAVX2(h, c, i, o, f, u, n)
	}
}
