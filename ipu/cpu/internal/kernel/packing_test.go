package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// of draws one of a few numbers: packings of draws from so few meet often.
func (s sizes) of(n ...int64) int64 { return rapid.SampledFrom(n).Draw(s.T, "of") }

// smallWindows draws an image of few sizes with what slides over it.
func (s sizes) smallWindows(channels int64) windowed {
	k, stride := []int64{s.of(1, 3, 5), s.of(1, 3, 4)}, []int64{s.of(1, 2), s.of(1, 2)}
	pad := []int64{s.of(0, k[0]/2), s.of(0, k[1]/2)}
	return windowed{x: []int64{s.of(1, 3), channels, s.of(6, 9, 40), s.of(6, 13, 60)}, kernel: k, strides: stride,
		dilations: []int64{s.of(1, 1, 2), 1}, begin: pad, end: pad}
}

// smallConv draws a convolution; weights are of so many elements, often whatever their
// shape.
func (s sizes) smallConv() (windowed, graph.Conv, []int64) {
	c, group := s.of(1, 2, 8, 16, 36), int64(1)
	maps := s.of(2, 16, 36, 48)
	w := s.smallWindows(c)
	weights := []int64{maps, c, w.kernel[0], w.kernel[1]}
	switch s.of(0, 1, 2) {
	case 0:
		group, weights[0], weights[1] = c, c, 1
	case 1:
		if c%2 == 0 {
			group, weights[1] = 2, c/2
		}
	}
	return w, graph.Conv{Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, Group: group}, weights
}

func (s sizes) smallFloat() graph.DType {
	return rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F32, graph.F16, graph.BF16, graph.F64}).Draw(s.T, "type")
}

func (s sizes) byteType() graph.DType {
	return rapid.SampledFrom([]graph.DType{graph.I8, graph.U8}).Draw(s.T, "type")
}

// smallRecurrent draws the operands of a recurrent operator.
func (s sizes) smallRecurrent(gates int64) (hidden int64, in []graph.TensorType) {
	d, h, n := s.smallFloat(), s.of(16, 24, 40), s.of(16, 24, 40)
	return h, []graph.TensorType{typeOf(d, s.of(1, 7), s.of(1, 3), n), typeOf(d, 1, gates*h, n), typeOf(d, 1, gates*h, h)}
}

