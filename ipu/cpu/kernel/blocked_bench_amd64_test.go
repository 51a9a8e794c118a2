package kernel

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// BenchmarkBlockedTiles runs the inner loop of blocked convolutions on operands
// that stay in the caches, and reports its share of the peak.
func BenchmarkBlockedTiles(b *testing.B) {
	for p := pathAVX2; p <= fastestPath(); p++ {
		tall, _, _ := convLimits(p)
		for _, k := range []int{64, 256, 576} {
			for _, rows := range []int{tall, tall / 2} {
				b.Run(fmt.Sprintf("%s/%dx%d/k%d", p, rows, 2*p.lanes(), k), func(b *testing.B) { measureTiles(b, p, rows, k) })
			}
		}
	}
}

// measureTiles measures four tiles at a time.
func measureTiles(b *testing.B, p vectorPath, rows, k int) {
	defer func(was vectorPath) { path = was }(path)
	path = p
	const tiles, batch = 4, 20
	maps := 2 * p.lanes()
	vectors := func(n int) []float32 { return f32s(aligned(4 * n)) }
	x, w, y, sums, bias := vectors(1<<16), vectors(maps*k), vectors(tiles*rows*maps), vectors(rows*maps), vectors(maps)
	offsets := make([]int32, k)
	for i := range offsets {
		offsets[i] = int32(i/144*4096 + i%144/9*4 + i%3*64 + i%9/3*1024)
	}
	fill := blockedArgs{
		x: &x[0], step: 4 * p.lanes(), w: &w[0], offsets: &offsets[0], k: k, ahead: &w[0], sums: &sums[0], rows: rows, vectors: 2, tiles: tiles,
		y: &y[0], tileY: 4 * p.lanes() * rows, block: 4 * p.lanes() * rows * tiles, bias: &bias[0], bounded: 1, high: 1,
	}
	before := Peak(1)
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
	b.ReportMetric(speed/max(before, Peak(1)), "of-peak")
	b.ReportMetric(0, "ns/op")
}
