package nhwc

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/quant"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// needNHWC skips a test where there are no kernels for NHWC.
func needNHWC(t *testing.T) {
	t.Helper()
	if !Supported() {
		t.Skip("no kernels for NHWC on this path")
	}
}

func floatBytes(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// nhwcConvDraw is a convolution that both kinds of kernels compute.
type nhwcConvDraw struct {
	op    *graph.IntegerConv
	types []graph.TensorType
	data  [][]byte
}

func drawNHWCConv(r *rand.Rand) *nhwcConvDraw {
	pick := func(v ...int64) int64 { return v[r.IntN(len(v))] }
	group, channels, maps := int64(1), pick(1, 3, 4, 7, 16, 29, 64, 70), pick(1, 3, 8, 16, 24, 40, 64, 80, 100, 130)
	switch r.IntN(3) {
	case 0:
		group = pick(2, 3, 8, 16, 24, 33, 64, 144, 200)
		channels, maps = 1, 1
	case 1:
		if r.IntN(2) == 0 {
			group, channels, maps = pick(2, 3), pick(4, 8, 20), pick(5, 16, 40)
		}
	}
	axes := 1 + r.IntN(2)
	op := &graph.IntegerConv{Group: group, To: []graph.DType{graph.I8, graph.U8}[r.IntN(2)]}
	batch := pick(1, 1, 2)
	x, w := []int64{batch, group * channels}, []int64{group * maps, channels}
	for range axes {
		k := pick(1, 1, 3, 3, 5, 7)
		stride, dilation := pick(1, 1, 2, 3), pick(1, 1, 1, 2)
		span := (k-1)*dilation + 1
		begin, end := r.Int64N(span+1), r.Int64N(span+1)
		if r.IntN(3) == 0 {
			begin, end = 0, 0
		}
		size := max(1, span-begin-end) + r.Int64N(15)
		op.Strides, op.Dilations = append(op.Strides, stride), append(op.Dilations, dilation)
		op.PadsBegin, op.PadsEnd = append(op.PadsBegin, begin), append(op.PadsEnd, end)
		x, w = append(x, size), append(w, k)
	}
	d := &nhwcConvDraw{op: op}
	add := func(t graph.TensorType, data []byte) {
		d.types, d.data = append(d.types, t), append(d.data, data)
	}
	kinds := []graph.DType{graph.I8, graph.U8}
	xt, wt := kinds[r.IntN(2)], kinds[r.IntN(2)]
	add(graph.TensorType{DType: xt, Shape: x}, kerneltest.RandomBytes(r, tensor.Elements(x)))
	add(graph.TensorType{DType: wt, Shape: w}, kerneltest.RandomBytes(r, tensor.Elements(w)))
	if r.IntN(3) == 0 {
		add(graph.TensorType{}, nil)
	} else {
		add(graph.TensorType{DType: xt}, kerneltest.RandomBytes(r, 1))
	}
	if wt == graph.U8 {
		add(graph.TensorType{DType: wt}, []byte{128})
	} else {
		add(graph.TensorType{}, nil)
	}
	columns := int(group * maps)
	if r.IntN(2) == 0 {
		var bias []byte
		for range columns {
			bias = binary.LittleEndian.AppendUint32(bias, uint32(r.Int32N(1<<16)-1<<15))
		}
		add(graph.TensorType{DType: graph.I32, Shape: []int64{int64(columns)}}, bias)
	} else {
		add(graph.TensorType{}, nil)
	}
	floats := func(size float32, many bool) {
		n, shape := 1, []int64(nil)
		if many {
			n, shape = columns, []int64{int64(columns)}
		}
		var v []float32
		for range n {
			v = append(v, (r.Float32()+0.1)*size)
		}
		if r.IntN(8) == 0 {
			v[0] = float32([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e36}[r.IntN(4)])
		}
		add(graph.TensorType{DType: graph.F32, Shape: shape}, floatBytes(v...))
	}
	products := float32(channels * int64(tensor.Elements(w[2:])))
	floats(1/(100*float32(math.Sqrt(float64(products)))), r.IntN(2) == 0)
	if r.IntN(2) == 0 {
		floats(20, r.IntN(2) == 0)
	} else {
		add(graph.TensorType{}, nil)
	}
	if r.IntN(2) == 0 {
		add(graph.TensorType{DType: op.To}, kerneltest.RandomBytes(r, 1))
	} else {
		add(graph.TensorType{}, nil)
	}
	if r.IntN(2) == 0 {
		op.Bounded, op.Low, op.High = true, []float64{0, -3.5, math.Inf(-1)}[r.IntN(3)], []float64{6, 100.25, math.Inf(1)}[r.IntN(3)]
	}
	return d
}

// planesToNHWC converts by a kernel and back, and compares.
func planesToNHWC(t *testing.T, typ graph.TensorType, data []byte) (graph.TensorType, []byte) {
	t.Helper()
	out, pixels := run(t, &ToNHWC{}, []graph.TensorType{typ}, [][]byte{data})
	_, back := run(t, &FromNHWC{Channels: typ.Shape[1], Signed: typ.DType == graph.I8}, out, pixels)
	require.Equal(t, data, back[0])
	return out[0], pixels[0]
}

func TestNHWCConv(t *testing.T) {
	needNHWC(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range kerneltest.Draws(1500) {
		d := drawNHWCConv(r)
		want, planes := run(t, d.op, d.types, d.data)
		x := d.types[0]
		require.True(t, ConvFits(d.op, x.Shape[1], d.types[1].Shape))
		op := &Conv{IntegerConv: *d.op, Channels: x.Shape[1], Signed: x.DType == graph.I8}
		types, data := append([]graph.TensorType{}, d.types...), append([][]byte{}, d.data...)
		types[0], data[0] = planesToNHWC(t, x, d.data[0])
		out, got := run(t, op, types, data)
		back := func(pixels []byte) []byte {
			_, y := run(t, &FromNHWC{Channels: want[0].Shape[1], Signed: d.op.To == graph.I8}, out, [][]byte{pixels})
			return y[0]
		}
		require.Equal(t, planes[0], back(got[0]), "%+v of %v", d.op, d.types)

		k, err := newKernel(op, types, out)
		require.NoError(t, err)
		p := k.(tensor.Packer)
		weights := kerneltest.Aligned(p.Packed(1))
		p.Pack(1, weights, data[1])
		p.UsePacked(1)
		data[1] = weights
		for _, pool := range []tensor.Pool{tensor.Serial{}, kerneltest.Threads(3)} {
			y := kerneltest.Aligned(len(got[0]))
			require.NoError(t, k.Run(pool, data, [][]byte{y}, kerneltest.Aligned(k.Scratch())))
			require.Equal(t, planes[0], back(y), "packed: %+v of %v", d.op, d.types)
		}
	}
}

func TestNHWCMaxPool(t *testing.T) {
	needNHWC(t)
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		op := &graph.MaxPool{}
		x := []int64{1 + r.Int64N(2), 1 + r.Int64N(150)}
		for range 1 + r.IntN(2) {
			k, dilation := 1+r.Int64N(3), 1+r.Int64N(2)
			span := (k-1)*dilation + 1
			op.Kernel, op.Strides, op.Dilations = append(op.Kernel, k), append(op.Strides, 1+r.Int64N(2)), append(op.Dilations, dilation)
			op.PadsBegin, op.PadsEnd = append(op.PadsBegin, r.Int64N(k)), append(op.PadsEnd, r.Int64N(k))
			x = append(x, span+r.Int64N(9))
		}
		op.Ceil = r.IntN(2) == 0
		typ := graph.TensorType{DType: []graph.DType{graph.I8, graph.U8}[r.IntN(2)], Shape: x}
		data := kerneltest.RandomBytes(r, tensor.Elements(x))
		want, planes := run(t, op, []graph.TensorType{typ}, [][]byte{data})
		in, pixels := planesToNHWC(t, typ, data)
		out, got := run(t, &MaxPool{MaxPool: *op, Channels: x[1]}, []graph.TensorType{in}, [][]byte{pixels})
		_, back := run(t, &FromNHWC{Channels: x[1], Signed: typ.DType == graph.I8}, out, got)
		require.Equal(t, planes[0], back[0], "%+v of %v gives %v", op, typ, want)
	}
}

func TestNHWCBinary(t *testing.T) {
	needNHWC(t)
	r := rand.New(rand.NewPCG(5, 6))
	one := func(d graph.DType) graph.TensorType { return graph.TensorType{DType: d} }
	for range kerneltest.Draws(3000) {
		op := &Binary{Fn: []graph.BinaryFn{graph.Add, graph.Mul}[r.IntN(2)]}
		shape := []int64{1 + r.Int64N(2), 1 + r.Int64N(3), 1 + r.Int64N(5), 4 * (1 + r.Int64N(50))}
		other := shape
		if r.IntN(2) == 0 {
			other = onePixel(shape)
		}
		n := tensor.Elements(shape)
		typ, typ2 := graph.TensorType{DType: graph.U8, Shape: shape}, graph.TensorType{DType: graph.U8, Shape: other}
		types, data := []graph.TensorType{typ, typ2}, [][]byte{kerneltest.RandomBytes(r, n), kerneltest.RandomBytes(r, tensor.Elements(other))}
		var kinds [3]graph.DType
		var zeros, scales [3][]byte
		for i := range 3 {
			op.Signed[i] = r.IntN(2) == 0
			kinds[i] = byteType(op.Signed[i])
			scale := r.Float32() + 0.01
			if r.IntN(3) == 0 {
				scale = float32(math.Ldexp(1, r.IntN(5)-2)) // many results half way between two
			}
			scales[i], zeros[i] = floatBytes(scale), []byte{byte(r.Uint32())}
			types, data = append(types, one(graph.F32)), append(data, scales[i])
		}
		for i := range 3 {
			types, data = append(types, one(kinds[i])), append(data, zeros[i])
		}
		if r.IntN(2) == 0 {
			op.Bounded, op.Low, op.High = true, 0, []float64{6, 40.3, math.Inf(1)}[r.IntN(3)]
		}
		_, got := run(t, op, types, data)

		var sum []byte
		for i := range 2 {
			flipped := slices.Clone(data[i])
			if op.Signed[i] {
				for j, v := range data[i] {
					flipped[j] = v ^ quant.Int8Flip
				}
			}
			_, f := run(t, &graph.Dequantize{To: graph.F32}, []graph.TensorType{{DType: kinds[i], Shape: types[i].Shape}, one(graph.F32), one(kinds[i])},
				[][]byte{flipped, scales[i], zeros[i]})
			if i == 0 {
				sum = f[0]
				continue
			}
			sumType := graph.TensorType{DType: graph.F32, Shape: shape}
			_, both := run(t, &graph.Binary{Fn: op.Fn}, []graph.TensorType{sumType, {DType: graph.F32, Shape: other}}, [][]byte{sum, f[0]})
			sum = both[0]
			a := tensor.F32s(sum)
			for j := range a {
				if op.Bounded {
					a[j] = min(max(a[j], float32(op.Low)), float32(op.High))
				}
			}
		}
		_, want := run(t, &graph.Quantize{To: kinds[2], Precision: graph.F32},
			[]graph.TensorType{{DType: graph.F32, Shape: typ.Shape}, one(graph.F32), one(kinds[2])}, [][]byte{sum, scales[2], zeros[2]})
		if op.Signed[2] {
			for j := range want[0] {
				want[0][j] ^= quant.Int8Flip
			}
		}
		require.Equal(t, want[0], got[0], "%+v, %v", op, data[2:])
	}
}

func TestNHWCTables(t *testing.T) {
	needNHWC(t)
	if !HasLookup() {
		t.Skip("vectors do not look bytes up")
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		shape := []int64{1 + r.Int64N(2), 1 + r.Int64N(9)}
		var types, tables []graph.TensorType
		var data, maps [][]byte
		width := 0
		for range 1 + r.IntN(4) {
			w := 4 * (1 + r.Int64N(40))
			types, data = append(types, graph.TensorType{DType: graph.U8, Shape: append(slices.Clone(shape), w)}), append(data, kerneltest.RandomBytes(r, tensor.Elements(shape)*int(w)))
			width += int(w)
			if r.IntN(3) == 0 {
				tables, maps = append(tables, graph.TensorType{}), append(maps, nil)
			} else {
				tables, maps = append(tables, tableType), append(maps, kerneltest.RandomBytes(r, 256))
			}
		}
		want := make([]byte, 0, tensor.Elements(shape)*width)
		look := func(table []byte, b byte) byte {
			if table == nil {
				return b
			}
			return table[b]
		}
		for i := range tensor.Elements(shape) {
			for k, x := range data {
				w := int(types[k].Shape[2])
				for _, b := range x[i*w:][:w] {
					want = append(want, look(maps[k], b))
				}
			}
		}
		_, got := run(t, &Concat{}, append(slices.Clone(types), tables...), append(slices.Clone(data), maps...))
		require.Equal(t, want, got[0])
		if maps[0] != nil {
			_, got := run(t, &Lookup{}, []graph.TensorType{types[0], tables[0]}, [][]byte{data[0], maps[0]})
			for i, b := range data[0] {
				require.Equal(t, maps[0][b], got[0][i])
			}
		}
	}
}

func TestNHWCAllocateNothing(t *testing.T) {
	needNHWC(t)
	u8 := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.U8, Shape: shape} }
	scale := graph.TensorType{DType: graph.F32}
	ones := []int64{1, 1}
	conv := func(group int64) graph.Op {
		return &Conv{Channels: 12, IntegerConv: graph.IntegerConv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: group, To: graph.U8}}
	}
	i8 := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.I8, Shape: shape} }
	for _, c := range []struct {
		op graph.Op
		in []graph.TensorType
	}{
		{conv(1), []graph.TensorType{u8(1, 9, 9, 12), i8(20, 12, 3, 3), {}, {}, {}, scale}},
		{conv(12), []graph.TensorType{u8(1, 9, 9, 12), i8(12, 1, 3, 3), {}, {}, {}, scale}},
		{&ToNHWC{}, []graph.TensorType{u8(1, 12, 9, 9)}},
		{&FromNHWC{Channels: 12}, []graph.TensorType{u8(1, 9, 9, 12)}},
		{&Binary{Fn: graph.Add}, []graph.TensorType{u8(1, 9, 9, 12), u8(1, 9, 9, 12), scale, scale, scale}},
		{&Binary{Fn: graph.Mul}, []graph.TensorType{u8(1, 9, 9, 12), u8(1, 1, 1, 12), scale, scale, scale}},
		{&MaxPool{Channels: 12, MaxPool: graph.MaxPool{Kernel: ones, Strides: ones, Dilations: ones, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}}},
			[]graph.TensorType{u8(1, 9, 9, 12)}},
	} {
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
		require.Zero(t, testing.AllocsPerRun(10, func() { _ = k.Run(tensor.Serial{}, data, y, scratch) }), c.op.Kind())
	}
}