// packers draws, for each operator that has kernels which pack operands, one with
// few sizes.
var packers = map[string]func(s sizes) (graph.Op, []graph.TensorType){
	"Conv": func(s sizes) (graph.Op, []graph.TensorType) {
		w, o, weights := s.smallConv()
		d := s.smallFloat()
		return &o, []graph.TensorType{typeOf(d, w.x...), typeOf(d, weights...)}
	},
	"NCHWcConv": func(s sizes) (graph.Op, []graph.TensorType) {
		w, conv, weights := s.smallConv()
		l, d := blockLanes(), rapid.SampledFrom([]graph.DType{graph.F32, graph.F16}).Draw(s.T, "type")
		o := &nchwc.Conv{Conv: conv, Lanes: l, In: true, Out: true, Channels: w.x[1], Half: d == graph.F16}
		return o, []graph.TensorType{floatsOf(w.x[0], (w.x[1]+l-1)/l, w.x[2], w.x[3], l), typeOf(d, weights...)}
	},
	"NHWCConv": func(s sizes) (graph.Op, []graph.TensorType) {
		w, conv, weights := s.smallConv()
		if conv.Group > 1 && weights[1] == 1 {
			weights[0] = conv.Group // all that the layout takes
		}
		o := &nhwc.Conv{Channels: w.x[1]}
		o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd, o.Group, o.To = conv.Strides, conv.Dilations, conv.PadsBegin, conv.PadsEnd, conv.Group, graph.U8
		return o, []graph.TensorType{nhwc.Type(w.x), typeOf(s.byteType(), weights...), {}, {}, {}, floatsOf()}
	},
	"IntegerConv": func(s sizes) (graph.Op, []graph.TensorType) {
		w, o, weights := s.smallConv()
		return &graph.IntegerConv{Strides: o.Strides, Dilations: o.Dilations, PadsBegin: o.PadsBegin, PadsEnd: o.PadsEnd, Group: o.Group, To: graph.I32},
			[]graph.TensorType{typeOf(s.byteType(), w.x...), typeOf(s.byteType(), weights...)}
	},
	"ConvTranspose": func(s sizes) (graph.Op, []graph.TensorType) {
		c, maps, k, stride, d := s.of(2, 4, 8), s.of(2, 4, 8), []int64{s.of(1, 2, 4), s.of(1, 2, 4)}, s.of(1, 2), s.smallFloat()
		x := []int64{s.of(1, 2), c, s.of(3, 9), s.of(3, 9)}
		o := &graph.ConvTranspose{Strides: []int64{stride, stride}, Dilations: []int64{1, 1}, Group: s.of(1, 2), PadsBegin: []int64{0, 0}}
		for i := range 2 {
			o.Output = append(o.Output, (x[2+i]-1)*stride+k[i])
		}
		return o, []graph.TensorType{typeOf(d, x...), typeOf(d, c, maps, k[0], k[1])}
	},
	"Gemm": func(s sizes) (graph.Op, []graph.TensorType) {
		m, k, n, d := s.of(1, 3, 5, 40), s.of(1, 16, 24, 48), s.of(1, 16, 24, 48), s.smallFloat()
		if s.of(0, 0, 0, 0, 0, 0, 1) == 1 {
			k, n = s.of(512, 640), s.of(512, 640) // beyond a second-level cache
		}
		o := &graph.Gemm{Alpha: 1, Beta: 1, TransA: s.yes(), TransB: s.yes()}
		a, b := typeOf(d, m, k), typeOf(d, k, n)
		if o.TransA {
			a = typeOf(d, k, m)
		}
		if o.TransB {
			b = typeOf(d, n, k)
		}
		return o, []graph.TensorType{a, b}
	},
	"MatMul": func(s sizes) (graph.Op, []graph.TensorType) {
		b, m, k, n, d := s.of(1, 2), s.of(1, 4, 9), s.of(1, 16, 24, 48), s.of(1, 16, 24, 48), s.smallFloat()
		w := typeOf(d, k, n)
		if s.yes() {
			w = typeOf(d, b, k, n)
		}
		return &graph.MatMul{}, []graph.TensorType{typeOf(d, b, m, k), w}
	},
	"IntegerMatMul": func(s sizes) (graph.Op, []graph.TensorType) {
		b, k := s.of(1, 2), s.of(3, 16, 24, 48)
		return &graph.IntegerMatMul{To: graph.I32}, []graph.TensorType{typeOf(s.byteType(), b, s.of(1, 9), k), typeOf(s.byteType(), s.of(1, b), k, s.of(3, 16, 24, 48))}
	},
	"LSTM": func(s sizes) (graph.Op, []graph.TensorType) {
		h, in := s.smallRecurrent(4)
		return &graph.LSTM{Hidden: h, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"}, ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3)}, in
	},
	"GRU": func(s sizes) (graph.Op, []graph.TensorType) {
		h, in := s.smallRecurrent(3)
		return &graph.GRU{Hidden: h, Direction: "forward", Activations: []string{"Sigmoid", "Tanh"}, ActAlpha: make([]float64, 2), ActBeta: make([]float64, 2), LinearBeforeReset: s.yes()}, in
	},
	"RNN": func(s sizes) (graph.Op, []graph.TensorType) {
		h, in := s.smallRecurrent(1)
		return &graph.RNN{Hidden: h, Direction: "forward", Activations: []string{"Tanh"}, ActAlpha: make([]float64, 1), ActBeta: make([]float64, 1)}, in
	},
	"FusedTiles": func(s sizes) (graph.Op, []graph.TensorType) {
		l, blocks := blockLanes(), s.of(1, 2, 3)
		c, k := blocks*l, s.of(3, 5)
		one := []int64{1, 1}
		conv := graph.Conv{Strides: one, Dilations: one, PadsBegin: []int64{k / 2, k / 2}, PadsEnd: []int64{k / 2, k / 2}, Group: c}
		o := &nchwc.FusedTiles{Channels: c, Lanes: l, Blocks: s.of(1, 2), Rows: s.of(0, 4), Members: []nchwc.FusedMember{
			{Op: &nchwc.ToNCHWc{Lanes: l}, In: []int{0}},
			{Op: &nchwc.Conv{Conv: conv, Lanes: l, Channels: c, In: true, Out: true}, In: []int{nchwc.OperandPrevious, 1, nchwc.OperandNone}},
		}}
		return o, []graph.TensorType{floatsOf(1, c, s.of(8, 12), s.of(8, 20)), floatsOf(c, 1, k, k)}
	},
}

// TestPackingsTell packs the same bytes by kernels that differ in sizes, types and
// attributes, and wants those whose descriptions of the layout are equal to write equal
// bytes: the engine then keeps one copy for all of them. Descriptions must be equal, too,
// where nothing but the size of the activations differs, unless the layout does.
func TestPackingsTell(t *testing.T) {
	bytesFor := map[int][]byte{} // of operands, by size
	source := func(n int) []byte {
		if bytesFor[n] == nil {
			r, b := rand.New(rand.NewPCG(1, uint64(n))), kerneltest.Aligned(n)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			bytesFor[n] = b
		}
		return bytesFor[n]
	}
	type packed struct {
		bytes []byte
		by    string
		kinds map[string]bool // operand types that it was packed for
	}
	for kind, draw := range packers {
		t.Run(kind, func(t *testing.T) {
			kerneltest.EachPath(t, func(t *testing.T) {
				seen := map[string]*packed{}
				packs, joined := 0, 0
				rapid.Check(t, func(rt *rapid.T) {
					// However few properties are tried, draws go on until two kernels met.
					for n := 0; n < 8 || packs > 0 && joined == 0 && n < 500; n++ {
						op, in := draw(sizes{rt})
						out, err := op.Infer(in)
						if err != nil {
							continue
						}
						k, err := New(op, in, out)
						if err != nil {
							continue
						}
						p, ok := k.(tensor.Packer)
						if !ok {
							continue
						}
						for i := range in {
							n := p.Packed(i)
							if n == 0 {
								continue
							}
							packs++
							src, got := source(int(in[i].Bytes())), kerneltest.Aligned(n)
							p.Pack(i, got, src)
							key := fmt.Sprint(p.Packing(i), " of ", len(src), " bytes")
							what := fmt.Sprintf("operand %d of %s %+v of %v", i, op.Kind(), op, in)
							was := seen[key]
							if was == nil {
								seen[key] = &packed{got, what, map[string]bool{fmt.Sprint(in): true}}
								continue
							}
							if was.kinds[fmt.Sprint(in)] = true; len(was.kinds) == 2 {
								joined++
							}
							if !bytes.Equal(was.bytes, got) {
								rt.Fatalf("%s packs other bytes than %s, but both are %q", what, was.by, key)
							}
						}
					}
				})
				if packs == 0 {
					t.Skip("this path packs nothing")
				}
				require.NotZero(t, joined, "no two kernels have a packing in common")
			})
		})
	}
}

// TestPackersAreDrawn wants every operator whose kernels pack something in the
// table of [TestPackingsTell]. Operands of half precision, which come converted whatever the
// operator is, are there.
func TestPackersAreDrawn(t *testing.T) {
	for kind, draw := range drawn {
		if packers[kind] != nil {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			kerneltest.CheckPaths(t, func(t *rapid.T) {
				op, in := draw(sizes{t})
				out, err := op.Infer(in)
				if err != nil || Tables(op, in, out) > 1<<20 {
					return
				}
				k, err := New(op, in, out)
				if err != nil {
					return
				}
				if p, ok := k.(tensor.Packer); ok {
					for i := range in {
						if in[i].DType == graph.F16 || in[i].DType == graph.BF16 {
							continue
						}
						require.Zero(t, p.Packed(i), "operand %d of %v", i, in)
					}
				}
			})
		})
	}
}

