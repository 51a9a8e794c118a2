// Package nhwc computes on 8-bit activations whose channels lie side by side
// (NHWC): quantised convolutions by VNNI, pooling, sums and products, tables of
// functions, joins, and the conversions from and to planes. The engine puts these
// operators into its own copy of an executable; no file has them.
package nhwc
