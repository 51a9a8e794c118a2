// Package update computes steps of optimizers, [graph.Update]: block by block, each weight with its gradient
// and states read and written once, by loops over a block that stays in the first-level cache. Adam has a loop of its own in assembly, which memory bounds.
//
// Every operation is rounded by itself and in the same order on all paths, so that results are the same to the bit
// with and without SIMD instructions and with any number of threads.
package update
