//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkRequest makes requests of 4 KiB in and out through rings, alone and while goroutines allocate without pause.
func BenchmarkRequest(b *testing.B) {
	for _, allocating := range []int{0, 4} {
		name := "idle"
		if allocating > 0 {
			name = "allocating"
		}
		b.Run(name, func(b *testing.B) {
			e, d := engineOf(b, adder(4096, 1, 2))
			in, other, out := rings(b, e, 4096, 1)
			done := make(chan struct{})
			var all sync.WaitGroup
			for range allocating {
				all.Go(func() {
					var keep [64][]byte
					for i := 0; ; i++ {
						select {
						case <-done:
							return
						default:
							keep[i%len(keep)] = make([]byte, 16<<10)
						}
					}
				})
			}
			var took []time.Duration
			for b.Loop() {
				in.rewind()
				other.rewind()
				out.rewind()
				start := time.Now()
				if err := e.Run(context.Background(), 1); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			close(done)
			all.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "µs-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "µs-p99")
			require.NoError(b, e.Close())
			require.NoError(b, d.Detach())
		})
	}
}
