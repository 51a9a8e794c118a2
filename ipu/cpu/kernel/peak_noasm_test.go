//go:build !amd64

package kernel

func peak() float64 { return 0 }
