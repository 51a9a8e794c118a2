//go:build !amd64

package kernel

func fastestPath() vectorPath { return pathGo }
