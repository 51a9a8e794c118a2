package bench

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// netDraw draws a network of convolutions such as cameras' pictures are fed to.
type netDraw struct {
	*rand.Rand
	graph *onnx.Graph
	maps  []activation
}

// activation is a tensor [1,c,h,w].
type activation struct {
	name    string
	c, h, w int64
}

// randomNet returns a network that nobody tuned anything for: a picture of some
// size goes through 6 to 14 layers of some kinds and sizes.
func randomNet(seed uint64) *onnx.Model {
	d := &netDraw{Rand: rand.New(rand.NewPCG(seed, 7)), graph: &onnx.Graph{Name: fmt.Sprintf("random_%d", seed)}}
	size := []int64{28, 48, 64, 96, 112}[d.IntN(5)]
	x := activation{"x", []int64{1, 3, 4, 16, 24}[d.IntN(5)], size, size + int64(d.IntN(9))}
	d.graph.Inputs = []onnx.ValueInfo{info(x)}
	for range 6 + d.IntN(9) {
		x = d.layer(x)
		d.maps = append(d.maps, x)
	}
	d.graph.Outputs = []onnx.ValueInfo{info(x)}
	return &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: d.graph}
}

func info(a activation) onnx.ValueInfo {
	v := onnx.ValueInfo{Name: a.name, Elem: onnx.Float, HasShape: true}
	for _, n := range []int64{1, a.c, a.h, a.w} {
		v.Dims = append(v.Dims, onnx.Dim{Known: true, Value: n})
	}
	return v
}

// tensor adds random weights.
func (d *netDraw) tensor(dims ...int64) string {
	t := &onnx.Tensor{Name: fmt.Sprintf("w%d", len(d.graph.Initializers)), Elem: onnx.Float, Dims: dims}
	n := int64(1)
	for _, k := range dims {
		n *= k
	}
	for range n {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(float32(d.NormFloat64())/float32(math.Sqrt(float64(n/dims[0])))))
	}
	d.graph.Initializers = append(d.graph.Initializers, t)
	return t.Name
}

func (d *netDraw) node(kind string, y activation, in []string, attributes ...*onnx.Attribute) activation {
	y.name = fmt.Sprintf("y%d", len(d.graph.Nodes))
	d.graph.Nodes = append(d.graph.Nodes, &onnx.Node{OpType: kind, Name: y.name, Inputs: in, Outputs: []string{y.name}, Attributes: attributes})
	return y
}

func ints(name string, v ...int64) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrInts, Ints: v}
}

// convolution adds one with windows of k×k, with or without a rectifier.
func (d *netDraw) convolution(x activation, maps, k, stride, group int64) activation {
	y := activation{c: maps, h: (x.h-1)/stride + 1, w: (x.w-1)/stride + 1}
	y = d.node("Conv", y, []string{x.name, d.tensor(maps, x.c/group, k, k), d.tensor(maps)},
		ints("kernel_shape", k, k), ints("strides", stride, stride), ints("pads", k/2, k/2, k/2, k/2),
		&onnx.Attribute{Name: "group", Type: onnx.AttrInt, Int: group})
	if d.IntN(4) > 0 {
		y = d.node([]string{"Relu", "Relu", "HardSwish", "Sigmoid"}[d.IntN(4)], y, []string{y.name})
	}
	return y
}

// layer adds what comes after x.
func (d *netDraw) layer(x activation) activation {
	stride := int64(1)
	if x.h > 12 && d.IntN(3) == 0 {
		stride = 2
	}
	maps := []int64{8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128}[d.IntN(11)]
	if maps*x.h*x.w > 1<<19 {
		maps = 16
	}
	switch d.IntN(10) {
	case 0, 1, 2:
		return d.convolution(x, maps, []int64{3, 3, 5}[d.IntN(3)], stride, 1)
	case 3, 4:
		return d.convolution(x, maps, 1, 1, 1)
	case 5, 6:
		return d.convolution(d.convolution(x, maps, 1, 1, 1), maps, []int64{3, 3, 5}[d.IntN(3)], stride, maps)
	case 7:
		if stride == 2 {
			y := activation{c: x.c, h: (x.h-2)/2 + 1, w: (x.w-2)/2 + 1}
			return d.node([]string{"MaxPool", "AveragePool"}[d.IntN(2)], y, []string{x.name}, ints("kernel_shape", 2, 2), ints("strides", 2, 2))
		}
		g := d.node("ReduceMean", activation{c: x.c, h: 1, w: 1}, []string{x.name}, ints("axes", 2, 3))
		g = d.node("Sigmoid", d.convolution(g, x.c, 1, 1, 1), []string{fmt.Sprintf("y%d", len(d.graph.Nodes)-1)})
		return d.node("Mul", x, []string{x.name, g.name})
	case 8:
		y := d.convolution(x, x.c, 3, 1, 1)
		return d.node("Add", y, []string{x.name, y.name})
	}
	if x.c*x.h*x.w < 1<<16 && x.h < 60 {
		scales := &onnx.Tensor{Name: fmt.Sprintf("w%d", len(d.graph.Initializers)), Elem: onnx.Float, Dims: []int64{4}}
		for _, s := range []float32{1, 1, 2, 2} {
			scales.Data = binary.LittleEndian.AppendUint32(scales.Data, math.Float32bits(s))
		}
		d.graph.Initializers = append(d.graph.Initializers, scales)
		mode := &onnx.Attribute{Name: "mode", Type: onnx.AttrString, String: []byte([]string{"nearest", "linear"}[d.IntN(2)])}
		return d.node("Resize", activation{c: x.c, h: 2 * x.h, w: 2 * x.w}, []string{x.name, "", scales.Name}, mode)
	}
	for _, o := range d.maps {
		if o.h == x.h && o.w == x.w && o.name != x.name && (o.c+x.c)*x.h*x.w < 1<<19 {
			return d.node("Concat", activation{c: x.c + o.c, h: x.h, w: x.w}, []string{x.name, o.name}, &onnx.Attribute{Name: "axis", Type: onnx.AttrInt, Int: 1})
		}
	}
	return d.convolution(x, maps, 3, stride, 1)
}

// TestRandomNets wants networks that compile, answer, and are all different.
func TestRandomNets(t *testing.T) {
	seen := map[string]bool{}
	for seed := range randomNets {
		r, err := compile.Compile(randomNet(seed), compile.Options{})
		require.NoError(t, err, "seed %d", seed)
		text := dump.String(r.Executable)
		require.False(t, seen[text], "seed %d", seed)
		seen[text] = true
		target := targetOf(t, r.Executable.Name, r, nil)
		target.Threads = 1
		config := Config{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1, Duration: time.Millisecond}
		_, err = Measure(t.Context(), target, config)
		require.NoError(t, err, "seed %d", seed)
	}
}
