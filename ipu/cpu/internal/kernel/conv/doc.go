// Package conv computes convolutions of images whose channels lie one after the
// other (NCHW): dense ones by products over tiles of pixels and output channels,
// depthwise ones by rows, transposed and deformable ones. Plain loops define them;
// what ONNX Runtime adds in which order is in the documentation of package kernel.
package conv
