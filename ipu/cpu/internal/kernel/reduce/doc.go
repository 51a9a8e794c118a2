// Package reduce computes sums, means, extremes and norms along axes, and what is
// made of them: Softmax, batch, layer, group, RMS and local response normalisation,
// determinants.
package reduce
