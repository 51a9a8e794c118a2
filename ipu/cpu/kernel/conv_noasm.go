//go:build !amd64

package kernel

func newVectorConv[T float](convShape) Kernel { return nil }

func newDepthwise[T float](convShape) Kernel { return nil }
