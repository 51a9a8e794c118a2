package vec

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// The loops of the current path, called directly: the compiler sees that the
// assembly keeps none of its pointers, so what they point to may lie on the
// stack of a run. Through a function value, such as [pick] returns, it doesn't,
// and moves it to the heap. None of them is for plain Go.

func loopAdd(dst, x, y *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		addAVX512(dst, x, y, n)
	} else {
		addAVX2(dst, x, y, n)
	}
}

func loopDivide(dst, x, y *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		divideAVX512(dst, x, y, n)
	} else {
		divideAVX2(dst, x, y, n)
	}
}

func loopClipOne(dst, x *float32, n int, lo, hi, zero float32) {
	if tensor.Path == tensor.PathAVX512 {
		clipOneAVX512(dst, x, n, lo, hi, zero)
	} else {
		clipOneAVX2(dst, x, n, lo, hi, zero)
	}
}

func loopScale(dst, x *float32, n int, factor float32) {
	if tensor.Path == tensor.PathAVX512 {
		scaleAVX512(dst, x, n, factor)
	} else {
		scaleAVX2(dst, x, n, factor)
	}
}

func loopDivideOne(dst, x *float32, n int, y, reciprocal float32) {
	if tensor.Path == tensor.PathAVX512 {
		divideOneAVX512(dst, x, n, y, reciprocal)
	} else {
		divideOneAVX2(dst, x, n, y, reciprocal)
	}
}

// LoopMaximumOne sets n elements of dst to the larger of those of x and y.
func LoopMaximumOne(dst, x *float32, n int, y float32) {
	if tensor.Path == tensor.PathAVX512 {
		maximumOneAVX512(dst, x, n, y)
	} else {
		maximumOneAVX2(dst, x, n, y)
	}
}

// LoopMinimumOne sets n elements of dst to the smaller of those of x and y.
func LoopMinimumOne(dst, x *float32, n int, y float32) {
	if tensor.Path == tensor.PathAVX512 {
		minimumOneAVX512(dst, x, n, y)
	} else {
		minimumOneAVX2(dst, x, n, y)
	}
}

// LoopMost returns the largest of n elements.
func LoopMost(x *float32, n int) float32 {
	if tensor.Path == tensor.PathAVX512 {
		return mostAVX512(x, n)
	}
	return mostAVX2(x, n)
}

func loopLeast(x *float32, n int) float32 {
	if tensor.Path == tensor.PathAVX512 {
		return leastAVX512(x, n)
	}
	return leastAVX2(x, n)
}

func loopNormaliseScale(dst, x, scale *float32, n int, mean, factor float32) {
	if tensor.Path == tensor.PathAVX512 {
		normaliseScaleAVX512(dst, x, scale, n, mean, factor)
	} else {
		normaliseScaleAVX2(dst, x, scale, n, mean, factor)
	}
}

func loopNormaliseScaleBias(dst, x, scale, bias *float32, n int, mean, factor float32) {
	if tensor.Path == tensor.PathAVX512 {
		normaliseScaleBiasAVX512(dst, x, scale, bias, n, mean, factor)
	} else {
		normaliseScaleBiasAVX2(dst, x, scale, bias, n, mean, factor)
	}
}

func loopLayerNormRows(dst, x, scale, bias *float32, n, rows int, epsilon float64) {
	if tensor.Path == tensor.PathAVX512 {
		layerNormRowsAVX512(dst, x, scale, bias, n, rows, epsilon)
	} else {
		layerNormRowsAVX2(dst, x, scale, bias, n, rows, epsilon)
	}
}

func loopRmsNormRows(dst, x, scale *float32, n, rows int, epsilon float64) {
	if tensor.Path == tensor.PathAVX512 {
		rmsNormRowsAVX512(dst, x, scale, n, rows, epsilon)
	} else {
		rmsNormRowsAVX2(dst, x, scale, n, rows, epsilon)
	}
}

func loopExpShiftSum(x *float32, n int, shift float32) float32 {
	if tensor.Path == tensor.PathAVX512 {
		return expShiftSumAVX512(x, n, shift)
	}
	return expShiftSumAVX2(x, n, shift)
}

func loopExpShift(dst, x *float32, n int, shift float32) float32 {
	if tensor.Path == tensor.PathAVX512 {
		return expShiftAVX512(dst, x, n, shift)
	}
	return expShiftAVX2(dst, x, n, shift)
}

func loopLower(dst, x *float32, n int, shift, more float32) {
	if tensor.Path == tensor.PathAVX512 {
		lowerAVX512(dst, x, n, shift, more)
	} else {
		lowerAVX2(dst, x, n, shift, more)
	}
}

func loopSoftmaxRows(dst, x *float32, n, rows int) {
	if tensor.Path == tensor.PathAVX512 {
		softmaxRowsAVX512(dst, x, n, rows)
	} else {
		softmaxRowsAVX2(dst, x, n, rows)
	}
}

