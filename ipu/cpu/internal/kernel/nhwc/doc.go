// Package nhwc computes on int8 activations in NHWC, the channels of a pixel side
// by side: quantised convolutions by VNNI, pooling, sums and products, lookup
// tables of functions, concatenation, and the conversions from and to NCHW. The
// engine puts these operators into its own copy of an executable; no file has them.
package nhwc
