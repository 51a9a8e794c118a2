package kernel

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/peak"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// measure runs op on float32 data, packed operands packed, and reports
// GFLOP/s for the given number of operations and its share of the peak of one
// core, or all, measured just before. Other work on the machine slows down
// most runs, so the fastest one counts, or with one thread the processor time
// of the fastest quarter, which is better where runs are long.
func measure(b *testing.B, op graph.Op, flops float64, shapes ...[]int64) {
	b.Helper()
	measureOf(b, op, flops, true, shapes)
}

// measureUnpacked is measure of operands that change from run to run: none is packed before.
func measureUnpacked(b *testing.B, op graph.Op, flops float64, shapes ...[]int64) {
	b.Helper()
	measureOf(b, op, flops, false, shapes)
}

func measureOf(b *testing.B, op graph.Op, flops float64, packed bool, shapes [][]int64) {
	b.Helper()
	var in []graph.TensorType
	for _, s := range shapes {
		in = append(in, graph.TensorType{DType: graph.F32, Shape: s})
	}
	out, err := op.Infer(in)
	if err != nil {
		b.Fatal(err)
	}
	k, err := New(op, in, out)
	if err != nil {
		b.Fatal(err)
	}
	src := &kerneltest.Source{R: kerneltest.Seeded(1)}
	var data, results [][]byte
	for i, tt := range in {
		x := src.Tensor(tt)
		if p, ok := k.(tensor.Packer); packed && ok && i > 0 && p.Packed(i) > 0 {
			dst := kerneltest.Aligned(p.Packed(i))
			p.Pack(i, dst, x)
			p.UsePacked(i)
			x = dst
		}
		data = append(data, x)
	}
	for _, tt := range out {
		results = append(results, kerneltest.Aligned(tensor.Elements(tt.Shape)*tt.DType.Size()))
	}
	scratch := kerneltest.Aligned(k.Scratch())
	for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.Threads(runtime.GOMAXPROCS(0))} {
		b.Run(fmt.Sprint(p.Workers()), func(b *testing.B) {
			tensor.Grain = 16 << 10
			defer func() { tensor.Grain = 64 }()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			most := peak.Peak(1) / 1e9
			best := time.Duration(math.MaxInt64)
			busy := make([]time.Duration, 0, 1<<12)
			for b.Loop() {
				began, start := threadTime(), time.Now()
				if err := k.Run(p, data, results, scratch); err != nil {
					b.Fatal(err)
				}
				best = min(best, time.Since(start))
				if len(busy) < cap(busy) {
					busy = append(busy, threadTime()-began)
				}
			}
			if p.Workers() == 1 {
				slices.Sort(busy)
				best = min(best, busy[len(busy)/4])
			}
			speed := flops / float64(best.Nanoseconds())
			b.ReportMetric(speed, "GFLOP/s")
			if most > 0 {
				b.ReportMetric(speed/most/float64(p.Workers()), "of-peak")
			}
		})
	}
}

func BenchmarkMatMul(b *testing.B) {
	for _, c := range [][3]int64{
		{1, 128, 784}, {1, 512, 512}, {1, 1024, 1024}, {1, 4096, 4096}, {4, 512, 512}, {8, 128, 784}, {64, 64, 64}, {128, 128, 128}, {256, 256, 256}, {512, 512, 512},
		{1024, 1024, 1024}, {49, 512, 4608}, {128, 768, 3072}, {8, 30522, 32},
	} {
		m, n, k := c[0], c[1], c[2]
		b.Run(fmt.Sprintf("%dx%dx%d", m, n, k), func(b *testing.B) {
			measure(b, &graph.MatMul{}, float64(2*m*n*k), []int64{m, k}, []int64{k, n})
		})
	}
}

func BenchmarkGemv(b *testing.B) {
	measure(b, &graph.Gemm{TransB: true, Alpha: 1, Beta: 1}, 2*128*784, []int64{1, 784}, []int64{128, 784}, []int64{128})
}

