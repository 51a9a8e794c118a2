// Package tensor is what kernels of all families are made of: the interfaces
// between them and the engine ([Kernel], [Pool], [Task], [Packer], [InPlacer]),
// typed views of operands, the vectorised path that the processor allows ([Path]),
// and how work is cut into parts.
package tensor
