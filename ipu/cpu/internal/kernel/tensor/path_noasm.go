//go:build !amd64

package tensor

func FastestPath() VectorPath { return PathGo }
