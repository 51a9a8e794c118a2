package cpu

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/graph"
)

// slowerPaths are the paths that the machine could take besides the current one.
func slowerPaths() []string {
	paths := []string{"avx512", "avx2", "go"}
	return paths[slices.Index(paths, kernel.Path())+1:]
}

// onSlowerPaths runs a test once more for each path that is slower than the
// one that this process takes, in a process of its own.
func onSlowerPaths(t *testing.T) {
	if os.Getenv("POPEFGEN_CPU") != "" {
		return
	}
	for _, p := range slowerPaths() {
		t.Run(p, func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()[:len(t.Name())-len(p)-1]+"$", "-test.count", "1", fmt.Sprint("-test.short=", testing.Short()))
			c.Env = append(os.Environ(), "POPEFGEN_CPU="+p)
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}

// mallocs returns how many times f allocates memory, of several attempts the
// least: what else goes on in the process allocates too.
func mallocs(f func()) uint64 {
	var before, after runtime.MemStats
	least := uint64(math.MaxUint64)
	for range 5 {
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = min(least, after.Mallocs-before.Mallocs); least == 0 {
			break
		}
	}
	return least
}

// requireSteady runs the last program of an executable after the others and
// wants nothing allocated from its second run on.
func requireSteady(t *testing.T, name string, exe []byte, threads int) {
	e, err := New(ipu.EngineConfig{Name: name, Executable: exe, Options: opt("threads", fmt.Sprint(threads))})
	require.NoError(t, err, name)
	defer e.Close()
	load(t, e)
	for _, s := range e.Streams() {
		require.NoError(t, e.Connect(s.Handle, sink{bytesOf(wave(s.Bytes/4+1, 1))[:s.Bytes]}))
	}
	programs := e.Programs()
	for _, p := range programs[:len(programs)-1] {
		run(t, e, p.Index)
	}
	main := programs[len(programs)-1].Index
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request := func() {
		if err := e.Run(ctx, main); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	request()
	if n := mallocs(func() { request(); request() }); n != 0 {
		var ops []string
		for _, s := range e.Plan().Programs[len(programs)-1].Steps {
			ops = append(ops, s.Op)
		}
		t.Errorf("%s, %d threads: two runs allocate %d times; operators %v", name, threads, n, ops)
	}
}

// drawOperator draws a model of one operator, of any type and shape that its
// kernels tell apart.
func drawOperator(t *rapid.T) []byte {
	b := graph.NewBuilder("operator")
	from := func(name string, of ...int64) int64 { return rapid.SampledFrom(of).Draw(t, name) }
	yes := func(name string) bool { return rapid.Bool().Draw(t, name) }
	dtype := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F32, graph.F16, graph.F64, graph.BF16}).Draw(t, "type")
	axes := int(from("axes", 1, 2, 2, 2, 3))
	shape := []int64{from("batch", 1, 2), from("channels", 1, 3, 16, 20, 32, 33)}
	for range axes {
		shape = append(shape, from("size", 1, 5, 8, 13, 32, 37))
	}
	x := b.AddLocal("x", f32(shape...))
	g := b.BeginGraph("main")
	add := func(op graph.Op, in ...graph.TensorID) graph.TensorID { return node(t, b, op, op.Kind(), in...) }
	cast := func(x graph.TensorID) graph.TensorID {
		if b.Type(x).DType == dtype {
			return x
		}
		return add(&graph.Cast{To: dtype}, x)
	}
	constant := func(shape ...int64) graph.TensorID {
		return cast(b.AddConst("c", f32(shape...), bytesOf(wave(int(f32(shape...).Elements()), 1))))
	}
	each := func(name string, of ...int64) []int64 {
		v := make([]int64, axes)
		for i := range v {
			v[i] = from(name, of...)
		}
		return v
	}
	// window returns extents of windows and paddings that fit the image.
	window := func() (kernel, strides, dilations, begin, end []int64) {
		kernel, strides, dilations = each("kernel", 1, 2, 3, 5), each("stride", 1, 1, 2, 3, 4, 5), each("dilation", 1, 1, 1, 2)
		begin, end = make([]int64, axes), make([]int64, axes)
		for i, k := range kernel {
			if yes("pad") {
				begin[i], end[i] = k/2, k/2
			}
			if reach := (k-1)*dilations[i] + 1; reach > shape[2+i]+begin[i]+end[i] {
				kernel[i], begin[i], end[i] = 1, 0, 0
			}
		}
		return
	}
	var all []int64
	for i := range shape {
		all = append(all, int64(i))
	}
	someAxes := func() []int64 {
		n := int(from("first axis", all...))
		return all[n : n+1+int(from("axes of it", 0, 0, 1, 2))%(len(all)-n)]
	}
	y := cast(x)
	switch rapid.SampledFrom([]string{"conv", "conv", "conv", "depthwise", "transposed", "most", "mean", "mean", "lp", "reduce", "reduce", "reduce", "gate", "softmax",
		"norm", "resize", "clip", "unary", "binary", "pow", "matmul", "arg", "top", "cumulate", "quantised", "compare", "pad", "move"}).Draw(t, "operator") {
	case "conv", "depthwise":
		k, s, d, begin, end := window()
		op := &graph.Conv{Strides: s, Dilations: d, PadsBegin: begin, PadsEnd: end, Group: 1}
		if maps := from("maps", 1, 3, 16, 33); yes("groups") {
			op.Group = shape[1]
			y = add(op, y, constant(slices.Concat([]int64{shape[1], 1}, k)...))
		} else {
			y = add(op, y, constant(slices.Concat([]int64{maps, shape[1]}, k)...), constant(maps))
		}
	case "transposed":
		k, s := each("kernel", 1, 2, 3), each("stride", 1, 2, 3)
		op := &graph.ConvTranspose{Strides: s, Dilations: each("dilation", 1), PadsBegin: make([]int64, axes), Group: 1}
		for i := range k {
			op.Output = append(op.Output, (shape[2+i]-1)*s[i]+k[i])
		}
		y = add(op, y, constant(slices.Concat([]int64{shape[1], 3}, k)...))
	case "most":
		k, s, d, begin, end := window()
		y = add(&graph.MaxPool{Kernel: k, Strides: s, Dilations: d, PadsBegin: begin, PadsEnd: end}, y)
	case "mean":
		k, s, d, begin, end := window()
		y = add(&graph.AveragePool{Kernel: k, Strides: s, Dilations: d, PadsBegin: begin, PadsEnd: end, CountIncludePad: yes("count")}, y)
	case "lp":
		k, s, d, begin, end := window()
		y = add(&graph.LpPool{Kernel: k, Strides: s, Dilations: d, PadsBegin: begin, PadsEnd: end, P: float64(from("p", 1, 2, 3))}, y)
	case "reduce":
		fns := []graph.ReduceFn{graph.ReduceSum, graph.ReduceMean, graph.ReduceMax, graph.ReduceMin, graph.ReduceProd, graph.ReduceL1, graph.ReduceL2, graph.ReduceSumSquare, graph.ReduceLogSum, graph.ReduceLogSumExp}
		y = add(&graph.Reduce{Fn: rapid.SampledFrom(fns).Draw(t, "function"), Axes: someAxes(), KeepDims: yes("keep")}, y)
	case "gate": // the mean of a convolution's planes, which may be in blocks
		ones := slices.Repeat([]int64{1}, axes)
		y = add(&graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1}, y, constant(slices.Concat([]int64{32, shape[1]}, slices.Repeat([]int64{3}, axes))...))
		mean := add(&graph.Reduce{Fn: graph.ReduceMean, Axes: all[2:], KeepDims: true}, y)
		y = add(&graph.Binary{Fn: graph.Mul}, y, mean)
		y = add(&graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1}, y, constant(slices.Concat([]int64{16, 32}, slices.Repeat([]int64{3}, axes))...))
	case "softmax":
		y = add(&graph.Softmax{Axis: from("axis", all...), Log: yes("log")}, y)
	case "norm":
		last := shape[len(shape)-1]
		y = add(&graph.LayerNorm{Axis: all[len(all)-1], Epsilon: 1e-5}, y, constant(last), constant(last))
	case "resize":
		sizes, scales := slices.Clone(shape), slices.Repeat([]float64{1}, len(shape))
		for i := range axes {
			scales[2+i] = rapid.SampledFrom([]float64{1, 2, 1.5, 0.5}).Draw(t, "scale")
			sizes[2+i] = max(1, int64(float64(shape[2+i])*scales[2+i]))
		}
		y = add(&graph.Resize{Mode: rapid.SampledFrom([]graph.ResizeMode{graph.ResizeNearest, graph.ResizeLinear, graph.ResizeCubic}).Draw(t, "mode"), Antialias: yes("antialias"),
			Coordinates: rapid.SampledFrom([]graph.Coordinates{graph.HalfPixel, graph.Asymmetric, graph.AlignCorners}).Draw(t, "coordinates"), CubicA: -0.75,
			Rounding: graph.RoundFloor, Sizes: sizes, Scales: scales}, y)
	case "clip":
		limits := []graph.TensorID{graph.None, graph.None}
		if yes("low") {
			limits[0] = constant()
		}
		if yes("high") {
			limits[1] = constant()
		}
		y = add(&graph.Clip{}, y, limits[0], limits[1])
	case "unary":
		fns := []graph.UnaryFn{graph.Relu, graph.Sigmoid, graph.Tanh, graph.Exp, graph.Sin, graph.Erf, graph.Gelu, graph.Elu, graph.HardSwish, graph.Sqrt, graph.Round, graph.Log}
		y = add(&graph.Unary{Fn: rapid.SampledFrom(fns).Draw(t, "function"), Alpha: 1, Beta: 1}, y)
	case "binary":
		fns := []graph.BinaryFn{graph.Add, graph.Sub, graph.Mul, graph.Div, graph.Max, graph.Min, graph.PRelu}
		other := constant(rapid.SampledFrom([][]int64{nil, {1}, shape[len(shape)-1:], shape}).Draw(t, "operand")...)
		if rapid.IntRange(0, 3).Draw(t, "huge") == 0 && dtype != graph.F16 {
			other = cast(b.AddConst("huge", f32(), bytesOf([]float32{1e30})))
		}
		y = add(&graph.Binary{Fn: rapid.SampledFrom(fns).Draw(t, "function")}, y, other)
	case "pow":
		y = add(&graph.Binary{Fn: graph.Pow}, y, cast(b.AddConst("e", f32(), bytesOf([]float32{rapid.SampledFrom([]float32{2, 3, 0.5, 1.7}).Draw(t, "exponent")}))))
	case "matmul":
		last := shape[len(shape)-1]
		y = add(&graph.MatMul{}, y, constant(last, from("columns", 1, 5, 16, 40)))
	case "arg":
		y = add(&graph.Cast{To: graph.F32}, add(&graph.ArgMax{Min: yes("min"), Axis: from("axis", all...)}, y))
	case "top":
		out, err := b.Node(&graph.TopK{K: 1, Axis: from("axis", all...), Least: yes("least")}, "top", y)
		require.NoError(t, err)
		y = out[0]
	case "cumulate":
		y = add(&graph.Cumulate{Fn: graph.CumulateSum, Axis: from("axis", all...), Reverse: yes("reverse"), Exclusive: yes("exclusive")}, y)
	case "quantised":
		scale := b.AddConst("s", f32(), bytesOf([]float32{0.01}))
		to := rapid.SampledFrom([]graph.DType{graph.I8, graph.U8}).Draw(t, "bytes")
		y = add(&graph.Dequantize{To: graph.F32}, add(&graph.Quantize{To: to, Precision: graph.F32}, x, scale), scale)
	case "compare":
		fn := rapid.SampledFrom([]graph.BinaryFn{graph.Less, graph.Equal, graph.GreaterEqual}).Draw(t, "function")
		y = add(&graph.Where{}, add(&graph.Binary{Fn: fn}, y, constant()), y, constant())
	case "pad":
		before, after := make([]int64, len(shape)), make([]int64, len(shape))
		before[len(shape)-1], after[2] = 1, 1
		mode := rapid.SampledFrom([]graph.PadMode{graph.PadConstant, graph.PadEdge}).Draw(t, "mode")
		y = add(&graph.Pad{Before: before, After: after, Mode: mode}, y)
	default:
		perm := rapid.Permutation(all).Draw(t, "order")
		y = add(&graph.Transpose{Perm: perm}, y)
	}
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	return executable(t, b)
}

