package cpu

import (
	"context"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// hung is after how long an engine counts as one that does not notice that its
// run was cancelled: operators of this test take minutes.
const hung = 10 * time.Second

// typ returns a type.
func typ(d graph.DType, shape ...int64) graph.TensorType {
	return graph.TensorType{DType: d, Shape: shape}
}

// longOperators are operators that compute for minutes on operands of a few
// megabytes.
func longOperators() map[string]struct {
	op graph.Op
	in []graph.TensorType
} {
	one, zero := []int64{1}, []int64{0}
	type long = struct {
		op graph.Op
		in []graph.TensorType
	}
	conv := &graph.Conv{Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero, Group: 1}
	half := []int64{1 << 19}
	return map[string]long{
		"Conv":     {conv, []graph.TensorType{f32(1, 4, 1<<20), f32(8, 4, 1<<19)}},
		"Conv f64": {conv, []graph.TensorType{typ(graph.F64, 1, 1, 1<<20), typ(graph.F64, 1, 1, 1<<19)}},
		"ConvTranspose": {&graph.ConvTranspose{Strides: one, Dilations: one, PadsBegin: zero, Output: []int64{1<<19 + 1<<18 - 1}, Group: 1},
			[]graph.TensorType{f32(4, 2, 1<<19), f32(2, 2, 1<<18)}},
		"IntegerConv": {&graph.IntegerConv{Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero, Group: 1, To: graph.I32},
			[]graph.TensorType{typ(graph.U8, 1, 16, 1<<20), typ(graph.I8, 8, 16, 1<<19)}},
		"LpPool":      {&graph.LpPool{P: 3, Kernel: half, Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero}, []graph.TensorType{f32(1, 8, 1<<20)}},
		"MaxPool":     {&graph.MaxPool{Kernel: half, Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero}, []graph.TensorType{f32(4, 4, 1<<20)}},
		"AveragePool": {&graph.AveragePool{Kernel: half, Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero}, []graph.TensorType{f32(4, 4, 1<<20)}},
		"MatMul i32":  {&graph.MatMul{}, []graph.TensorType{typ(graph.I32, 5000, 5000), typ(graph.I32, 5000, 5000)}},
		"RNN": {&graph.RNN{Hidden: 4096, Direction: "forward", Activations: []string{"Tanh"}, ActAlpha: make([]float64, 1), ActBeta: make([]float64, 1)},
			[]graph.TensorType{f32(4000, 1, 1), f32(1, 4096, 1), f32(1, 4096, 4096)}},
		"Det": {&graph.Det{}, []graph.TensorType{f32(4096, 4096)}},
		"LRN": {&graph.LRN{Size: 1 << 17, Alpha: 1, Beta: 1, Bias: 1}, []graph.TensorType{f32(1, 1<<17, 32)}},
	}
}

// TestCancelLongKernel cancels a run in the middle of one operator. The run ends
// with the context's error, and the engine runs other programs as before.
func TestCancelLongKernel(t *testing.T) {
	for name, c := range longOperators() {
		for _, threads := range []string{"1", "2"} {
			t.Run(fmt.Sprintf("%s, %s threads", name, threads), func(t *testing.T) {
				b := graph.NewBuilder("m")
				var steps []graph.Step
				var operands []graph.TensorID
				for i, x := range c.in {
					id := b.AddLocal(fmt.Sprint("x", i), x)
					operands = append(operands, id)
					steps = append(steps, b.CopyIn(fmt.Sprint("x", i), id))
				}
				g := b.BeginGraph("long")
				y := node(t, b, c.op, "long", operands...)
				small := b.AddLocal("small", f32(4))
				h := b.BeginGraph("short")
				z := node(t, b, &graph.Unary{Fn: graph.Neg}, "short", small)
				b.AddProgram(0, "long", append(steps, b.Call(g), b.CopyOut("y", y))...)
				b.AddProgram(1, "short", b.CopyIn("small", small), b.Call(h), b.CopyOut("z", z))
				e := newLoaded(t, b, opt("threads", threads)...)
				for i, x := range c.in {
					connect(t, e, map[string]ipu.Stream{fmt.Sprint("x", i): noise(t, x)})
				}
				got := make([]float32, 4)
				connect(t, e, map[string]ipu.Stream{"y": noise(t, b.Type(y)), "small": in(t, []float32{1, 2, 3, 4}), "z": out(t, got)})
				ctx, cancel := context.WithCancel(context.Background())
				var cancelled time.Time
				time.AfterFunc(30*time.Millisecond, func() { cancelled = time.Now(); cancel() })
				ended := make(chan error, 1)
				go func() { ended <- e.Run(ctx, 0) }()
				select {
				case err := <-ended:
					t.Logf("ended after %v", time.Since(cancelled))
					require.ErrorIs(t, err, context.Canceled)
				case <-time.After(hung):
					t.Fatalf("still runs after %v", hung)
				}
				run(t, e, 1)
				require.Equal(t, []float32{-1, -2, -3, -4}, got)
			})
		}
	}
}

// noise is a stream of small numbers of a type, or of what is written to it.
func noise(t require.TestingT, x graph.TensorType) ipu.Stream {
	b := make([]byte, x.Bytes())
	if x.DType == graph.F32 {
		v := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
		for i := range v {
			v[i] = float32(uint32(i)*2654435761>>8)/(1<<24) - 0.5
		}
	}
	return direct{newHost(t, b)}
}