func loopLogSoftmaxRows(dst, x *float32, n, rows int) {
	if tensor.Path == tensor.PathAVX512 {
		logSoftmaxRowsAVX512(dst, x, n, rows)
	} else {
		logSoftmaxRowsAVX2(dst, x, n, rows)
	}
}

// LoopSum returns the sum of n elements, added in lanes.
func LoopSum(x *float32, n int) float32 {
	if tensor.Path == tensor.PathAVX512 {
		return sumAVX512(x, n)
	}
	return sumAVX2(x, n)
}

func loopLongSquares(x *float32, n int) float64 {
	if tensor.Path == tensor.PathAVX512 {
		return longSquaresAVX512(x, n)
	}
	return longSquaresAVX2(x, n)
}

func loopSumEach(acc *float64, x *float32, n, rows, stride int) {
	if tensor.Path == tensor.PathAVX512 {
		sumEachAVX512(acc, x, n, rows, stride)
	} else {
		sumEachAVX2(acc, x, n, rows, stride)
	}
}

func loopSumShort(acc *float64, x *float32, n, rows, stride int) {
	if tensor.Path == tensor.PathAVX512 {
		sumShortAVX512(acc, x, n, rows, stride)
	} else {
		sumShortAVX2(acc, x, n, rows, stride)
	}
}

func loopLongSquaresEach(acc *float64, x *float32, n, rows, stride int) {
	if tensor.Path == tensor.PathAVX512 {
		longSquaresEachAVX512(acc, x, n, rows, stride)
	} else {
		longSquaresEachAVX2(acc, x, n, rows, stride)
	}
}

func loopLongSumRows(acc *float64, x *float32, n, rows, stride int) {
	if tensor.Path == tensor.PathAVX512 {
		longSumRowsAVX512(acc, x, n, rows, stride)
	} else {
		longSumRowsAVX2(acc, x, n, rows, stride)
	}
}

func loopLongSquaresRows(acc *float64, x *float32, n, rows, stride int) {
	if tensor.Path == tensor.PathAVX512 {
		longSquaresRowsAVX512(acc, x, n, rows, stride)
	} else {
		longSquaresRowsAVX2(acc, x, n, rows, stride)
	}
}

func loopChoose(dst, x, y *uint32, which *uint8, groups int) {
	if tensor.Path == tensor.PathAVX512 {
		chooseAVX512(dst, x, y, which, groups)
	} else {
		chooseAVX2(dst, x, y, which, groups)
	}
}

func loopCopyRuns(dst, src *uint8, rows, bytes, to, from int) {
	if tensor.Path == tensor.PathAVX512 {
		copyRunsAVX512(dst, src, rows, bytes, to, from)
	} else {
		copyRunsAVX2(dst, src, rows, bytes, to, from)
	}
}

func loopDeal2(d0, d1, x *uint32, n, rows, to, from int) {
	if tensor.Path == tensor.PathAVX512 {
		deal2AVX512(d0, d1, x, n, rows, to, from)
	} else {
		deal2AVX2(d0, d1, x, n, rows, to, from)
	}
}

// LoopTanh sets n elements of dst to the hyperbolic tangents of those of x.
func LoopTanh(dst, x *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		tanhAVX512(dst, x, n)
	} else {
		tanhAVX2(dst, x, n)
	}
}

func loopRoot(dst, x *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		rootAVX512(dst, x, n)
	} else {
		rootAVX2(dst, x, n)
	}
}

func loopSquares(x *float32, n int, mean float32) float32 {
	if tensor.Path == tensor.PathAVX512 {
		return squaresAVX512(x, n, mean)
	}
	return squaresAVX2(x, n, mean)
}

func loopGreater(best, at, x *float32, n int, d float32) {
	if tensor.Path == tensor.PathAVX512 {
		greaterAVX512(best, at, x, n, d)
	} else {
		greaterAVX2(best, at, x, n, d)
	}
}

func loopNormalise(dst, x *float32, n int, mean, factor, shift float32) {
	if tensor.Path == tensor.PathAVX512 {
		normaliseAVX512(dst, x, n, mean, factor, shift)
	} else {
		normaliseAVX2(dst, x, n, mean, factor, shift)
	}
}

func loopAddOne(dst, x *float32, n int, y float32) {
	if tensor.Path == tensor.PathAVX512 {
		addOneAVX512(dst, x, n, y)
	} else {
		addOneAVX2(dst, x, n, y)
	}
}

func loopClip(dst, x, lo, hi *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		clipAVX512(dst, x, lo, hi, n)
	} else {
		clipAVX2(dst, x, lo, hi, n)
	}
}

func loopMaximum(dst, x, y *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		maximumAVX512(dst, x, y, n)
	} else {
		maximumAVX2(dst, x, y, n)
	}
}

func loopMinimum(dst, x, y *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		minimumAVX512(dst, x, y, n)
	} else {
		minimumAVX2(dst, x, y, n)
	}
}
