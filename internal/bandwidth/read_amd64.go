package bandwidth

import "golang.org/x/sys/cpu"

//go:noescape
func read512(p *byte, bytes int)

//go:noescape
func read256(p *byte, bytes int)

// reader returns the widest loop that the machine can run; nil if it has no
// vectors of 256 bits.
func reader() func(p *byte, bytes int) {
	switch {
	case cpu.X86.HasAVX512F:
		return read512
	case cpu.X86.HasAVX2:
		return read256
	}
	return nil
}
