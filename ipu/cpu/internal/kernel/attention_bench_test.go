package kernel

import (
	"fmt"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// BenchmarkAttention measures attention of heads that lie in the result of one
// product.
func BenchmarkAttention(b *testing.B) {
	for _, c := range []struct {
		rows, heads, size int64
		causal            bool
	}{{11, 2, 64, false}, {64, 4, 64, true}, {128, 12, 64, false}, {197, 3, 64, false}, {512, 4, 64, false}, {1024, 4, 64, true}} {
		b.Run(fmt.Sprintf("%d×%d, %d heads, causal=%t", c.rows, c.size, c.heads, c.causal), func(b *testing.B) {
			o, in := kerneltest.JoinedHeads(c.rows, c.heads, c.size, c.causal)
			flops := 4 * float64(c.heads*c.rows*c.rows*c.size)
			if c.causal {
				flops /= 2
			}
			measure(b, o, flops, in[0].Shape, in[1].Shape, in[2].Shape)
		})
	}
}