// TestRandomModelsAllocateNothing counts what random networks and operators
// allocate in a run: a fourth of them on the slower paths, all with
// POPEFGEN_TESTS=all.
func TestRandomModelsAllocateNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("some hundred networks on every path take seconds")
	}
	onSlowerPaths(t)
	draws := []struct {
		name  string
		count int
		draw  func(t *rapid.T) []byte
	}{
		{"operator", 300, drawOperator},
		{"model", 50, func(t *rapid.T) []byte { return drawModel(t).exe }},
		{"network", 40, func(t *rapid.T) []byte { _, exe := drawNet(t); return exe }},
		{"images", 60, func(t *rapid.T) []byte { _, exe := drawImageNet(t); return exe }},
		{"tiling", 40, func(t *rapid.T) []byte { _, exe := drawTilingNet(t); return exe }},
		{"bytes", 40, func(t *rapid.T) []byte { _, exe := drawByteNet(t); return exe }},
	}
	every := 1
	if os.Getenv("POPEFGEN_CPU") != "" && os.Getenv("POPEFGEN_TESTS") != "all" {
		every = 4
	}
	for _, d := range draws {
		drawn := rapid.Custom(d.draw)
		different := map[string]bool{}
		for at := range d.count / every {
			i := at*every + at%every // odd and even ones
			exe := drawn.Example(i)
			different[string(exe)] = true
			optimised := exe
			if i%2 == 0 {
				optimised = optimized(t, exe, nil)
			}
			requireSteady(t, fmt.Sprintf("%s %d", d.name, i), optimised, 1+i%2)
		}
		require.Greater(t, 2*len(different), d.count/every, "draws of %s that differ", d.name)
	}
}
