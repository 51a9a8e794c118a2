package op

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// convOps slide a window over spatial axes.
var convOps = map[string]definition{
	"Conv":              takes("X:T=floats W:T B:T").since(1, conv, "auto_pad=NOTSET dilations:ints group=1 kernel_shape:ints pads:ints strides:ints"),
	"MaxPool":           takes("X:floats|bytes").since(1, maxPool, "auto_pad=NOTSET ceil_mode=0 dilations:ints kernel_shape:ints! pads:ints storage_order=0 strides:ints"),
	"AveragePool":       takes("X:floats").since(1, averagePool, "auto_pad=NOTSET ceil_mode=0 count_include_pad=0 dilations:ints kernel_shape:ints! pads:ints strides:ints"),
	"GlobalMaxPool":     takes("X:floats").since(1, globalPool(graph.ReduceMax)),
	"GlobalAveragePool": takes("X:floats").since(1, globalPool(graph.ReduceMean)),
}

// windows are the attributes of an operator that slides a window.
type windows struct {
	kernel, strides, dilations []int64
	begin, end                 []int64
	ceil                       bool
}

// windows reads the attributes for a window of the given kernel over x.
func (c *call) windows(x *lower.Value, kernel []int64) *windows {
	if x.Rank() < 3 {
		c.Fail("operand 0 is %v, want at least 3 dimensions: batch, channels and spatial axes", x.Type)
	}
	size := x.Type.Shape[2:]
	n := len(size)
	w := &windows{kernel: kernel, strides: c.perAxis("strides", n), dilations: c.perAxis("dilations", n), begin: make([]int64, n), end: make([]int64, n)}
	c.checkPerAxis("kernel_shape", kernel, n)
	w.ceil = c.Has("ceil_mode") && c.Bool("ceil_mode")
	pads, given := c.Ints("pads")
	auto := c.Str("auto_pad")
	switch auto {
	case "NOTSET", "":
		if given && len(pads) != 2*n {
			c.Fail("attribute \"pads\" has %d numbers, want 2 for each of %d spatial axes", len(pads), n)
		}
		if given {
			w.begin, w.end = pads[:n], pads[n:]
		}
	case "VALID": // ceil_mode counts, as in ONNX's shape inference and in ONNX Runtime
	case "SAME_UPPER", "SAME_LOWER":
		// As many results as strides fit into the axis; an odd element of
		// padding goes to the end, or to the beginning.
		w.ceil = false
		for i, dim := range size {
			out := (dim + w.strides[i] - 1) / w.strides[i]
			pad := max((out-1)*w.strides[i]+(kernel[i]-1)*w.dilations[i]+1-dim, 0)
			w.begin[i], w.end[i] = pad/2, pad-pad/2
			if auto == "SAME_LOWER" {
				w.begin[i], w.end[i] = w.end[i], w.begin[i]
			}
		}
	default:
		c.Fail("attribute \"auto_pad\" is %q, want NOTSET, VALID, SAME_UPPER or SAME_LOWER", auto)
	}
	return w
}

// perAxis reads an attribute with a number for each spatial axis; all are 1 if
// it is not given.
func (c *call) perAxis(name string, n int) []int64 {
	v, ok := c.Ints(name)
	if !ok {
		return slices.Repeat([]int64{1}, n)
	}
	c.checkPerAxis(name, v, n)
	return v
}

func (c *call) checkPerAxis(name string, v []int64, n int) {
	if len(v) != n {
		c.Fail("attribute %q is %s, want one number for each of %d spatial axes", name, graph.ShapeString(v), n)
	}
	for _, x := range v {
		if x < 1 || x > math.MaxInt32 { // products of two fit into an int64
			c.Fail("attribute %q is %s, want numbers from 1 to %d", name, graph.ShapeString(v), math.MaxInt32)
		}
	}
}

func conv(c *call) []*lower.Value { return lower.One(c.conv(c.In(0), c.In(1), c.Opt(2))) }

// conv convolves with the node's attributes.
func (c *call) conv(x, w, bias *lower.Value) *lower.Value { return c.Emit(c.convOp(x, w), x, w, bias) }

// convOp reads the node's attributes for a convolution of x.
func (c *call) convOp(x, w *lower.Value) *graph.Conv {
	if w.Rank() != x.Rank() {
		c.Fail("the weights are %v, want as many dimensions as operand 0 (X), %v", w.Type, x.Type)
	}
	kernel := w.Type.Shape[min(2, w.Rank()):]
	if k, ok := c.Ints("kernel_shape"); ok && !slices.Equal(k, kernel) {
		c.Fail("attribute \"kernel_shape\" is %s, but the weights are %v", graph.ShapeString(k), w.Type)
	}
	win := c.windows(x, kernel)
	return &graph.Conv{
		Strides: win.strides, Dilations: win.dilations, PadsBegin: win.begin, PadsEnd: win.end, Group: c.Int("group"),
	}
}

func maxPool(c *call) []*lower.Value {
	x := c.In(0)
	win := c.windows(x, c.RequireInts("kernel_shape"))
	op := &graph.MaxPool{
		Kernel: win.kernel, Strides: win.strides, Dilations: win.dilations, PadsBegin: win.begin, PadsEnd: win.end,
		Ceil: win.ceil, ColumnMajor: c.Bool("storage_order"),
	}
	return c.EmitN(op, []bool{true, c.Wants(1)}, x)
}

func averagePool(c *call) []*lower.Value {
	x := c.In(0)
	win := c.windows(x, c.RequireInts("kernel_shape"))
	op := &graph.AveragePool{
		Kernel: win.kernel, Strides: win.strides, Dilations: win.dilations, PadsBegin: win.begin, PadsEnd: win.end,
		Ceil: win.ceil, CountIncludePad: c.Bool("count_include_pad"),
	}
	return lower.One(c.Emit(op, x))
}

// globalPool reduces all spatial axes.
func globalPool(fn graph.ReduceFn) lowerFunc {
	return func(c *call) []*lower.Value {
		x := c.In(0)
		if x.Rank() < 2 {
			c.Fail("operand 0 is %v, want at least 2 dimensions: batch and channels", x.Type)
		}
		op := &graph.Reduce{Fn: fn, KeepDims: true}
		for a := int64(2); a < x.Rank(); a++ {
			op.Axes = append(op.Axes, a)
		}
		return lower.One(c.Emit(op, x))
	}
}
