package popxl

import (
	"fmt"
	"math"
)

// FeedFrom is [Input.Feed] for data that may have more tensors than a run loads: the rest is not read. When the run has ended, *used says how many were, of each replica; the next run goes
// on behind them. The data of all replicas has to be there, whole tensors of each.
func (in Input[T]) FeedFrom(data []T, used *int) Binding {
	b := in.Feed(data)
	b.used = used
	return b
}

// Narrow is [Input.Feed] for data of 64 bits that the input has 32 bits of: PopXL narrows such data unasked, and what is too large loses its upper bits. Here the program says that it wants it, and
// a number that does not fit is an error of the run, with its place. It allocates what it narrows to.
func Narrow[T int32 | uint32 | float32, W int64 | uint64 | float64](in Input[T], data []W) Binding {
	out := make([]T, len(data))
	b := in.Feed(out)
	for i, v := range data {
		out[i] = T(v)
		if !fits(v, out[i]) {
			b.err = fmt.Errorf("element %d is %v, which %v does not hold: give numbers that do, or an input of 64 bits", i, v, TypeOf[T]())
			return b
		}
	}
	return b
}

// fits reports whether narrow is what v becomes: of integers the same number, of floating-point ones one that is rounded, and not infinite unless v is.
func fits[T int32 | uint32 | float32, W int64 | uint64 | float64](v W, narrow T) bool {
	if wide, ok := any(v).(float64); ok {
		if f, ok := any(narrow).(float32); ok {
			return !math.IsInf(float64(f), 0) || math.IsInf(wide, 0)
		}
		var least, most float64 = 0, math.MaxUint32
		if _, ok := any(narrow).(int32); ok {
			least, most = math.MinInt32, math.MaxInt32
		}
		return wide == math.Trunc(wide) && wide >= least && wide <= most
	}
	if _, ok := any(narrow).(float32); ok {
		return true // rounded
	}
	return W(narrow) == v && (narrow < 0) == (v < 0)
}
