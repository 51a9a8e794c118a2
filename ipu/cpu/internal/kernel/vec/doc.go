// Package vec computes operators on single elements: functions, arithmetic with
// broadcasting, comparisons, casts, bits, several fused into one loop (Pointwise).
// Its vectorised loops over rows serve the other families: sums, extremes, scaled
// and shifted copies, conversions between types.
package vec
