package cpu

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// byteMap is an activation of bytes with what makes floats of it.
type byteMap struct{ x, scale, zero graph.TensorID }

// byteDraw draws a quantised network.
type byteDraw struct {
	netDraw
	rank int
	kind graph.DType
	maps []byteMap
}

func (d *byteDraw) pick(v ...int64) int64 { return rapid.SampledFrom(v).Draw(d.T, "number") }

func (d *byteDraw) axes(v ...int64) []int64 {
	a := make([]int64, d.rank-2)
	for i := range a {
		a[i] = d.pick(v...)
	}
	return a
}

func (d *byteDraw) shape(m byteMap) []int64 { return d.b.Type(m.x).Shape }

func (d *byteDraw) float(m byteMap) graph.TensorID {
	return d.node(&graph.Dequantize{To: graph.F32}, m.x, m.scale, m.zero)
}

// quantise makes bytes of floats, with the scale of another activation or its own.
func (d *byteDraw) quantise(y graph.TensorID, like *byteMap) byteMap {
	m := byteMap{scale: d.number(rapid.SampledFrom([]float32{0.03125, 0.07, 0.011}).Draw(d.T, "scale")), zero: d.bytesOfType(d.kind)}
	if like != nil {
		m.scale, m.zero = like.scale, like.zero
	}
	m.x = d.node(&graph.Quantize{To: d.kind, Precision: graph.F32}, y, m.scale, m.zero)
	return m
}

func (d *byteDraw) any() byteMap { return rapid.SampledFrom(d.maps).Draw(d.T, "activation") }

func (d *byteDraw) limited(y graph.TensorID) graph.TensorID {
	switch rapid.SampledFrom([]string{"", "relu", "clip"}).Draw(d.T, "bounds") {
	case "relu":
		return d.unary(graph.Relu, y)
	case "clip":
		return d.node(&graph.Clip{}, y, d.number(-0.5), d.number(2))
	}
	return y
}

var byteSteps = []string{"conv", "conv", "sum", "concat", "conv", "function", "most", "conv", "gate", "foreign"}

// step adds one activation of x and others, where they suit.
func (d *byteDraw) step(kind string, m byteMap) {
	shape := d.shape(m)
	ones := slices.Repeat([]int64{1}, d.rank-2)
	switch kind {
	case "conv":
		c := shape[1]
		op := &graph.Conv{Strides: d.axes(1, 1, 2), Dilations: ones, PadsBegin: d.axes(0, 1, 1), PadsEnd: d.axes(1, 1, 2), Group: 1}
		maps := d.pick(c, c, 1, 5, 16, 24, 40)
		k := d.axes(1, 3)
		for i := range k {
			if k[i] > shape[2+i] {
				k[i] = 1
			}
		}
		if d.yes("depthwise") {
			op.Group, maps = c, c
		}
		kind := rapid.SampledFrom([]graph.DType{graph.I8, graph.U8}).Draw(d.T, "weights")
		w := d.bytesOfType(kind, slices.Concat([]int64{maps, c / op.Group}, k)...)
		if kind == graph.U8 && !d.yes("zeros") {
			middle := d.b.AddConst("middle", graph.TensorType{DType: kind}, []byte{128})
			w = d.node(&graph.Dequantize{To: graph.F32}, w, d.number(0.002), middle)
		} else {
			w = d.converted(w, 0, 0.002)
		}
		in := []graph.TensorID{d.float(m), w}
		if d.yes("bias") {
			in = append(in, d.param(false, maps))
		}
		d.maps = append(d.maps, d.quantise(d.limited(d.node(op, in...)), nil))
	case "sum":
		o := d.any()
		if slices.Equal(d.shape(o), shape) {
			fn := rapid.SampledFrom([]graph.BinaryFn{graph.Add, graph.Mul}).Draw(d.T, "function")
			d.maps = append(d.maps, d.quantise(d.limited(d.binary(fn, d.float(m), d.float(o))), nil))
		}
	case "most":
		op := &graph.MaxPool{Kernel: slices.Repeat([]int64{2}, d.rank-2), Strides: d.axes(1, 2), Dilations: ones, PadsBegin: ones, PadsEnd: ones}
		if d.yes("of bytes") {
			d.maps = append(d.maps, byteMap{d.node(op, m.x), m.scale, m.zero})
		} else {
			y := d.node(op, d.float(m))
			if d.yes("twice") {
				d.maps = append(d.maps, d.quantise(y, &m))
				y = d.node(op, d.node(&graph.Reshape{Shape: d.b.Type(y).Shape}, y))
			}
			d.maps = append(d.maps, d.quantise(y, &m))
		}
	case "concat":
		o := d.any()
		if slices.Equal(d.shape(o)[2:], shape[2:]) {
			if d.yes("one scale") {
				o.scale, o.zero = m.scale, m.zero
			}
			like := &m
			if d.yes("another scale") {
				like = nil
			}
			d.maps = append(d.maps, d.quantise(d.node(&graph.Concat{Axis: 1}, d.float(m), d.float(o)), like))
		}
	case "function":
		y := d.unary(rapid.SampledFrom([]graph.UnaryFn{graph.Sigmoid, graph.Tanh, graph.Relu}).Draw(d.T, "function"), d.float(m))
		if d.yes("number") {
			y = d.binary(graph.Mul, y, d.number(1.5))
		}
		d.maps = append(d.maps, d.quantise(y, nil))
	case "gate":
		axes := []int64{2, 3}[:d.rank-2]
		g := d.quantise(d.node(&graph.Reduce{Fn: graph.ReduceMax, Axes: axes, KeepDims: true}, d.float(m)), nil)
		d.maps = append(d.maps, d.quantise(d.limited(d.binary(graph.Mul, d.float(m), d.float(g))), nil))
	default:
		d.maps = append(d.maps, d.quantise(d.node(&graph.Cumulate{Fn: graph.CumulateSum, Axis: 1}, d.float(m)), nil))
	}
}