// TestTakers multiplies few rows with a weight in the layout that products of more rows
// want it in, and wants the bits that the weight gives as it is.
func TestTakers(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		taken := 0
		rapid.Check(t, func(t *rapid.T) {
			s := sizes{t}
			d := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F16, graph.BF16}).Draw(t, "type")
			m, k, n := s.of(1, 2, 3), s.of(1, 5, 33, 64, 1100), s.of(2, 4, 31, 32, 70, 300)
			in := []graph.TensorType{typeOf(d, m, k), typeOf(d, k, n), {}}
			var op graph.Op = &graph.MatMul{}
			src := kerneltest.DrawSource(t)
			data := [][]byte{src.Tensor(in[0]), src.Tensor(in[1])}
			if s.yes() {
				op, in[2] = &graph.Gemm{Alpha: 1, Beta: 1}, typeOf(d, n)
				data = append(data, src.Tensor(in[2]))
			}
			in = in[:len(data)]
			out, want := kerneltest.Run(t, New, op, in, data)
			few, err := New(op, in, out)
			require.NoError(t, err)
			taker, ok := few.(tensor.Taker)
			if !ok || taker.Takes(1) == "" {
				return
			}
			in[0].Shape = []int64{40, k}
			many, err := New(op, in, []graph.TensorType{typeOf(d, 40, n)})
			require.NoError(t, err)
			packer := many.(tensor.Packer)
			require.Equal(t, packer.Packing(1), taker.Takes(1))
			packed := kerneltest.Aligned(packer.Packed(1))
			packer.Pack(1, packed, data[1])
			data[1] = packed
			taker.Take(1)
			for _, pool := range []tensor.Pool{tensor.Serial{}, kerneltest.Threads(3)} {
				got := kerneltest.Aligned(len(want[0]))
				require.NoError(t, few.Run(pool, data, [][]byte{got}, kerneltest.Aligned(few.Scratch())))
				require.Equal(t, want[0], got, "%v of %v", op, in)
			}
			taken++
		})
		if tensor.Path != tensor.PathGo {
			require.NotZero(t, taken)
		}
	})
}
