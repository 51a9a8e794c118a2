package export

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrLayout marks every error by which [Training] refuses numbers of batches, return types, names or
// tensors.
var ErrLayout = errors.New("the programs can't be laid out")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrLayout, fmt.Errorf(format, args...))
}

// Return says which values of an output a run of the main program returns, as PopART's anchor return
// types do. What is not returned is not copied to the host.
type Return uint8

// The return types. A run computes batchesPerStep batches, each of accumulation × replicas micro-batches.
const (
	// All returns the value of every micro-batch: batchesPerStep × accumulation × replicas transfers, the
	// replicas of a micro-batch side by side.
	All Return = iota
	// EveryN returns those of every N-th batch: batchesPerStep/N × accumulation × replicas transfers.
	EveryN
	// Final returns those of the last micro-batch of the run: one transfer for each replica.
	Final
	// Sum returns the sums over all micro-batches of the run, added in their order and in the type of the
	// output: one transfer for each replica.
	Sum
	numReturns
)

var returnNames = [numReturns]string{"All", "EveryN", "Final", "Sum"}

// String returns the name, such as "EveryN".
func (r Return) String() string {
	if r < numReturns {
		return returnNames[r]
	}
	return fmt.Sprintf("Return(%d)", uint8(r))
}

// ParseReturn returns the return type of that name, whose capitals do not matter.
func ParseReturn(name string) (Return, error) {
	for i, n := range returnNames {
		if strings.EqualFold(n, name) {
			return Return(i), nil
		}
	}
	return 0, refuse("return type %q: want one of %s", name, strings.Join(returnNames[:], ", "))
}

// period checks the return type of an output and returns after how many batches of a run its values are returned:
// 1 for All, N for EveryN, all batches for Final and Sum.
func (o *Output) period(batches int64) (int64, error) {
	switch {
	case o.Return >= numReturns:
		return 0, refuse("output %q: return type %d: want one of %s", o.Name, o.Return, strings.Join(returnNames[:], ", "))
	case o.Return != EveryN && o.N != 0:
		return 0, refuse("output %q: return type %v with N = %d: only EveryN has an N; leave it out, or return %v", o.Name, o.Return, o.N, EveryN)
	case o.Return == EveryN && o.N < 1:
		return 0, refuse("output %q: return type EveryN with N = %d: want after how many batches values are returned, one of %s", o.Name, o.N, divisors(batches))
	case o.Return == EveryN && batches%o.N != 0:
		return 0, refuse("output %q: return type EveryN with N = %d, which does not divide the %d batches per step: want N to be one of %s, or other batches per step",
			o.Name, o.N, batches, divisors(batches))
	}
	switch o.Return {
	case All:
		return 1, nil
	case EveryN:
		return o.N, nil
	}
	return batches, nil
}

// divisors lists the divisors of n in words, the smallest of them if they are many.
func divisors(n int64) string {
	const most = 12
	var words []string
	for d := int64(1); d <= min(n, 4096) && len(words) < most; d++ {
		if n%d == 0 {
			words = append(words, fmt.Sprint(d))
		}
	}
	if last := fmt.Sprint(n); !slices.Contains(words, last) {
		words = append(words, "…", last)
	}
	return strings.Join(words, ", ")
}
