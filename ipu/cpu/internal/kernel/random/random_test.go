package random

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// TestPhilox has the known answers of Random123 1.14 (kat_vectors, philox4x32 10).
func TestPhilox(t *testing.T) {
	const all = math.MaxUint32
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{all, all, all, all}, [2]uint32{all, all}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		require.Empty(t, cmp.Diff(c.want, philox(c.counter, c.key)), "counter %x, key %x", c.counter, c.key)
	}
}

// TestFunctions compares logarithm, sine and cosine with the standard library's.
func TestFunctions(t *testing.T) {
	const all = 1 << 24
	for m := uint32(1); m <= all; m += 1 + m%97 {
		if got, want := ln(m), math.Log(float64(m)/all); math.Abs(got-want) > 1e-13*max(1, math.Abs(want)) {
			t.Fatalf("ln(%d/2^24) is %v, want %v", m, got, want)
		}
		sin, cos := turn(m - 1)
		ws, wc := math.Sincos(2 * math.Pi * float64(m-1) / all)
		if math.Abs(sin-ws) > 1e-13 || math.Abs(cos-wc) > 1e-13 {
			t.Fatalf("turn(%d) is %v, %v, want %v, %v", m-1, sin, cos, ws, wc)
		}
	}
	require.Zero(t, ln(all))
}

// draw computes op with a seed and a step.
func draw(t *testing.T, op *graph.Random, seed [2]uint32, step int64) []byte {
	t.Helper()
	in := []graph.TensorType{{DType: graph.U32, Shape: []int64{2}}, {DType: graph.I64}}
	data := [][]byte{kerneltest.Aligned(8), kerneltest.Aligned(8)}
	binary.LittleEndian.PutUint32(data[0], seed[0])
	binary.LittleEndian.PutUint32(data[0][4:], seed[1])
	binary.LittleEndian.PutUint64(data[1], uint64(step))
	bind := func(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
		return kerneltest.BindFrom([]map[string]tensor.Binder{Kernels}, op, in, out)
	}
	_, out := kerneltest.Run(t, bind, op, in, data)
	return out[0]
}

// TestRandomIsPhilox takes words apart as the operator's documentation says, at the borders of blocks and parts.
func TestRandomIsPhilox(t *testing.T) {
	const n = 1003
	seed, step := [2]uint32{7, 9}, int64(5)<<32|3
	bits := tensor.View[uint32](draw(t, &graph.Random{Fn: graph.RandomBits, Number: 11, To: graph.U32, Shape: []int64{n}}, seed, step))
	uniform := tensor.F32s(draw(t, &graph.Random{Fn: graph.RandomUniform, A: -1, B: 3, Number: 11, To: graph.F32, Shape: []int64{17, 59}}, seed, step))
	normal := tensor.F64s(draw(t, &graph.Random{Fn: graph.RandomNormal, A: 2, B: 3, Number: 11, To: graph.F64, Shape: []int64{n}}, seed, step))
	for i := range n {
		w := philox([4]uint32{uint32(i / 4), 11, 3, 5}, seed)
		require.Equal(t, w[i%4], bits[i])
		require.Equal(t, float32(-1+4*float64(bits[i]>>8)/(1<<24)), uniform[i])
		even := i &^ 1
		u, v := w[even%4], philox([4]uint32{uint32(even / 4), 11, 3, 5}, seed)[even%4+1]
		r, angle := math.Sqrt(-2*math.Log((float64(u>>8)+1)/(1<<24))), 2*math.Pi*float64(v>>8)/(1<<24)
		want := 2 + 3*r*math.Cos(angle)
		if i%2 == 1 {
			want = 2 + 3*r*math.Sin(angle)
		}
		require.InDelta(t, want, normal[i], 3e-7*max(1, math.Abs(want)))
	}
}

// TestBitsStay keeps numbers that other machines must draw too.
func TestBitsStay(t *testing.T) {
	normal := tensor.View[uint32](draw(t, &graph.Random{Fn: graph.RandomNormal, B: 1, To: graph.F32, Shape: []int64{6}}, [2]uint32{1, 2}, 3))
	half := tensor.View[uint16](draw(t, &graph.Random{Fn: graph.RandomUniform, B: 1, To: graph.F16, Shape: []int64{5}}, [2]uint32{1, 2}, 3))
	require.Empty(t, cmp.Diff([]uint32{0x3f55a6ff, 0xbfb562cb, 0x3ebf8ede, 0x3eac10bb, 0x3f1b5962, 0x3ef2cdc9}, normal))
	require.Empty(t, cmp.Diff([]uint16{13347, 15021, 15117, 12148, 14834}, half))
}

// TestDistributions looks at moments of many numbers, and that Number, step and both words of the seed matter.
func TestDistributions(t *testing.T) {
	const n = 1 << 16
	op := &graph.Random{Fn: graph.RandomNormal, B: 1, To: graph.F32, Shape: []int64{n}}
	first := tensor.F32s(draw(t, op, [2]uint32{1, 2}, 3))
	moments := func(x []float32) (mean, variance, fourth float64) {
		for _, v := range x {
			mean += float64(v) / n
			variance += float64(v) * float64(v) / n
			fourth += math.Pow(float64(v), 4) / n
		}
		return mean, variance, fourth
	}
	mean, variance, fourth := moments(first)
	require.InDelta(t, 0, mean, 0.02)
	require.InDelta(t, 1, variance, 0.03)
	require.InDelta(t, 3, fourth, 0.2)
	mean, variance, _ = moments(tensor.F32s(draw(t, &graph.Random{Fn: graph.RandomUniform, B: 1, To: graph.F32, Shape: []int64{n}}, [2]uint32{}, 0)))
	require.InDelta(t, 0.5, mean, 0.01)
	require.InDelta(t, 1./3, variance, 0.01)
	other := *op
	other.Number = 1
	for name, x := range map[string][]byte{
		"Number": draw(t, &other, [2]uint32{1, 2}, 3), "step": draw(t, op, [2]uint32{1, 2}, 4), "high step": draw(t, op, [2]uint32{1, 2}, 3|1<<40),
		"seed": draw(t, op, [2]uint32{0, 2}, 3), "second word of the seed": draw(t, op, [2]uint32{1, 3}, 3),
	} {
		var product float64
		for i, v := range tensor.F32s(x) {
			product += float64(v) * float64(first[i]) / n
		}
		require.InDelta(t, 0, product, 0.02, name)
	}
}
