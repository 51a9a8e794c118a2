//go:build !amd64

package tensor

// FastestPath returns PathGo: there is no assembly for this processor.
func FastestPath() VectorPath { return PathGo }
