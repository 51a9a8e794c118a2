package nchwc

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/peak"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// BenchmarkBlockedTiles runs the inner loop of blocked convolutions on operands
// that stay in the caches, and reports its share of the peak.
func BenchmarkBlockedTiles(b *testing.B) {
	for p := tensor.PathAVX2; p <= tensor.FastestPath(); p++ {
		tall, _, _ := conv.ConvLimits(p)
		for _, k := range []int{64, 256, 576} {
			for _, rows := range []int{tall, tall / 2} {
				b.Run(fmt.Sprintf("%s/%dx%d/k%d", p, rows, 2*p.Lanes(), k), func(b *testing.B) { measureTiles(b, p, rows, k) })
			}
		}
	}
}

// measureTiles measures four tiles at a time.
func measureTiles(b *testing.B, p tensor.VectorPath, rows, k int) {
	defer func(was tensor.VectorPath) { tensor.Path = was }(tensor.Path)
	tensor.Path = p
	const tiles, batch = 4, 20
	maps := 2 * p.Lanes()
	vectors := func(n int) []float32 { return tensor.F32s(kerneltest.Aligned(4 * n)) }
	x, w, y, sums, bias := vectors(1<<16), vectors(maps*k), vectors(tiles*rows*maps), vectors(rows*maps), vectors(maps)
	offsets := make([]int32, k)
	for i := range offsets {
		offsets[i] = int32(i/144*4096 + i%144/9*4 + i%3*64 + i%9/3*1024)
	}
	fill := blockedArgs{
		x: &x[0], step: 4 * p.Lanes(), w: &w[0], offsets: &offsets[0], k: k, ahead: &w[0], sums: &sums[0], rows: rows, vectors: 2, tiles: tiles,
		y: &y[0], tileY: 4 * p.Lanes() * rows, block: 4 * p.Lanes() * rows * tiles, bias: &bias[0], bounded: 1, high: 1,
	}
	before := peak.Peak(1)
	best := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		for range batch {
			args := fill
			runBlockedTiles(p, &args)
		}
		best = min(best, time.Since(start))
	}
	speed := float64(2*rows*maps*k*batch*tiles) / best.Seconds()
	b.ReportMetric(speed/1e9, "GFLOP/s")
	b.ReportMetric(speed/max(before, peak.Peak(1)), "of-peak")
	b.ReportMetric(0, "ns/op")
}
