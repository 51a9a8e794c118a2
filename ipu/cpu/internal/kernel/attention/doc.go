// Package attention computes scaled dot-product attention over rows of scores that
// stay in the cache: with masks, biases and causal triangles, from heads where they
// lie (ViewedAttention), and linear attention.
package attention
