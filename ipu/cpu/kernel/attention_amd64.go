package kernel

// vectorLanes returns how many columns of a panel the loops for T compute
// where so many are wanted.
func vectorLanes[T number](wanted int) int {
	if path == pathGo || !isFloat32[T]() {
		return wanted
	}
	return roundUp(wanted, path.lanes())
}

// vectorMultiply sets rows×cols elements of y to alpha·A·B by vectors, if there
// are any for T, added to d, whose rows are down elements apart, if that is not
// nil: one element for all of a row if column is set. It reports whether it did
// it.
func vectorMultiply[T number](y []T, ldy, rows, cols int, a matrix[T], b []T, ldb, k int, alpha T, d []T, down int, column bool) bool {
	if path == pathGo || !isFloat32[T]() {
		return false
	}
	f := asFloat32[T]
	from := noAddend
	if d != nil {
		from = addend{data: f(d), row: down, column: column}
	}
	multiplyF32(path, f(y), ldy, rows, cols, matrix[float32]{f(a.data), a.row, a.col}, f(b), ldb, k, float32(alpha), from, nil)
	return true
}

// vectorSoftmaxColumns is [softmaxColumns] by vectors, if there are any for T:
// what a maximum is at least, and the reciprocal of a sum at most, is given. It
// reports whether it did it.
func vectorSoftmaxColumns[T float](s []T, lanes int, floor, ceiling float64) bool {
	if path == pathGo || !isFloat32[T]() {
		return false
	}
	x := asFloat32(s)
	_ = x[len(x)/panel*panel-1]
	for j := 0; j < lanes; j += path.lanes() {
		loopSoftmaxColumns(&x[j], len(x)/panel, float32(floor), float32(ceiling))
	}
	return true
}

func loopSoftmaxColumns(x *float32, n int, floor, ceiling float32) {
	if path == pathAVX512 {
		softmaxColumnsAVX512(x, n, floor, ceiling)
	} else {
		softmaxColumnsAVX2(x, n, floor, ceiling)
	}
}
