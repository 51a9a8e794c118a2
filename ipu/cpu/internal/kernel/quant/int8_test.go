package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// integerDraw are the operands of a product of bytes.
type integerDraw struct {
	to        graph.DType
	bounded   bool
	low, high float64
	types     []graph.TensorType
	data      [][]byte
}

// drawInteger draws what comes after the shapes of the first two operands.
func drawInteger(t *rapid.T, a, b []int64, columns int) *integerDraw {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "data"), 0))
	kinds := []graph.DType{graph.I8, graph.U8}
	d := &integerDraw{to: rapid.SampledFrom([]graph.DType{graph.I32, graph.F32, graph.I8, graph.U8}).Draw(t, "to")}
	add := func(typ graph.TensorType, data []byte) {
		d.types, d.data = append(d.types, typ), append(d.data, data)
	}
	at := graph.TensorType{DType: rapid.SampledFrom(kinds).Draw(t, "a"), Shape: a}
	bt := graph.TensorType{DType: rapid.SampledFrom(kinds).Draw(t, "b"), Shape: b}
	add(at, kerneltest.RandomBytes(r, tensor.Elements(a)))
	add(bt, kerneltest.RandomBytes(r, tensor.Elements(b)))
	list := func(many bool) []int64 {
		if many && rapid.Bool().Draw(t, "many") {
			return []int64{int64(columns)}
		}
		return rapid.SampledFrom([][]int64{nil, {1}}).Draw(t, "one")
	}
	zero := func(d graph.DType, many bool) {
		if !rapid.Bool().Draw(t, "zero") {
			add(graph.TensorType{}, nil)
			return
		}
		shape := list(many)
		data := kerneltest.RandomBytes(r, tensor.Elements(shape))
		if d == graph.U8 && rapid.Bool().Draw(t, "middle") {
			data = bytes.Repeat([]byte{128}, len(data))
		}
		add(graph.TensorType{DType: d, Shape: shape}, data)
	}
	zero(at.DType, false)
	zero(bt.DType, true)
	if rapid.Bool().Draw(t, "bias") {
		data := make([]byte, 0, 4*columns)
		for range columns {
			data = binary.LittleEndian.AppendUint32(data, uint32(r.Int32N(1<<20)-1<<19))
		}
		add(graph.TensorType{DType: graph.I32, Shape: []int64{int64(columns)}}, data)
	} else {
		add(graph.TensorType{}, nil)
	}
	if d.to == graph.I32 {
		return d
	}
	floats := func(size float32) {
		shape := list(true)
		var data []byte
		for range tensor.Elements(shape) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits((r.Float32()+0.1)*size))
		}
		add(graph.TensorType{DType: graph.F32, Shape: shape}, data)
	}
	floats(rapid.SampledFrom([]float32{1e-4, 1e-2, 1, 1e36}).Draw(t, "scale"))
	if rapid.Bool().Draw(t, "shift") {
		floats(20)
	} else {
		add(graph.TensorType{}, nil)
	}
	if d.to != graph.F32 {
		zero(d.to, false)
	}
	if rapid.Bool().Draw(t, "bounded") {
		d.bounded = true
		d.low, d.high = rapid.SampledFrom([]float64{0, -3.5, math.Inf(-1), 300}).Draw(t, "low"), rapid.SampledFrom([]float64{6, 100.25, math.Inf(1)}).Draw(t, "high")
		d.high = max(d.high, d.low)
	}
	return d
}

// at returns element i of operand k, or its one element, as a number.
func (d *integerDraw) at(k, i int) int64 {
	if k >= len(d.data) || d.data[k] == nil {
		return 0
	}
	size := d.types[k].DType.Size()
	i %= len(d.data[k]) / size
	switch d.types[k].DType {
	case graph.I8:
		return int64(int8(d.data[k][i]))
	case graph.U8:
		return int64(d.data[k][i])
	}
	return int64(int32(binary.LittleEndian.Uint32(d.data[k][4*i:])))
}

func (d *integerDraw) float(k, i int) float32 {
	if k >= len(d.data) || d.data[k] == nil {
		return 0
	}
	s := tensor.F32s(d.data[k])
	return s[i%len(s)]
}

// result appends what becomes of a sum of column j.
func (d *integerDraw) result(to []byte, sum int64, j int) []byte {
	acc := int32(sum + d.at(4, j))
	if d.to == graph.I32 {
		return binary.LittleEndian.AppendUint32(to, uint32(acc))
	}
	v := float32(float32(acc)*d.float(5, j)) + d.float(6, j)
	if d.bounded {
		v = max(v, float32(d.low))
		v = min(v, float32(d.high))
	}
	if d.to == graph.F32 {
		return binary.LittleEndian.AppendUint32(to, math.Float32bits(v))
	}
	low, high := QuantRange(d.to)
	q := math.RoundToEven(float64(v)) + float64(d.at(7, 0))
	return append(to, byte(int64(min(max(q, float64(low)), float64(high)))))
}

// check compares results by every path, with weights as they are and packed.
func (d *integerDraw) check(t *rapid.T, op graph.Op, want []byte) {
	out, got := run(t, op, d.types, d.data)
	require.True(t, bytes.Equal(want, got[0]), "%+v of %v", op, d.types)
	k, err := newKernel(op, d.types, out)
	require.NoError(t, err)
	p := k.(tensor.Packer)
	data := slices.Clone(d.data)
	data[1] = kerneltest.Aligned(p.Packed(1))
	p.Pack(1, data[1], d.data[1])
	p.UsePacked(1)
	for _, pool := range []tensor.Pool{tensor.Serial{}, kerneltest.Threads(3)} {
		y := kerneltest.Aligned(len(want))
		require.NoError(t, k.Run(pool, data, [][]byte{y}, kerneltest.Aligned(k.Scratch())))
		require.True(t, bytes.Equal(want, y), "packed: %+v of %v", op, d.types)
	}
}