// convLayers are convolutions as models have them.
var convLayers = []struct {
	name                                    string
	channels, maps, group, size, kk, stride int64
}{
	{"3x3_64_56", 64, 64, 1, 56, 3, 1}, {"3x3_128_28", 128, 128, 1, 28, 3, 1}, {"3x3_256_14", 256, 256, 1, 14, 3, 1},
	{"3x3_512_7", 512, 512, 1, 7, 3, 1}, {"3x3_16_80", 16, 16, 1, 80, 3, 1}, {"3x3_128_56_s2", 128, 128, 1, 56, 3, 2},
	{"7x7_3_64_224_s2", 3, 64, 1, 224, 7, 2}, {"5x5_1_64_224", 1, 64, 1, 224, 5, 1},
	{"1x1_64_256_56", 64, 256, 1, 56, 1, 1}, {"1x1_256_64_56", 256, 64, 1, 56, 1, 1}, {"1x1_512_128_28", 512, 128, 1, 28, 1, 1},
	{"1x1_16_96_112", 16, 96, 1, 112, 1, 1}, {"1x1_96_16_112", 96, 16, 1, 112, 1, 1}, {"1x1_2048_512_7", 2048, 512, 1, 7, 1, 1},
	{"depthwise_32_112", 32, 32, 32, 112, 3, 1}, {"depthwise_144_56", 144, 144, 144, 56, 3, 1}, {"depthwise_512_14", 512, 512, 512, 14, 3, 1},
	{"depthwise_96_112_s2", 96, 96, 96, 112, 3, 2}, {"depthwise5_144_28", 144, 144, 144, 28, 5, 1},
}

func BenchmarkConv(b *testing.B) {
	for _, c := range convLayers {
		b.Run(c.name, func(b *testing.B) {
			pads, strides := []int64{c.kk / 2, c.kk / 2}, []int64{c.stride, c.stride}
			op := &graph.Conv{Strides: strides, Dilations: []int64{1, 1}, PadsBegin: pads, PadsEnd: pads, Group: c.group}
			flops := 2 * float64(c.maps*c.size*c.size/c.stride/c.stride) * float64(c.channels/c.group*c.kk*c.kk)
			measure(b, op, flops, []int64{1, c.channels, c.size, c.size}, []int64{c.maps, c.channels / c.group, c.kk, c.kk}, []int64{c.maps})
		})
	}
}

// BenchmarkBlockedConv is BenchmarkConv on NCHWc.
func BenchmarkBlockedConv(b *testing.B) {
	lanes := nchwc.Lanes()
	if lanes == 0 {
		b.Skip("no kernels for blocks")
	}
	for _, c := range convLayers {
		b.Run(c.name, func(b *testing.B) {
			pads, strides := []int64{c.kk / 2, c.kk / 2}, []int64{c.stride, c.stride}
			op := &nchwc.Conv{Lanes: lanes, Channels: c.channels, In: c.channels >= lanes, Out: true}
			op.Conv = graph.Conv{Strides: strides, Dilations: []int64{1, 1}, PadsBegin: pads, PadsEnd: pads, Group: c.group, Bounded: true, High: math.Inf(1)}
			flops := 2 * float64(c.maps*c.size*c.size/c.stride/c.stride) * float64(c.channels/c.group*c.kk*c.kk)
			x := []int64{1, c.channels, c.size, c.size}
			if op.In {
				blocked, err := (&nchwc.ToNCHWc{Lanes: lanes}).Infer([]graph.TensorType{{DType: graph.F32, Shape: x}})
				if err != nil {
					b.Fatal(err)
				}
				x = blocked[0].Shape
			}
			measure(b, op, flops, x, []int64{c.maps, c.channels / c.group, c.kk, c.kk}, []int64{c.maps})
		})
	}
}

func BenchmarkLSTM(b *testing.B) {
	o := &graph.LSTM{Hidden: 128, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"},
		ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3)}
	measure(b, o, 2*50*512*(64+128), []int64{50, 1, 64}, []int64{1, 512, 64}, []int64{1, 512, 128}, []int64{1, 1024})
}

func BenchmarkSoftmax(b *testing.B) {
	measure(b, &graph.Softmax{Axis: 1}, 64*1000, []int64{64, 1000})
}

func BenchmarkLayerNorm(b *testing.B) {
	measure(b, &graph.LayerNorm{Axis: 1, Epsilon: 1e-5}, 128*768, []int64{128, 768}, []int64{768}, []int64{768})
}

func BenchmarkMaxPool(b *testing.B) {
	op := &graph.MaxPool{Kernel: []int64{3, 3}, Strides: []int64{2, 2}, Dilations: []int64{1, 1}, PadsBegin: []int64{1, 1}, PadsEnd: []int64{1, 1}}
	measure(b, op, 64*56*56*9, []int64{1, 64, 112, 112})
}

// BenchmarkNaive is the plain triple loop that the product is measured by.
func BenchmarkNaive(b *testing.B) {
	const n = 256
	x, y, z := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	for b.Loop() {
		for i := range n {
			for p := range n {
				v := x[i*n+p]
				for j, w := range y[p*n:][:n] {
					z[i*n+j] += v * w
				}
			}
		}
	}
	b.ReportMetric(2*n*n*n*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}
