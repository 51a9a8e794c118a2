// Package gemm multiplies matrices of float32 and, by way of it, of other types:
// MatMul and Gemm, packing of operands into panels, the micro-kernels for tiles, and
// the loops for few rows (matrix by vector). Convolutions and recurrences use them.
package gemm
