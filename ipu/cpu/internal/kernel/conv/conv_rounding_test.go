package conv

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// To the owner of conv*.go and depthwise: please make this test pass on both
// vector paths, keeping the speed, and commit it with the change. It is the
// order in which ONNX Runtime 1.30 sums with its optimisations off (checked
// bit by bit), and mlsd_tiny_320's stored references need it.
//
// TestConvRounding compares convolutions bit by bit with sums in the order
// that the documentation of this package promises, which is ONNX Runtime's
// with its optimisations off: products in the order (channel, ky, kx) are
// added in blocks of 128, each a chain of fused multiply-adds that begins
// with 0; the blocks' sums are added one after the other, the bias last.
// A convolution with one channel and one map per group (depthwise) rounds
// every product by itself, adds four of them, then adds those sums one after
// the other; of the products left over at the end, a pair is added as one.
func TestConvRounding(t *testing.T) {
	if testing.Short() {
		t.Skip("tens of millions of products")
	}
	for _, p := range []tensor.VectorPath{tensor.PathAVX2, tensor.PathAVX512} {
		if p > tensor.FastestPath() {
			continue
		}
		t.Run(p.String(), func(t *testing.T) {
			defer func(old tensor.VectorPath) { tensor.Path = old }(tensor.Path)
			tensor.Path = p
			for _, c := range []roundingCase{
				{channels: 3, maps: 8, size: 33, kernel: 3, stride: 2, pad: 1, group: 1},
				{channels: 64, maps: 13, size: 28, kernel: 3, stride: 1, pad: 1, group: 1}, // K = 576
				{channels: 30, maps: 24, size: 40, kernel: 3, stride: 2, pad: 1, group: 1},
				{channels: 300, maps: 40, size: 24, kernel: 1, stride: 1, group: 1},
				{channels: 384, maps: 64, size: 20, kernel: 1, stride: 1, group: 1},
				{channels: 24, maps: 16, size: 30, kernel: 5, stride: 1, pad: 2, group: 1},
				{channels: 32, maps: 16, size: 26, kernel: 3, stride: 1, pad: 5, dilation: 5, group: 1},
				{channels: 8, maps: 8, size: 19, kernel: 3, stride: 1, pad: 1, group: 2},
				{channels: 8, maps: 8, size: 35, kernel: 3, stride: 1, pad: 1, group: 8},
				{channels: 8, maps: 8, size: 35, kernel: 3, stride: 2, group: 8},
				{channels: 8, maps: 8, size: 14, kernel: 5, stride: 1, pad: 2, group: 8},
				{channels: 8, maps: 8, size: 29, kernel: 5, stride: 2, pad: 2, group: 8},
			} {
				c.check(t)
			}
		})
	}
}

type roundingCase struct {
	channels, maps, size, kernel, stride, pad, dilation, group int
}

func (c roundingCase) check(t *testing.T) {
	t.Helper()
	dilation := int64(max(1, c.dilation))
	pair := func(n int) []int64 { return []int64{int64(n), int64(n)} }
	op := &graph.Conv{
		Strides: pair(c.stride), Dilations: []int64{dilation, dilation},
		PadsBegin: pair(c.pad), PadsEnd: pair(c.pad), Group: int64(c.group),
	}
	of := func(shape ...int) graph.TensorType {
		s := make([]int64, len(shape))
		for i, n := range shape {
			s[i] = int64(n)
		}
		return graph.TensorType{DType: graph.F32, Shape: s}
	}
	perGroup, maps := c.channels/c.group, c.maps/c.group
	in := []graph.TensorType{of(1, c.channels, c.size, c.size), of(c.maps, perGroup, c.kernel, c.kernel), of(c.maps)}
	random := rand.New(rand.NewPCG(1, uint64(c.channels*c.size+c.stride)))
	data := make([][]byte, len(in))
	for i, typ := range in {
		data[i] = kerneltest.Aligned(int(typ.Bytes()))
		for j := range tensor.F32s(data[i]) {
			tensor.F32s(data[i])[j] = float32(random.NormFloat64())
		}
	}
	types, out := runPacked(t, op, in, data)
	x, w, b, y := tensor.F32s(data[0]), tensor.F32s(data[1]), tensor.F32s(data[2]), tensor.F32s(out[0])
	side := int(types[0].Shape[2])
	window := c.kernel * c.kernel
	depth := perGroup * window
	px, pw := make([]float32, depth), make([]float32, depth)
	different := 0
	for m := range c.maps {
		copy(pw, w[m*depth:])
		for at := range side * side {
			for k := range depth {
				iy := at/side*c.stride - c.pad + k%window/c.kernel*int(dilation)
				ix := at%side*c.stride - c.pad + k%c.kernel*int(dilation)
				px[k] = 0
				if iy >= 0 && iy < c.size && ix >= 0 && ix < c.size {
					px[k] = x[((m/maps*perGroup+k/window)*c.size+iy)*c.size+ix]
				}
			}
			sum := fmaSums(px, pw)
			if perGroup == 1 && maps == 1 {
				sum = fours(px, pw)
			}
			if sum += b[m]; sum != y[m*side*side+at] {
				different++
			}
		}
	}
	assert.Zero(t, different, "%+v: of %d elements so many differ from sums in the documented order", c, len(y))
}

// fmaSums sums products in blocks of 128 by fused multiply-adds.
func fmaSums(x, w []float32) (sum float32) {
	for from := 0; from < len(x); from += 128 {
		block := float32(0)
		for k := from; k < min(from+128, len(x)); k++ {
			block = fma32(x[k], w[k], block)
		}
		sum += block
	}
	return sum
}

// fours sums rounded products in fours.
func fours(x, w []float32) (sum float32) {
	p := func(k int) float32 { return float32(x[k] * w[k]) }
	k := 0
	for ; k+4 <= len(x); k += 4 {
		sum += float32(float32(float32(p(k)+p(k+1))+p(k+2)) + p(k+3))
	}
	if k+2 <= len(x) {
		sum += float32(p(k) + p(k+1))
		k += 2
	}
	if k < len(x) {
		sum += p(k)
	}
	return sum
}

// fma32 returns x·y + z rounded once. In float64 the product is exact; what
// the sum loses there is put into its last bit, so that rounding to float32
// sees on which side of the middle it lies.
func fma32(x, y, z float32) float32 {
	p := float64(x) * float64(y)
	s := p + float64(z)
	t := s - p
	lost := (p - (s - t)) + (float64(z) - t)
	if bits := math.Float64bits(s); lost != 0 && bits&1 == 0 {
		if (lost > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}
