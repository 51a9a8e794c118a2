package cpu

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/bandwidth"
	"github.com/popefgen/popefgen/ipu"
)

// BenchmarkAdam takes steps for ten million weights, of 28 bytes each: weight and moments read and written, the gradient read. Beside that it
// says which part it is of the speed at which the same threads read as much memory, measured in turns.
func BenchmarkAdam(b *testing.B) {
	const n = 10_000_000
	for _, threads := range []int{1, 2} {
		b.Run([]string{"", "threads=1", "threads=2"}[threads], func(b *testing.B) {
			e := newLoaded(b, learner(b, n), opt("threads", []string{"", "1", "2"}[threads])...)
			v := make([]float32, n)
			for i := range v {
				v[i] = float32(i%17) / 17
			}
			connect(b, e, map[string]ipu.Stream{"w in": in(b, v), "rate": in(b, []float32{0.01}), "g": constant{direct{newHost(b, bytesOf(v))}}})
			run(b, e, 0)
			run(b, e, 1)
			ctx := context.Background()
			require.NoError(b, e.Run(ctx, 5))
			best, read := time.Duration(1<<62), 0.0
			for b.Loop() {
				start := time.Now()
				require.NoError(b, e.Run(ctx, 5))
				best = min(best, time.Since(start))
				read = max(read, bandwidth.Together(16*n/threads, threads))
			}
			speed := 28 * n / best.Seconds()
			b.ReportMetric(speed/1e9, "GB/s")
			b.ReportMetric(speed/read, "of-reading")
		})
	}
}
