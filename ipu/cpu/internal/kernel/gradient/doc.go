// Package gradient goes back through operators, [graph.Gradient]: pooling, normalisation and softmax, each in
// one or two passes over memory.
//
// Sums over rows, of which the gradients of scale and bias are made, are added up in blocks of rows that depend on the
// shapes alone, so that the number of threads changes no bit.
package gradient
