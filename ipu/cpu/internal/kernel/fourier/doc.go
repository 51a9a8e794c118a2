// Package fourier computes discrete Fourier transforms of any length: mixed radix
// for small prime factors, Bluestein's algorithm for the rest.
package fourier
