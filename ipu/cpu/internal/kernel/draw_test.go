package kernel

import (
	"math"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// sizes draws numbers whose logarithms are spread evenly: most are small, some
// great.
type sizes struct{ *rapid.T }

func (s sizes) upTo(most int64) int64 {
	bits := rapid.IntRange(0, int(math.Log2(float64(most)))).Draw(s.T, "magnitude")
	return min(most, rapid.Int64Range(1<<bits, 2<<bits-1).Draw(s.T, "size"))
}

func (s sizes) yes() bool { return rapid.Bool().Draw(s.T, "yes") }

func (s sizes) float() graph.DType {
	return rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F32, graph.F64, graph.F16, graph.BF16}).Draw(s.T, "type")
}

func (s sizes) each(n int, most int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = s.upTo(most)
	}
	return out
}

// shape draws one to four sizes, of some 2^18 elements at most.
func (s sizes) shape() []int64 {
	rank := rapid.IntRange(1, 4).Draw(s.T, "rank")
	return s.each(rank, []int64{1 << 18, 600, 64, 22}[rank-1])
}

func floatsOf(shape ...int64) graph.TensorType {
	return graph.TensorType{DType: graph.F32, Shape: shape}
}
func typeOf(d graph.DType, shape ...int64) graph.TensorType {
	return graph.TensorType{DType: d, Shape: shape}
}

// blockLanes returns the lanes of NCHWc; plain Go has none and so no kernels for
// them.
func blockLanes() int64 { return max(8, nchwc.Lanes()) }

// windowed are the attributes of what slides over an image.
type windowed struct {
	x, kernel, strides, dilations, begin, end []int64
}

// Windows draws an image of one or two spatial axes with what slides over it,
// some of it much greater than the image.
func (s sizes) Windows(channels int64) windowed {
	n := rapid.IntRange(1, 2).Draw(s.T, "spatial axes")
	w := windowed{x: append([]int64{s.upTo(3), channels}, s.each(n, 300)...), kernel: s.each(n, 9), strides: s.each(n, 5), dilations: s.each(n, 3)}
	if rapid.IntRange(0, 3).Draw(s.T, "great") == 0 {
		w.kernel, w.strides, w.dilations = s.each(n, 500), s.each(n, 5000), s.each(n, 50)
	}
	for i := range n {
		reach := (w.kernel[i]-1)*w.dilations[i] + 1
		pad := max(0, reach-w.x[2+i])
		if s.yes() {
			pad += s.upTo(8) - 1
		}
		w.begin, w.end = append(w.begin, pad/2), append(w.end, pad-pad/2)
	}
	return w
}

