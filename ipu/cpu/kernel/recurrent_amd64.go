package kernel

//go:noescape
func lstmCellAVX512(h, c, i, o, f, u *float32, n int)

//go:noescape
func gatedAVX512(dst, r, x *float32, n int)

//go:noescape
func gruCellAVX512(dst, z, u, h *float32, n int)

//go:noescape
func gruLinearCellAVX512(dst, z, r, u, p, h *float32, n int)

//go:noescape
func lstmCellAVX2(h, c, i, o, f, u *float32, n int)

//go:noescape
func gatedAVX2(dst, r, x *float32, n int)

//go:noescape
func gruCellAVX2(dst, z, u, h *float32, n int)

//go:noescape
func gruLinearCellAVX2(dst, z, r, u, p, h *float32, n int)

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
		pick(tanhAVX512, tanhAVX2)(first(next), gate(0), n)
	case gruCell:
		if stage == 0 {
			pick(gatedAVX512, gatedAVX2)(first(t.states(2, d, b)[lo:]), gate(1), first(h), n)
		} else {
			pick(gruCellAVX512, gruCellAVX2)(first(next), gate(0), gate(2), first(h), n)
		}
	case gruLinearCell:
		pick(gruLinearCellAVX512, gruLinearCellAVX2)(first(next), gate(0), gate(1), gate(2), first(t.lastSum(d, b)[lo:]), first(h), n)
	case lstmCell:
		pick(lstmCellAVX512, lstmCellAVX2)(first(next), first(t.states(2, d, b)[lo:]), gate(0), gate(1), gate(2), gate(3), n)
	}
	return true
}

// vectorProducts sets rows×cols elements of y to c + A·B by vectors, if there
// are any for T; B has k rows and comes in panels, as many as cols take, of
// which the last one comes first if back is set. It reports whether it did it.
func vectorProducts[T float](y []T, step, rows, cols int, a matrix[T], b []T, k int, c []T, cStep int, back bool) bool {
	if path == pathGo || !isFloat32[T]() || k == 0 {
		return false
	}
	f := asFloat32[T]
	x, d := matrix[float32]{f(a.data), a.row, a.col}, addend{data: f(c), row: cStep}
	if rows <= path.fewRows() {
		multiplyFew(path, f(y), step, rows, cols, x, f(b), panel, k*panel, k, 1, d, back)
		return true
	}
	for j := 0; j < cols; j += panel {
		j := j
		if back {
			j = (cols-1)/panel*panel - j
		}
		d := addend{data: d.data[j:], row: cStep}
		for p := 0; p < k; p += depthBlock {
			multiplyF32(path, f(y)[j:], step, rows, min(panel, cols-j), x.at(0, p), f(b)[j*k+p*panel:], panel, min(depthBlock, k-p), 1, d, nil)
			d = addend{data: f(y)[j:], row: step}
		}
	}
	return true
}