// drawByteNet draws a quantised network whose result is some of its activations.
func drawByteNet(t *rapid.T) (*byteDraw, []byte) {
	d := &byteDraw{netDraw: netDraw{T: t, model: newModel("bytes")}, rank: rapid.IntRange(3, 4).Draw(t, "rank"),
		kind: rapid.SampledFrom([]graph.DType{graph.I8, graph.U8}).Draw(t, "type")}
	x := d.b.AddLocal("x", f32(slices.Concat([]int64{d.pick(1, 2), d.pick(1, 3, 4, 16, 20, 32)}, d.axes(1, 5, 9))...))
	g := d.b.BeginGraph("main")
	d.maps = []byteMap{d.quantise(x, nil)}
	if d.yes("one of each") {
		for _, kind := range byteSteps {
			d.step(kind, d.maps[len(d.maps)-1])
		}
	}
	for range rapid.IntRange(1, 8).Draw(t, "steps") {
		d.step(rapid.SampledFrom(byteSteps).Draw(t, "step"), d.any())
	}
	var flat []graph.TensorID
	for i, m := range d.maps {
		if i == len(d.maps)-1 || d.yes("a result") {
			flat = append(flat, d.node(&graph.Reshape{Shape: []int64{d.b.Type(m.x).Elements()}}, d.float(m)))
		}
	}
	d.finish(x, d.node(&graph.Concat{Axis: 0}, flat...), g)
	exe := executable(t, d.b)
	if d.yes("optimised") {
		exe = optimized(t, exe, nil)
	} else {
		exe = optimized(t, exe, slices.DeleteFunc(slices.Clone(passNames()), func(n string) bool { return n == "integer" }))
	}
	return d, exe
}