// drawn makes an operator of each kind with operands of random types that it
// mostly fits.
var drawn = map[string]func(s sizes) (graph.Op, []graph.TensorType){
	"ArgMax": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.ArgMax{KeepDims: true}, []graph.TensorType{floatsOf(s.shape()...)}
	},
	"Assert": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Assert{Message: "what was assumed"}, []graph.TensorType{typeOf(graph.Bool)}
	},
	"AssertLabels": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.AssertLabels{Classes: s.upTo(99)}, []graph.TensorType{typeOf(graph.I64, s.shape()...)}
	},
	"Attention": func(s sizes) (graph.Op, []graph.TensorType) {
		n, h, rows, cols := s.upTo(40), s.upTo(40), s.upTo(32), s.upTo(64)
		in := []graph.TensorType{floatsOf(n, h, rows, 16), floatsOf(n, h, cols, 16), floatsOf(n, h, cols, 8)}
		if s.yes() {
			in = append(in, floatsOf(n, h, rows, cols))
		}
		return &graph.Attention{Heads: h, KVHeads: h, Scale: 1, Scores: graph.ScoresRaw}, in
	},
	"AttentionGradient": func(s sizes) (graph.Op, []graph.TensorType) {
		n, h, rows, cols := s.upTo(40), s.upTo(9), s.upTo(99), s.upTo(99)
		return &graph.AttentionGradient{Heads: h, KVHeads: h, Scale: 1, Scores: graph.ScoresRaw},
			[]graph.TensorType{floatsOf(n, rows, h*16), floatsOf(n, cols, h*16), floatsOf(n, cols, h*8), {}, {}, floatsOf(n, rows, h*8)}
	},
	"AveragePool": func(s sizes) (graph.Op, []graph.TensorType) {
		w := s.Windows(s.upTo(20))
		return &graph.AveragePool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, CountIncludePad: s.yes()},
			[]graph.TensorType{typeOf(s.float(), w.x...)}
	},
	"BatchNorm": func(s sizes) (graph.Op, []graph.TensorType) {
		c := s.upTo(5000)
		return &graph.BatchNorm{Epsilon: 1e-5}, []graph.TensorType{floatsOf(2, c, 4), floatsOf(c), floatsOf(c), floatsOf(c), floatsOf(c)}
	},
	"Binary": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		return &graph.Binary{Fn: graph.Add}, []graph.TensorType{floatsOf(x...), floatsOf(x[len(x)-1])}
	},
	"BitCast": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.BitCast{To: graph.I32}, []graph.TensorType{floatsOf(s.shape()...)}
	},
	"Bitwise": func(s sizes) (graph.Op, []graph.TensorType) {
		x := typeOf(graph.I32, s.shape()...)
		return &graph.Bitwise{Fn: graph.BitAnd}, []graph.TensorType{x, x}
	},
	"Field": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		return &graph.Field{Handle: "h2d_x", Offset: 8, To: graph.F32, Shape: x}, []graph.TensorType{typeOf(graph.U64, floatsOf(x...).Elements()+2)}
	},
	"NCHWcConv": func(s sizes) (graph.Op, []graph.TensorType) {
		w := s.Windows(s.upTo(64))
		for len(w.x) < 4 {
			w.x, w.kernel, w.strides, w.dilations = append(w.x, 1), append(w.kernel, 1), append(w.strides, 1), append(w.dilations, 1)
			w.begin, w.end = append(w.begin, 0), append(w.end, 0)
		}
		lanes := blockLanes()
		o := &nchwc.Conv{Lanes: lanes, In: true, Out: true, Channels: w.x[1]}
		o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd, o.Group = w.strides, w.dilations, w.begin, w.end, 1
		weights := floatsOf(append([]int64{s.upTo(64), w.x[1]}, w.kernel...)...)
		if s.yes() {
			o.Group = w.x[1]
			weights = floatsOf(append([]int64{w.x[1], 1}, w.kernel...)...)
		}
		return o, []graph.TensorType{floatsOf(w.x[0], (w.x[1]+lanes-1)/lanes, w.x[2], w.x[3], lanes), weights}
	},
	"NCHWcPool": func(s sizes) (graph.Op, []graph.TensorType) {
		w := s.Windows(s.upTo(4))
		var pool graph.Op = &graph.MaxPool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end}
		if s.yes() {
			pool = &graph.AveragePool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end}
		}
		return &nchwc.Pool{Pool: pool}, []graph.TensorType{floatsOf(append(w.x, blockLanes())...)}
	},
	"NCHWcResize": func(s sizes) (graph.Op, []graph.TensorType) {
		o, x := s.resize([]int64{s.upTo(2), s.upTo(4), s.upTo(200), s.upTo(200)}, 2)
		return &nchwc.Resize{Resize: *o}, []graph.TensorType{floatsOf(append(x, blockLanes())...)}
	},
	"Cast": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Cast{To: graph.F16}, []graph.TensorType{floatsOf(s.shape()...)}
	},
	"Clip": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Clip{}, []graph.TensorType{floatsOf(s.shape()...), floatsOf(), floatsOf()}
	},
	"Col2Im": func(s sizes) (graph.Op, []graph.TensorType) {
		k := s.each(2, 8)
		image := []int64{k[0] + s.upTo(50), k[1] + s.upTo(50)}
		return &graph.Col2Im{Image: image, Block: k, Strides: []int64{1, 1}, Dilations: []int64{1, 1}, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}},
			[]graph.TensorType{floatsOf(1, 2*k[0]*k[1], (image[0]-k[0]+1)*(image[1]-k[1]+1))}
	},
	"Concat": func(s sizes) (graph.Op, []graph.TensorType) {
		x := floatsOf(s.shape()...)
		in := []graph.TensorType{x}
		for range s.upTo(100) {
			in = append(in, x)
		}
		return &graph.Concat{}, in
	},
	"Conv": func(s sizes) (graph.Op, []graph.TensorType) {
		w, maps, group := s.Windows(s.upTo(100)), s.upTo(100), int64(1)
		weights := append([]int64{maps, w.x[1]}, w.kernel...)
		if s.yes() {
			group, weights[0], weights[1] = w.x[1], w.x[1], 1
		}
		d := s.float()
		return &graph.Conv{Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, Group: group},
			[]graph.TensorType{typeOf(d, w.x...), typeOf(d, weights...)}
	},
	"ConvTranspose": func(s sizes) (graph.Op, []graph.TensorType) {
		c, k, stride := s.upTo(20), s.each(2, 3000), s.each(2, 4)
		x := []int64{1, c, s.upTo(30), s.upTo(30)}
		o := &graph.ConvTranspose{Strides: stride, Dilations: []int64{1, 1}, Group: 1, PadsBegin: []int64{0, 0}}
		for i := range 2 {
			o.Output = append(o.Output, (x[2+i]-1)*stride[i]+k[i])
		}
		return o, []graph.TensorType{floatsOf(x...), floatsOf(c, s.upTo(8), k[0], k[1])}
	},
	"ConvWeightGradient": func(s sizes) (graph.Op, []graph.TensorType) {
		k, stride, out := s.each(2, 12), s.each(2, 4), s.each(2, 30)
		c, maps, n := s.upTo(20), s.upTo(80), s.upTo(100)
		o := &graph.ConvWeightGradient{Kernel: k, Strides: stride, Dilations: s.each(2, 3), PadsBegin: []int64{0, 1}, Group: 1}
		return o, []graph.TensorType{floatsOf(n, c, out[0]*stride[0]+k[0], out[1]*stride[1]+k[1]), floatsOf(n, maps, out[0], out[1])}
	},
	"Cumulate": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Cumulate{Fn: graph.CumulateSum}, []graph.TensorType{floatsOf(s.shape()...)}
	},
	"DFT": func(s sizes) (graph.Op, []graph.TensorType) {
		n := s.upTo(1 << 16)
		return &graph.DFT{Axis: 1, Length: n}, []graph.TensorType{floatsOf(2, n, 2)}
	},
	"DeformConv": func(s sizes) (graph.Op, []graph.TensorType) {
		w, maps := s.Windows(s.upTo(8)), s.upTo(8)
		for len(w.x) < 4 {
			w.x, w.kernel, w.strides, w.dilations = append(w.x, 1), append(w.kernel, 1), append(w.strides, 1), append(w.dilations, 1)
			w.begin, w.end = append(w.begin, 0), append(w.end, 0)
		}
		size := func(i int) int64 {
			return (w.x[2+i]+w.begin[i]+w.end[i]-(w.kernel[i]-1)*w.dilations[i]-1)/w.strides[i] + 1
		}
		return &graph.DeformConv{Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, Group: 1, OffsetGroup: 1},
			[]graph.TensorType{floatsOf(w.x...), floatsOf(maps, w.x[1], w.kernel[0], w.kernel[1]), floatsOf(w.x[0], 2*w.kernel[0]*w.kernel[1], size(0), size(1))}
	},
	"Dequantize": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		return &graph.Dequantize{Axis: 0, To: graph.F32}, []graph.TensorType{typeOf(graph.I8, x...), floatsOf(), typeOf(graph.I8)}
	},
	"Det": func(s sizes) (graph.Op, []graph.TensorType) {
		n := s.upTo(100)
		return &graph.Det{}, []graph.TensorType{floatsOf(3, n, n)}
	},
	"Expand": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		return &graph.Expand{Shape: x}, []graph.TensorType{floatsOf(x[len(x)-1])}
	},
	"FromNCHWc": func(s sizes) (graph.Op, []graph.TensorType) {
		l := blockLanes()
		return &nchwc.FromNCHWc{Channels: 3 * l, To: graph.F32}, []graph.TensorType{floatsOf(s.upTo(9), 3, s.upTo(99), s.upTo(99), l)}
	},
	"FromNHWC": func(s sizes) (graph.Op, []graph.TensorType) {
		x := []int64{s.upTo(3), s.upTo(60), s.upTo(99), s.upTo(99)}
		return &nhwc.FromNHWC{Channels: x[1]}, []graph.TensorType{nhwc.Type(x)}
	},
	"GRU": func(s sizes) (graph.Op, []graph.TensorType) {
		h, n := s.upTo(300), s.upTo(300)
		return &graph.GRU{Hidden: h, Direction: "forward", Activations: []string{"Sigmoid", "Tanh"}, ActAlpha: make([]float64, 2), ActBeta: make([]float64, 2)},
			[]graph.TensorType{floatsOf(s.upTo(500), s.upTo(5), n), floatsOf(1, 3*h, n), floatsOf(1, 3*h, h)}
	},
	"Gather": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Gather{}, []graph.TensorType{floatsOf(s.shape()...), typeOf(graph.I64, s.upTo(5000))}
	},
	"GatherElements": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		return &graph.GatherElements{}, []graph.TensorType{floatsOf(x...), typeOf(graph.I64, x...)}
	},
	"GatherND": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.GatherND{}, []graph.TensorType{floatsOf(s.shape()...), typeOf(graph.I64, s.upTo(5000), 1)}
	},
	"Gemm": func(s sizes) (graph.Op, []graph.TensorType) {
		m, k, n, d := s.upTo(700), s.upTo(700), s.upTo(700), s.float()
		return &graph.Gemm{Alpha: 1, Beta: 1}, []graph.TensorType{typeOf(d, m, k), typeOf(d, k, n), typeOf(d, n)}
	},
	"GridSample": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.GridSample{Mode: graph.ResizeLinear, Padding: graph.SampleZeros},
			[]graph.TensorType{floatsOf(2, s.upTo(9), s.upTo(99), s.upTo(99)), floatsOf(2, s.upTo(99), s.upTo(99), 2)}
	},
	"GroupNorm": func(s sizes) (graph.Op, []graph.TensorType) {
		c := s.upTo(3000)
		return &graph.GroupNorm{Groups: 1, Epsilon: 1}, []graph.TensorType{floatsOf(2, c, 9), floatsOf(c), floatsOf(c)}
	},
	"Gradient": func(s sizes) (graph.Op, []graph.TensorType) {
		x, n := floatsOf(s.upTo(300), s.upTo(3000)), graph.TensorType{}
		if n = floatsOf(x.Shape[1]); s.yes() {
			return graph.GradientOf(&graph.LayerNorm{Axis: 1, Epsilon: 1}), []graph.TensorType{x, x, n, n}
		}
		w := s.Windows(s.upTo(20))
		o := &graph.MaxPool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end}
		x = typeOf(s.float(), w.x...)
		out, err := o.Infer([]graph.TensorType{x})
		if err != nil {
			s.Skip(err)
		}
		return graph.GradientOf(o), []graph.TensorType{out[0], x}
	},
	"IntegerConv": func(s sizes) (graph.Op, []graph.TensorType) {
		w, maps, group := s.Windows(s.upTo(60)), s.upTo(60), int64(1)
		weights := append([]int64{maps, w.x[1]}, w.kernel...)
		if s.yes() {
			group, weights[0], weights[1] = w.x[1], w.x[1], 1
		}
		return &graph.IntegerConv{Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, Group: group, To: graph.I32},
			[]graph.TensorType{typeOf(graph.U8, w.x...), typeOf(graph.I8, weights...)}
	},
	"IntegerMatMul": func(s sizes) (graph.Op, []graph.TensorType) {
		b, k := s.each(2, 60), s.upTo(3000)
		return &graph.IntegerMatMul{To: graph.I32}, []graph.TensorType{typeOf(graph.U8, b[0], b[1], s.upTo(9), k), typeOf(graph.I8, b[0], b[1], k, s.upTo(9))}
	},
	"LRN": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.LRN{Size: 5, Alpha: 1, Beta: 1, Bias: 1}, []graph.TensorType{floatsOf(2, s.upTo(3000), 9)}
	},
	"LSTM": func(s sizes) (graph.Op, []graph.TensorType) {
		h, n := s.upTo(300), s.upTo(300)
		return &graph.LSTM{Hidden: h, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"}, ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3)},
			[]graph.TensorType{floatsOf(s.upTo(500), s.upTo(5), n), floatsOf(1, 4*h, n), floatsOf(1, 4*h, h)}
	},
	"LayerNorm": func(s sizes) (graph.Op, []graph.TensorType) {
		n := s.upTo(3000)
		return &graph.LayerNorm{Axis: 1, Epsilon: 1}, []graph.TensorType{floatsOf(9, n), floatsOf(n), floatsOf(n)}
	},
	"LinearAttention": func(s sizes) (graph.Op, []graph.TensorType) {
		n, h, rows := s.upTo(4), s.upTo(9), s.upTo(99)
		return &graph.LinearAttention{Heads: h, KVHeads: h, Scale: 1},
			[]graph.TensorType{floatsOf(n, rows, h*16), floatsOf(n, rows, h*16), floatsOf(n, rows, h*8), floatsOf(n, h, 16, 8)}
	},
	"LpPool": func(s sizes) (graph.Op, []graph.TensorType) {
		w := s.Windows(s.upTo(20))
		return &graph.LpPool{P: 2, Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end},
			[]graph.TensorType{typeOf(s.float(), w.x...)}
	},
	"MatMul": func(s sizes) (graph.Op, []graph.TensorType) {
		b, k, d := s.each(2, 200), s.upTo(30), s.float()
		return &graph.MatMul{}, []graph.TensorType{typeOf(d, b[0], b[1], s.upTo(9), k), typeOf(d, b[1], k, s.upTo(9))}
	},
	"MaxPool": func(s sizes) (graph.Op, []graph.TensorType) {
		w := s.Windows(s.upTo(20))
		return &graph.MaxPool{Kernel: w.kernel, Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end},
			[]graph.TensorType{typeOf(s.float(), w.x...)}
	},
	"MaxRoiPool": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.MaxRoiPool{Height: s.upTo(30), Width: s.upTo(30), SpatialScale: 1}, []graph.TensorType{floatsOf(1, s.upTo(9), s.upTo(99), s.upTo(99)), floatsOf(s.upTo(99), 5)}
	},
	"MaxUnpool": func(s sizes) (graph.Op, []graph.TensorType) {
		x := []int64{1, 2, s.upTo(99)}
		return &graph.MaxUnpool{Shape: []int64{1, 2, 4 * x[2]}}, []graph.TensorType{floatsOf(x...), typeOf(graph.I64, x...)}
	},
	"Mod": func(s sizes) (graph.Op, []graph.TensorType) {
		x := typeOf(graph.I32, s.shape()...)
		return &graph.Mod{}, []graph.TensorType{x, x}
	},
	"OneHot": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.OneHot{Axis: 1, Depth: s.upTo(5000)}, []graph.TensorType{typeOf(graph.I64, s.upTo(99)), floatsOf(2)}
	},
	"Pad": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		o := &graph.Pad{Mode: rapid.SampledFrom([]graph.PadMode{graph.PadConstant, graph.PadEdge, graph.PadReflect, graph.PadWrap}).Draw(s.T, "mode")}
		most := []int64{1 << 18, 500, 50, 20}[len(x)-1]
		o.Before, o.After = s.each(len(x), most), s.each(len(x), most)
		if o.Mode == graph.PadReflect {
			for i := range x {
				x[i] = max(x[i], 2)
			}
		}
		return o, []graph.TensorType{floatsOf(x...)}
	},
	"NHWCBinary": func(s sizes) (graph.Op, []graph.TensorType) {
		x, one := nhwc.Type([]int64{1, s.upTo(60), s.upTo(99), s.upTo(99)}), floatsOf()
		return &nhwc.Binary{Fn: graph.Add}, []graph.TensorType{x, x, one, one, one}
	},
	"NHWCConcat": func(s sizes) (graph.Op, []graph.TensorType) {
		x := nhwc.Type([]int64{1, 4, s.upTo(99), s.upTo(99)})
		return &nhwc.Concat{}, []graph.TensorType{x, x, typeOf(graph.U8, 256), typeOf(graph.U8, 256)}
	},
	"NHWCConv": func(s sizes) (graph.Op, []graph.TensorType) {
		w, maps := s.Windows(s.upTo(60)), s.upTo(60)
		for len(w.x) < 4 {
			w.x, w.kernel, w.strides, w.dilations = append(w.x, 1), append(w.kernel, 1), append(w.strides, 1), append(w.dilations, 1)
			w.begin, w.end = append(w.begin, 0), append(w.end, 0)
		}
		o := &nhwc.Conv{Channels: w.x[1]}
		o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd, o.Group, o.To = w.strides, w.dilations, w.begin, w.end, 1, graph.U8
		weights := []int64{maps, w.x[1], w.kernel[0], w.kernel[1]}
		if s.yes() {
			o.Group, weights[0], weights[1] = w.x[1], w.x[1], 1
		}
		return o, []graph.TensorType{nhwc.Type(w.x), typeOf(graph.I8, weights...), {}, {}, {}, floatsOf()}
	},
	"NHWCLookup": func(s sizes) (graph.Op, []graph.TensorType) {
		return &nhwc.Lookup{}, []graph.TensorType{nhwc.Type([]int64{1, 4, s.upTo(99), s.upTo(99)}), typeOf(graph.U8, 256)}
	},
	"NHWCMaxPool": func(s sizes) (graph.Op, []graph.TensorType) {
		w := s.Windows(s.upTo(20))
		o := &nhwc.MaxPool{Channels: w.x[1]}
		o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd = w.kernel, w.strides, w.dilations, w.begin, w.end
		return o, []graph.TensorType{nhwc.Type(w.x)}
	},
	"Pointwise": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Pointwise{Fns: []string{"neg", "exp"}, Args: []int64{0, 1}, Alpha: make([]float64, 2), Beta: make([]float64, 2)},
			[]graph.TensorType{floatsOf(s.shape()...)}
	},
	"Quantize": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Quantize{To: graph.U8, Precision: graph.F32}, []graph.TensorType{floatsOf(s.shape()...), floatsOf(), typeOf(graph.U8)}
	},
	"RMSNorm": func(s sizes) (graph.Op, []graph.TensorType) {
		n := s.upTo(3000)
		return &graph.RMSNorm{Axis: 1, Epsilon: 1}, []graph.TensorType{floatsOf(9, n), floatsOf(n)}
	},
	"RNN": func(s sizes) (graph.Op, []graph.TensorType) {
		h, n := s.upTo(300), s.upTo(300)
		return &graph.RNN{Hidden: h, Direction: "forward", Activations: []string{"Tanh"}, ActAlpha: make([]float64, 1), ActBeta: make([]float64, 1)},
			[]graph.TensorType{floatsOf(s.upTo(500), s.upTo(5), n), floatsOf(1, h, n), floatsOf(1, h, h)}
	},
	"Random": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Random{Fn: graph.RandomNormal, B: 1, To: s.float(), Shape: s.shape()}, []graph.TensorType{typeOf(graph.U32, 2), typeOf(graph.I64)}
	},
	"RecurrentGradient": func(s sizes) (graph.Op, []graph.TensorType) {
		h, n, steps, batch := s.upTo(300), s.upTo(300), s.upTo(500), s.upTo(5)
		return &graph.RecurrentGradient{Cell: "linear gru", Hidden: h, Direction: "forward"},
			[]graph.TensorType{floatsOf(steps, batch, n), floatsOf(1, 3*h, n), floatsOf(1, 3*h, h), {}, {}, {}, {}, floatsOf(steps, 1, batch, h), floatsOf(steps, 1, batch, h)}
	},
	"Reduce": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		return &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{int64(len(x) - 1)}, KeepDims: true}, []graph.TensorType{typeOf(s.float(), x...)}
	},
	"Reshape": func(s sizes) (graph.Op, []graph.TensorType) {
		x := floatsOf(s.shape()...)
		return &graph.Reshape{Shape: []int64{x.Elements()}}, []graph.TensorType{x}
	},
	"Resize": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		o, x := s.resize(x, 0)
		return o, []graph.TensorType{floatsOf(x...)}
	},
	"RoiAlign": func(s sizes) (graph.Op, []graph.TensorType) {
		n := s.upTo(99)
		return &graph.RoiAlign{Mode: graph.RoiAverage, Height: s.upTo(30), Width: s.upTo(30), SpatialScale: 1},
			[]graph.TensorType{floatsOf(1, s.upTo(9), s.upTo(99), s.upTo(99)), floatsOf(n, 4), typeOf(graph.I64, n)}
	},
	"RoiAlignGradient": func(s sizes) (graph.Op, []graph.TensorType) {
		n, c, h, w := s.upTo(99), s.upTo(9), s.upTo(30), s.upTo(30)
		return &graph.RoiAlignGradient{Mode: graph.RoiMax, Height: h, Width: w, SpatialScale: 1},
			[]graph.TensorType{floatsOf(1, c, s.upTo(99), s.upTo(99)), floatsOf(n, 4), typeOf(graph.I64, n), floatsOf(n, c, h, w)}
	},
	"RoundedPointwise": func(s sizes) (graph.Op, []graph.TensorType) {
		o := &vec.RoundedPointwise{To: graph.F16}
		o.Fns, o.Args, o.Alpha, o.Beta = []string{"neg", "exp"}, []int64{0, 1}, make([]float64, 2), make([]float64, 2)
		return o, []graph.TensorType{floatsOf(s.shape()...)}
	},
	"ScatterElements": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		return &graph.ScatterElements{Fn: graph.ScatterAdd}, []graph.TensorType{floatsOf(x...), typeOf(graph.I64, x...), floatsOf(x...)}
	},
	"ScatterND": func(s sizes) (graph.Op, []graph.TensorType) {
		n := s.upTo(5000)
		return &graph.ScatterND{Fn: graph.ScatterAdd}, []graph.TensorType{floatsOf(s.upTo(5000)), typeOf(graph.I64, n, 1), floatsOf(n)}
	},
	"Slice": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		o := &graph.Slice{Start: make([]int64, len(x)), Size: x, Step: make([]int64, len(x))}
		for i := range x {
			o.Step[i] = 1
		}
		return o, []graph.TensorType{floatsOf(x...)}
	},
	"Softmax": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Softmax{}, []graph.TensorType{typeOf(s.float(), s.shape()...)}
	},
	"TfIdf": func(s sizes) (graph.Op, []graph.TensorType) {
		n := s.upTo(3000)
		o := &graph.TfIdf{MinGram: 1, MaxGram: 1, Counts: []int64{0}}
		for i := range n {
			o.Pool, o.Columns, o.Weights = append(o.Pool, i), append(o.Columns, i), append(o.Weights, 1)
		}
		return o, []graph.TensorType{typeOf(graph.I64, s.upTo(500))}
	},
	"ToNCHWc": func(s sizes) (graph.Op, []graph.TensorType) {
		return &nchwc.ToNCHWc{Lanes: blockLanes()}, []graph.TensorType{floatsOf(s.upTo(3), s.upTo(60), s.upTo(99), s.upTo(99))}
	},
	"ToNHWC": func(s sizes) (graph.Op, []graph.TensorType) {
		return &nhwc.ToNHWC{}, []graph.TensorType{typeOf(graph.U8, s.upTo(3), s.upTo(60), s.upTo(99), s.upTo(99))}
	},
	"TopK": func(s sizes) (graph.Op, []graph.TensorType) {
		n := s.upTo(3000)
		return &graph.TopK{Axis: 1, K: s.upTo(n)}, []graph.TensorType{floatsOf(9, n)}
	},
	"NonMaxSuppression": func(s sizes) (graph.Op, []graph.TensorType) {
		batch, n := s.upTo(3), s.upTo(3000)
		return &graph.NonMaxSuppression{Most: s.upTo(n), Bound: s.upTo(3000)}, []graph.TensorType{floatsOf(batch, n, 4), floatsOf(batch, s.upTo(30), n)}
	},
	"NonZero": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.NonZero{Bound: s.upTo(3000)}, []graph.TensorType{typeOf(graph.Bool, s.shape()...)}
	},
	"Unique": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Unique{Sorted: s.yes()}, []graph.TensorType{floatsOf(s.shape()...)}
	},
	"Transpose": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Transpose{Perm: []int64{2, 0, 1}}, []graph.TensorType{floatsOf(s.each(3, 99)...)}
	},
	"Unary": func(s sizes) (graph.Op, []graph.TensorType) {
		return &graph.Unary{Fn: graph.Exp}, []graph.TensorType{typeOf(s.float(), s.shape()...)}
	},
	"ViewedAttention": func(s sizes) (graph.Op, []graph.TensorType) {
		h, rows, cols := s.each(2, 60), 4+s.upTo(40), s.upTo(40)
		at := func(rows, size int64) []int64 { return []int64{0, h[1] * rows * size, rows * size, size, 1} }
		o := &graph.ViewedAttention{Heads: h, Rows: rows, Cols: cols, Size: 16, Width: 8, Scale: 1,
			Q: at(rows, 16), K: at(cols, 16), V: at(cols, 8), Y: at(rows, 8), Shape: []int64{h[0], h[1], rows, 8}}
		return o, []graph.TensorType{floatsOf(h[0], h[1], rows, 16), floatsOf(h[0], h[1], cols, 16), floatsOf(h[0], h[1], cols, 8)}
	},
	"Update": func(s sizes) (graph.Op, []graph.TensorType) {
		x := floatsOf(s.shape()...)
		return &graph.Update{Rule: graph.UpdateLamb, NoBias: true, Values: make([]float64, 7)}, []graph.TensorType{x, x, {}, {}, {}, x, x}
	},
	"Where": func(s sizes) (graph.Op, []graph.TensorType) {
		x := s.shape()
		return &graph.Where{}, []graph.TensorType{typeOf(graph.Bool, x...), floatsOf(x...), floatsOf(x...)}
	},
}

// resize draws a Resize of the axes from first on.
func (s sizes) resize(x []int64, first int) (*graph.Resize, []int64) {
	o := &graph.Resize{Mode: rapid.SampledFrom([]graph.ResizeMode{graph.ResizeNearest, graph.ResizeLinear, graph.ResizeCubic}).Draw(s.T, "mode"),
		Coordinates: graph.HalfPixel, Rounding: graph.RoundPreferFloor, CubicA: -0.75, Antialias: s.yes()}
	if o.Mode == graph.ResizeNearest {
		o.Antialias = false
	}
	most := []int64{1 << 18, 800, 90, 60}[len(x)-1]
	for i, n := range x {
		size := n
		if i >= first {
			size = s.upTo(most)
		}
		o.Sizes, o.Scales = append(o.Sizes, size), append(o.Scales, float64(size)/float64(n))
	}
	return o, x
}
