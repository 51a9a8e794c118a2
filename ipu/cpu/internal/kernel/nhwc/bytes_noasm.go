//go:build !amd64

package nhwc

// The loops for NHWC are never asked for where [Supported] reports false.

func bytesConv(*bytesConvArgs) {}

func bytesDepth(*bytesDepthArgs) {}

func bytesAdd(*bytesAddArgs) {}

func bytesMul(*bytesAddArgs) {}

func bytesMap(*bytesMapArgs) {}

func vectorTables() bool { return false }

func bytesMost(*bytesMostArgs) {}

func vectorTranspose([]byte, int, []byte, int, int, byte) int { return 0 }
