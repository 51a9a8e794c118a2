package gemm

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/peak"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// BenchmarkMicroKernel runs the inner loop of the matrix product on operands
// that stay in the first-level cache, and reports its share of the peak. The
// fastest run counts: nothing but others on the machine makes one slower.
func BenchmarkMicroKernel(b *testing.B) {
	const k = 128
	for p := tensor.PathAVX2; p <= tensor.FastestPath(); p++ {
		most, cols := gemmTile(p)
		for rows := 1; rows <= most; rows++ {
			b.Run(fmt.Sprintf("%s/%dx%d", p, rows, cols), func(b *testing.B) {
				defer func(was tensor.VectorPath) { tensor.Path = was }(tensor.Path)
				tensor.Path = p
				vectors := func(n int) []float32 { return tensor.View[float32](kerneltest.Aligned(4 * n)) }
				x, w, y, d := vectors(rows*k), vectors(k*cols), vectors(rows*cols), vectors(rows*cols)
				args := gemmArgs{
					a: &x[0], b: &w[0], c: &y[0], d: &d[0], ahead: &w[0], rows: rows, k: k, alpha: 1,
					aRow: 4 * k, aStep: 4, bStep: 4 * cols, cRow: 4 * cols, dRow: 4 * cols,
				}
				before := peak.Peak(1)
				const batch = 100
				best := time.Duration(math.MaxInt64)
				for b.Loop() {
					start := time.Now()
					for range batch {
						runGemm(p, &args, cols, true)
					}
					best = min(best, time.Since(start))
				}
				speed := float64(2*rows*cols*k*batch) / best.Seconds()
				b.ReportMetric(speed/1e9, "GFLOP/s")
				b.ReportMetric(speed/max(before, peak.Peak(1)), "of-peak")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
