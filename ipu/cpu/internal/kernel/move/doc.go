// Package move computes operators that move elements or look for places: reshapes,
// transposes, slices, padding, joins, gathering and scattering, extremes' indices,
// sorting, running sums, n-grams.
package move
