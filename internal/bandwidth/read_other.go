//go:build !amd64

package bandwidth

func reader() func(p *byte, bytes int) { return nil }
