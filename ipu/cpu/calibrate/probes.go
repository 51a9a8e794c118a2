package calibrate

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/num"
)

// maker makes probes and keeps the first error.
type maker struct {
	lanes int64
	all   []probe
	err   error
}

// allProbes makes the probes of this machine's kernels. Their sizes are those
// of layers in the middle of networks for pictures, of some tens of channels.
func allProbes() ([]probe, error) {
	m := &maker{lanes: nchwc.Lanes()}
	m.nodes()
	for _, s := range []shape{{32, 28}, {64, 14}, {16, 56}} {
		m.moves(s)
		m.singles(s)
		m.reductions(s)
	}
	for _, s := range []shape{{64, 28}, {32, 56}, {128, 14}, {48, 20}} {
		m.dense(s, s.channels, 3)
		m.dense(s, s.channels, 1)
		m.dense(s, 3*s.channels/2, 1)
	}
	for _, s := range []shape{{64, 28}, {32, 56}, {128, 14}} {
		m.half(s)
	}
	for _, s := range []shape{{32, 28}, {16, 56}, {24, 20}} {
		m.dense(s, m.lanes, 3)
		m.dense(s, m.lanes, 1)
	}
	m.dense(shape{256, 3}, 256, 3)
	m.dense(shape{128, 2}, 128, 3)
	m.column(256, 128, 1, 5)
	m.column(256, 64, 1, 3)
	for _, s := range []shape{{32, 56}, {64, 28}, {96, 14}} {
		for _, k := range []int64{3, 5} {
			m.depth(s, k, 1)
			m.depth(s, k, 2)
		}
	}
	if nhwc.Supported() {
		for _, s := range []shape{{64, 28}, {32, 56}, {128, 14}} {
			m.bytes(s, s.channels, 3, 1)
			m.bytes(s, s.channels, 5, 1)
			m.bytes(s, s.channels, 3, s.channels)
		}
	}
	if m.err != nil {
		closeAll(m.all)
	}
	return m.all, m.err
}

// shape is the channels, and the rows and columns, of a tensor of one image.
type shape struct{ channels, size int64 }

func (s shape) planes(d graph.DType) graph.TensorType {
	return graph.TensorType{DType: d, Shape: []int64{1, s.channels, s.size, s.size}}
}

func (s shape) blocks(lanes int64) graph.TensorType {
	return graph.TensorType{DType: graph.F32, Shape: []int64{1, (s.channels + lanes - 1) / lanes, s.size, s.size, lanes}}
}

func (s shape) elements() float64 { return float64(s.channels * s.size * s.size) }

// add adds a probe of an operator on operands of these types, of which those
// from the second on are weights.
func (m *maker) add(field string, units float64, op graph.Op, in ...graph.TensorType) {
	if m.err != nil {
		return
	}
	run, err := bind(op, in)
	if err != nil {
		m.err = fmt.Errorf("%s: %w", field, err)
		return
	}
	m.all = append(m.all, probe{field: field, units: units, run: run})
}

// bind makes a kernel of an operator and returns what runs it on some data.
func bind(op graph.Op, in []graph.TensorType) (func() error, error) {
	out, err := op.Infer(in)
	if err != nil {
		return nil, err
	}
	k, err := kernel.New(op, in, out)
	if err != nil {
		return nil, err
	}
	ins, outs := make([][]byte, len(in)), make([][]byte, len(out))
	for i, t := range in {
		if t.DType == graph.Invalid {
			continue
		}
		ins[i] = data(t)
		if p, ok := k.(tensor.Packer); ok && i > 0 {
			if n := p.Packed(i); n > 0 {
				packed := memory(n)
				p.Pack(i, packed, ins[i])
				p.UsePacked(i)
				ins[i] = packed
			}
		}
	}
	for i, t := range out {
		outs[i] = memory(int(t.Bytes()))
	}
	scratch := memory(k.Scratch())
	return func() error { return k.Run(tensor.Serial{}, ins, outs, scratch) }, nil
}

// memory returns n bytes, aligned as kernels want them.
func memory(n int) []byte {
	const alignment = 64
	b := make([]byte, n+alignment)
	at := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (alignment - 1)
	return b[at : at+n : at+n]
}

