// Package nchwc computes on activations in the blocked layout NCHWc (NCHW16c with
// AVX-512, NCHW8c with AVX2): convolutions, depthwise ones, pooling, resizing, the
// conversions from and to NCHW, and several such operators tile by tile (depth-first
// tiling). The engine puts these operators into its own copy of an executable; no
// file has them.
package nchwc
