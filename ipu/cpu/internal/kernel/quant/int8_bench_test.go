package quant

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// BenchmarkInteger reports how many multiplications and additions of bytes a
// nanosecond has, in the fastest run.
func BenchmarkInteger(b *testing.B) {
	of := func(d graph.DType, shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	conv := func(kernel, stride, group int64) *graph.IntegerConv {
		s, p, d := []int64{stride, stride}, []int64{kernel / 2, kernel / 2}, []int64{1, 1}
		return &graph.IntegerConv{Strides: s, Dilations: d, PadsBegin: p, PadsEnd: p, Group: group, To: graph.U8}
	}
	for _, c := range []struct {
		op   graph.Op
		a, b graph.TensorType
	}{
		{&graph.IntegerMatMul{To: graph.U8}, of(graph.U8, 128, 768), of(graph.I8, 768, 768)},
		{&graph.IntegerMatMul{To: graph.F32}, of(graph.U8, 128, 768), of(graph.I8, 768, 768)},
		{&graph.IntegerMatMul{To: graph.I8}, of(graph.I8, 128, 768), of(graph.I8, 768, 768)},
		{&graph.IntegerMatMul{To: graph.U8}, of(graph.U8, 128, 3072), of(graph.I8, 3072, 768)},
		{&graph.IntegerMatMul{To: graph.U8}, of(graph.U8, 1, 1024), of(graph.I8, 1024, 1024)},
		{conv(3, 1, 1), of(graph.U8, 1, 64, 56, 56), of(graph.I8, 64, 64, 3, 3)},
		{conv(3, 1, 1), of(graph.U8, 1, 512, 7, 7), of(graph.I8, 512, 512, 3, 3)},
		{conv(3, 2, 1), of(graph.U8, 1, 128, 56, 56), of(graph.I8, 128, 128, 3, 3)},
		{conv(7, 2, 1), of(graph.U8, 1, 3, 224, 224), of(graph.I8, 64, 3, 7, 7)},
		{conv(1, 1, 1), of(graph.U8, 1, 64, 56, 56), of(graph.I8, 256, 64, 1, 1)},
		{conv(1, 1, 1), of(graph.U8, 1, 256, 56, 56), of(graph.I8, 64, 256, 1, 1)},
		{conv(1, 1, 1), of(graph.U8, 1, 1024, 14, 14), of(graph.I8, 256, 1024, 1, 1)},
		{conv(3, 1, 144), of(graph.U8, 1, 144, 56, 56), of(graph.I8, 144, 1, 3, 3)},
		{conv(3, 2, 96), of(graph.U8, 1, 96, 112, 112), of(graph.I8, 96, 1, 3, 3)},
	} {
		in := []graph.TensorType{c.a, c.b, of(c.a.DType), {}, {}, of(graph.F32)}
		out, err := c.op.Infer(in)
		require.NoError(b, err)
		k, err := newKernel(c.op, in, out)
		require.NoError(b, err)
		p := k.(tensor.Packer)
		data := make([][]byte, len(in))
		for i, t := range in {
			if t.DType != graph.Invalid {
				data[i] = kerneltest.Aligned(int(t.Bytes()))
			}
		}
		data[1] = kerneltest.Aligned(p.Packed(1))
		p.Pack(1, data[1], make([]byte, c.b.Bytes()))
		p.UsePacked(1)
		products := float64(out[0].Elements()) * float64(c.b.Elements()) / float64(c.b.Shape[0])
		if _, ok := c.op.(*graph.IntegerMatMul); ok {
			products = float64(out[0].Elements()) * float64(c.b.Shape[0])
		}
		y, scratch := [][]byte{kerneltest.Aligned(int(out[0].Bytes()))}, kerneltest.Aligned(k.Scratch())
		for _, pool := range []tensor.Pool{tensor.Serial{}, kerneltest.Threads(runtime.GOMAXPROCS(0))} {
			b.Run(fmt.Sprintf("%v·%v to %v/%d", c.a, c.b, out[0].DType, pool.Workers()), func(b *testing.B) {
				best := time.Hour
				for b.Loop() {
					start := time.Now()
					require.NoError(b, k.Run(pool, data, y, scratch))
					best = min(best, time.Since(start))
				}
				b.ReportMetric(products/float64(best), "GMAC/s")
				b.ReportMetric(float64(best)/1e3, "best-µs")
			})
		}
	}
}