// data returns numbers of some size, none of which slows a processor down.
func data(t graph.TensorType) []byte {
	b := memory(int(t.Bytes()))
	if t.DType == graph.F32 {
		f := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
		for i := range f {
			f[i] = float32(i%127-63) / 64
		}
		return b
	}
	if t.DType == graph.F16 {
		h := unsafe.Slice((*num.Float16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
		for i := range h {
			h[i] = num.Float16From(float32(i%127-63) / 64)
		}
		return b
	}
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

// nodes measures what one more step of a plan takes: of an engine that runs
// many operators on few elements.
func (m *maker) nodes() {
	const count = 64
	b := graph.NewBuilder("nodes")
	x := b.AddLocal("x", graph.TensorType{DType: graph.F32, Shape: []int64{m.lanes}})
	g := b.BeginGraph("main")
	y := x
	for range count {
		out, err := b.Node(&graph.Unary{Fn: graph.Neg}, "node", y)
		if err != nil {
			m.err = err
			return
		}
		y = out[0]
	}
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	exe, err := b.Finish()
	if err != nil {
		m.err = err
		return
	}
	var encoded bytes.Buffer
	if m.err = encoding.Encode(&encoded, exe); m.err != nil {
		return
	}
	e, err := cpu.New(ipu.EngineConfig{Name: "nodes", Executable: encoded.Bytes(), Options: []ipu.Option{{Name: "threads", Value: "1"}}})
	if err != nil {
		m.err = err
		return
	}
	closeIt := func() { _ = e.Close() }
	if m.err = load(e); m.err != nil {
		closeIt()
		return
	}
	m.all = append(m.all, probe{field: "Node", units: count, run: func() error { return e.Run(context.Background(), 0) }, close: closeIt})
}

// load connects streams that move nothing and loads the engine.
func load(e *cpu.Engine) error {
	backend, err := ipu.Lookup(cpu.Name)
	if err != nil {
		return err
	}
	devices, err := backend.Devices(context.Background())
	if err != nil {
		return err
	}
	if _, err := devices[0].Attach(); err != nil {
		return err
	}
	for _, s := range e.Streams() {
		if err := e.Connect(s.Handle, nothing{}); err != nil {
			return err
		}
	}
	return e.Load(context.Background(), devices[0])
}

// nothing is a stream whose transfers move nothing.
type nothing struct{}

func (nothing) Fetch(context.Context, []byte) error { return nil }
func (nothing) Complete()                           {}
func (nothing) Prefetch([]byte) bool                { return false }
func (nothing) InvalidatePrefetched()               {}

// moves measures conversions to blocks and back.
func (m *maker) moves(s shape) {
	m.add("Convert", s.elements(), &nchwc.ToNCHWc{Lanes: m.lanes}, s.planes(graph.F32))
	m.add("Convert", s.elements(), &nchwc.FromNCHWc{Channels: s.channels, To: graph.F32}, s.blocks(m.lanes))
}

// singles measures operators on single elements, for each operand.
func (m *maker) singles(s shape) {
	x := s.planes(graph.F32)
	m.add("Element", s.elements(), &graph.Unary{Fn: graph.Relu}, x)
	m.add("Element", 2*s.elements(), &graph.Binary{Fn: graph.Add}, x, x)
	m.add("Element", 2*s.elements(), &graph.Concat{Axis: 1}, x, x)
}

// reductions measures means and resizing in both layouts.
func (m *maker) reductions(s shape) {
	x, blocks := s.planes(graph.F32), s.blocks(m.lanes)
	mean := &graph.Reduce{Fn: graph.ReduceMean, Axes: []int64{2, 3}, KeepDims: true}
	m.add("Mean", s.elements(), mean, x)
	m.add("MeanBlocks", s.elements(), mean, blocks)
	for _, mode := range []graph.ResizeMode{graph.ResizeNearest, graph.ResizeLinear} {
		op := graph.Resize{Mode: mode, Coordinates: graph.HalfPixel, Rounding: graph.RoundFloor,
			Sizes: []int64{1, s.channels, 2 * s.size, 2 * s.size}, Scales: []float64{1, 1, 2, 2}}
		m.add("Resize", s.elements(), &op, x)
		m.add("ResizeBlocks", s.elements(), &nchwc.Resize{Resize: op}, blocks)
	}
}

// windows returns the attributes of a convolution with windows of k×k that keeps
// the middle of each window on the image.
func windows(k, stride, group int64) graph.Conv {
	pads := slices.Repeat([]int64{k / 2}, 2)
	return graph.Conv{Strides: []int64{stride, stride}, Dilations: []int64{1, 1}, PadsBegin: pads, PadsEnd: pads, Group: group}
}

// dense measures a convolution over all channels in both layouts.
func (m *maker) dense(s shape, maps, k int64) {
	conv := windows(k, 1, 1)
	w, b := graph.TensorType{DType: graph.F32, Shape: []int64{maps, s.channels, k, k}}, graph.TensorType{DType: graph.F32, Shape: []int64{maps}}
	products := s.elements() * float64(maps*k*k)
	blocked := &nchwc.Conv{Conv: conv, Lanes: m.lanes, Channels: s.channels, In: true, Out: true}
	planar, blocks := "Product", "BlockProduct"
	if k == 1 {
		planar = "PointProduct"
	}
	if maps <= m.lanes {
		blocks = "NarrowProduct"
	}
	if s.size < layout.ShortRow {
		planar, blocks = "", "ShortProduct"
	}
	if planar != "" {
		m.add(planar, products, &conv, s.planes(graph.F32), w, b)
	}
	// Channels that fill up the last block are computed too.
	filled := float64((maps+m.lanes-1)/m.lanes*m.lanes) / float64(maps)
	m.add(blocks, products*filled, blocked, s.blocks(m.lanes), w, b)
}

// column measures a convolution in blocks along columns, of rows that are short.
func (m *maker) column(channels, height, width, k int64) {
	conv := graph.Conv{Strides: []int64{1, 1}, Dilations: []int64{1, 1}, PadsBegin: []int64{k / 2, 0}, PadsEnd: []int64{k / 2, 0}, Group: 1}
	w, b := graph.TensorType{DType: graph.F32, Shape: []int64{channels, channels, k, 1}}, graph.TensorType{DType: graph.F32, Shape: []int64{channels}}
	x := graph.TensorType{DType: graph.F32, Shape: []int64{1, channels / m.lanes, height, width, m.lanes}}
	m.add("ShortProduct", float64(channels*channels*height*width*k), &nchwc.Conv{Conv: conv, Lanes: m.lanes, Channels: channels, In: true, Out: true}, x, w, b)
}

// half measures how much longer a convolution takes in planes of half precision.
func (m *maker) half(s shape) {
	conv := windows(1, 1, 1)
	weights := []int64{s.channels, s.channels, 1, 1}
	in := func(d graph.DType) []graph.TensorType {
		return []graph.TensorType{s.planes(d), {DType: d, Shape: weights}, {DType: d, Shape: weights[:1]}}
	}
	m.add("", 1, &conv, in(graph.F32)...)
	m.add("Half", 2*s.elements(), &conv, in(graph.F16)...)
	if m.err == nil {
		m.all[len(m.all)-1].less = 1
	}
}

// depth measures a convolution of single channels in both layouts.
func (m *maker) depth(s shape, k, stride int64) {
	conv := windows(k, stride, s.channels)
	w, b := graph.TensorType{DType: graph.F32, Shape: []int64{s.channels, 1, k, k}}, graph.TensorType{DType: graph.F32, Shape: []int64{s.channels}}
	size := (s.size-1)/stride + 1
	products := float64(s.channels * size * size * k * k)
	row := float64((size+m.lanes-1)/m.lanes*m.lanes) / float64(size)
	planar, blocks := "Depth", "BlockDepth"
	if stride > 1 {
		planar, blocks = "DepthStrided", "BlockDepthStrided"
	}
	m.add(planar, products*row, &conv, s.planes(graph.F32), w, b)
	m.add(blocks, products, &nchwc.Conv{Conv: conv, Lanes: m.lanes, Channels: s.channels, In: true, Out: true}, s.blocks(m.lanes), w, b)
}

// bytes measures a convolution of bytes in planes and as pixels, and the
// conversions.
func (m *maker) bytes(s shape, maps, k, group int64) {
	c := windows(k, 1, group)
	op := graph.IntegerConv{Strides: c.Strides, Dilations: c.Dilations, PadsBegin: c.PadsBegin, PadsEnd: c.PadsEnd, Group: group, To: graph.U8}
	w := graph.TensorType{DType: graph.I8, Shape: []int64{maps, s.channels / group, k, k}}
	one, absent := graph.TensorType{DType: graph.F32}, graph.TensorType{}
	rest := []graph.TensorType{w, absent, absent, absent, one, absent, absent}
	products := s.elements() * float64(w.Elements()/s.channels)
	planes, pixels := "BytesProduct", "PixelsProduct"
	if group > 1 {
		planes, pixels = "BytesDepth", "PixelsDepth"
	}
	x := s.planes(graph.U8)
	m.add(planes, products, &op, append([]graph.TensorType{x}, rest...)...)
	m.add(pixels, products, &nhwc.Conv{IntegerConv: op, Channels: s.channels}, append([]graph.TensorType{nhwc.Type(x.Shape)}, rest...)...)
	if group > 1 {
		m.add("PixelsConvert", s.elements(), &nhwc.ToNHWC{}, x)
		m.add("PixelsConvert", s.elements(), &nhwc.FromNHWC{Channels: s.channels}, nhwc.Type(x.Shape))
	}
}