// TestNHWCChangesNothing compares quantised networks with activations of
// bytes in pixels and in planes.
func TestNHWCChangesNothing(t *testing.T) {
	if !nhwc.Supported() {
		t.Skip("there are no kernels for pixels here")
	}
	defer layout.Force(layout.Forced{NHWC: always})()
	seen := map[string]int{}
	property := func(t *rapid.T) {
		d, exe := drawByteNet(t)
		compute := func(options ...ipu.Option) []float32 {
			e, err := New(ipu.EngineConfig{Name: "layout", Executable: exe, Options: options})
			require.NoError(t, err)
			defer e.Close()
			load(t, e)
			_, y := d.start(t, e)
			run(t, e, 1)
			for _, p := range e.plan.Programs {
				for _, s := range p.Steps {
					seen[s.Op]++
				}
			}
			return y
		}
		want := compute(opt("layout", "off")...)
		got := compute(opt("layout", "on", "threads", rapid.SampledFrom([]string{"1", "2"}).Draw(t, "threads"))...)
		for i, v := range want {
			if math.Float32bits(v) != math.Float32bits(got[i]) {
				t.Fatalf("element %d is %v, want %v", i, got[i], v)
			}
		}
	}
	ops := []string{"ToNHWC", "FromNHWC", "NHWCConv", "NHWCMaxPool", "NHWCBinary", "NHWCLookup", "NHWCConcat"}
	if !nhwc.HasLookup() {
		ops = nil
	}
	missing := func(op string) bool { return seen[op] == 0 }
	for range 5 { // some are rare
		rapid.Check(t, property)
		if !slices.ContainsFunc(ops, missing) {
			return
		}
	}
	require.Empty(t, slices.DeleteFunc(ops, func(op string) bool { return !missing(op) }))
}

// always returns true.
func always() bool { return true }

// passNames lists all passes.
func passNames() (names []string) {
	for _, p := range pass.Passes {
		names = append(names, p.Name)
	}
	return names
}

// TestNHWCWherePaid wants convolutions of bytes on NHWC where estimates say
// that this saves time: not where vectors hold much more output channels than
// there are, unless what is read is pixels already and would have to be
// converted back.
func TestNHWCWherePaid(t *testing.T) {
	if !nhwc.Supported() {
		t.Skip("there are no kernels for pixels here")
	}
	for _, c := range []struct {
		name           string
		channels, size int64
		maps           []int64 // of convolutions one after the other
		k, group       int64
		want           string
	}{
		{"whole vectors", 16, 28, []int64{16}, 3, 1, "NHWCConv"},
		{"12 of 16, as in microkws_qdq", 16, 28, []int64{12}, 6, 1, "IntegerConv"},
		{"half a vector", 8, 14, []int64{8}, 3, 1, "IntegerConv"},
		{"colours", 3, 112, []int64{32}, 3, 1, "NHWCConv"},
		{"depthwise", 32, 28, []int64{32}, 3, 32, "NHWCConv"},
		{"one after the other", 16, 28, []int64{16, 32}, 3, 1, "NHWCConv NHWCConv"},
		{"15 of 16 of what is there", 32, 28, []int64{32, 15}, 3, 1, "NHWCConv NHWCConv"},
	} {
		b := graph.NewBuilder("convolutions")
		x := b.AddLocal("x", f32(1, c.channels, c.size, c.size))
		g := b.BeginGraph("main")
		s := b.AddConst("s", f32(), bytesOf([]float32{0.02}))
		y := node(t, b, &graph.Quantize{To: graph.U8, Precision: graph.F32}, "quantise", x, s)
		channels := c.channels
		for _, maps := range c.maps {
			shape := []int64{maps, channels / c.group, c.k, c.k}
			w := b.AddConst("w", graph.TensorType{DType: graph.I8, Shape: shape}, make([]byte, maps*channels/c.group*c.k*c.k))
			f := node(t, b, &graph.Dequantize{To: graph.F32}, "x", y, s)
			weights := node(t, b, &graph.Dequantize{To: graph.F32}, "w", w, s)
			pads := slices.Repeat([]int64{c.k / 2}, 2)
			f = node(t, b, &graph.Conv{Strides: []int64{1, 1}, Dilations: []int64{1, 1}, PadsBegin: pads, PadsEnd: pads, Group: c.group}, "conv", f, weights)
			y, channels = node(t, b, &graph.Quantize{To: graph.U8, Precision: graph.F32}, "y", f, s), maps
		}
		y = node(t, b, &graph.Dequantize{To: graph.F32}, "float", y, s)
		b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
		exe, err := encoding.Decode(optimized(t, executable(t, b), nil))
		require.NoError(t, err)
		plan, err := PlanOf(exe, 1)
		require.NoError(t, err)
		var convolutions []string
		for _, s := range plan.Programs[0].Steps {
			if strings.HasSuffix(s.Op, "Conv") {
				convolutions = append(convolutions, s.Op)
			}
		}
		require.Equal(t, c.want, strings.Join(convolutions, " "), c.name)
	}
}