func TestIntegerMatMul(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shape"), 0))
		m, k, n := 1+r.Int64N(55), r.Int64N(40), 1+r.Int64N(70)
		a, b := []int64{m, k}, []int64{k, n}
		switch r.IntN(5) {
		case 0:
			a = []int64{1, 2, m, k}
		case 1:
			m = 1 + m/4
			a, b = []int64{2, 1, m, k}, []int64{3, k, n}
		case 2:
			a, m = []int64{k}, 1
		case 3:
			b, n = []int64{k}, 1
		}
		d := drawInteger(t, a, b, int(n))
		op := &graph.IntegerMatMul{To: d.to, Bounded: d.bounded, Low: d.low, High: d.high}
		batch, err := graph.Broadcast(a[:max(0, len(a)-2)], b[:max(0, len(b)-2)])
		require.NoError(t, err)
		as, bs := gemm.MatrixOffsets(batch, a[:max(0, len(a)-2)], int(m*k)), gemm.MatrixOffsets(batch, b[:max(0, len(b)-2)], int(k*n))
		var want []byte
		for i := range as {
			for row := range int(m) {
				for j := range int(n) {
					sum := int64(0)
					for p := range int(k) {
						sum += (d.at(0, as[i]+row*int(k)+p) - d.at(2, 0)) * (d.at(1, bs[i]+p*int(n)+j) - d.at(3, j))
					}
					want = d.result(want, sum, j)
				}
			}
		}
		d.check(t, op, want)
	})
}

func TestIntegerConv(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		s := kerneltest.DrawSlide(t, rapid.IntRange(1, 2).Draw(t, "axes"))
		group := rapid.Int64Range(1, 3).Draw(t, "groups")
		channels, maps := rapid.Int64Range(1, 6).Draw(t, "channels"), rapid.SampledFrom([]int64{1, 2, 3, 14, 50}).Draw(t, "maps")
		batch := rapid.Int64Range(1, 2).Draw(t, "batch")
		x, w := append([]int64{batch, group * channels}, s.Size...), append([]int64{group * maps, channels}, s.Kernel...)
		d := drawInteger(t, x, w, int(group*maps))
		op := &graph.IntegerConv{Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End, Group: group,
			To: d.to, Bounded: d.bounded, Low: d.low, High: d.high}
		out, err := op.Infer(d.types)
		require.NoError(t, err)
		plane, taps := tensor.Elements(s.Size), tensor.Elements(s.Kernel)
		var want []byte
		for n := range int(batch) {
			for m := range int(group * maps) {
				kerneltest.Coords(out[0].Shape[2:], func(at []int64, _ int) {
					sum := int64(0)
					s.Window(at, func(tap, inside int, _ []int64) {
						for c := range int(channels) {
							v := int64(0)
							if inside >= 0 {
								channel := m/int(maps)*int(channels) + c
								v = d.at(0, (n*int(group*channels)+channel)*plane+inside) - d.at(2, 0)
							}
							sum += v * (d.at(1, (m*int(channels)+c)*taps+tap) - d.at(3, m))
						}
					})
					want = d.result(want, sum, m)
				})
			}
		}
		d.check(t, op, want)
	})
}

func TestIntegerAllocatesNothing(t *testing.T) {
	b8 := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.I8, Shape: shape} }
	scale := graph.TensorType{DType: graph.F32}
	ones, none := []int64{1, 1}, []int64{0, 0}
	conv := func(group int64) graph.Op {
		return &graph.IntegerConv{Strides: ones, Dilations: ones, PadsBegin: none, PadsEnd: none, Group: group, To: graph.I8}
	}
	for _, c := range []struct {
		op graph.Op
		in []graph.TensorType
	}{
		{&graph.IntegerMatMul{To: graph.F32}, []graph.TensorType{b8(60, 40), b8(40, 50), b8(), b8(50), {}, scale}},
		{&graph.IntegerMatMul{To: graph.I32}, []graph.TensorType{b8(5, 60, 32), b8(5, 32, 50)}},
		{conv(1), []graph.TensorType{b8(1, 12, 9, 9), b8(20, 12, 3, 3), b8(), b8(20), {}, scale}},
		{conv(12), []graph.TensorType{b8(1, 12, 9, 9), b8(12, 1, 3, 3), b8(), b8(), {}, scale}},
	} {
		kerneltest.EachPath(t, func(t *testing.T) {
			out, err := c.op.Infer(c.in)
			require.NoError(t, err)
			k, err := newKernel(c.op, c.in, out)
			require.NoError(t, err)
			data := make([][]byte, len(c.in))
			for i, typ := range c.in {
				if typ.DType != graph.Invalid {
					data[i] = kerneltest.Aligned(int(typ.Bytes()))
				}
			}
			y, scratch := [][]byte{kerneltest.Aligned(int(out[0].Bytes()))}, kerneltest.Aligned(k.Scratch())
			for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.InTurn(4)} {
				require.Zero(t, testing.AllocsPerRun(3, func() { require.NoError(t, k.Run(p, data, y, scratch)) }))
			}
		})
	}
}
