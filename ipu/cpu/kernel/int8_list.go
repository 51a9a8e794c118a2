package kernel

// int8Kernels are the binders of the operators on bytes.
var int8Kernels = map[string]binder{
	"Quantize":      bindQuantize,
	"Dequantize":    bindDequantize,
	"IntegerMatMul": bindIntegerMatMul,
	"IntegerConv":   bindIntegerConv,
}

// int8Tables declares the tables of their kernels.
var int8Tables = map[string]declared{
	"IntegerMatMul": matMulTableBytes,
	"IntegerConv":   integerConvTableBytes,
}
