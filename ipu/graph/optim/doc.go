// Package optim adds steps of optimizers to portable executables: [SGD], [Adam] and [Adaptive] with their relatives. [Apply] appends a
// node for each weight to the current graph of a [graph.Builder]; the gradients are what package autodiff computes. Formulas, defaults
// and the names of states and of what the host feeds are PopART's. [Losses] are there by name, and check their labels.
// [Train] makes all of a training step but the forward and backward graphs: sums of gradients over micro-batches, their norms, loss scaling, and [Apply].
package optim
