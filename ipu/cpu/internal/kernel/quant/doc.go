// Package quant computes quantisation: Quantize, Dequantize, and products and
// convolutions of 8-bit integers with exact sums (IntegerMatMul, IntegerConv) and what
// makes floats or bytes of them again.
package quant
