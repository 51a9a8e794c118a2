package op

import (
	"math"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// signalOps are transforms of signals and what goes with them.
var signalOps = map[string]definition{
	"DFT":             takes("input:floats dft_length:indices axis:indices").since(17, dftAttribute, "axis=1 inverse=0 onesided=0").since(20, dftOperand, "inverse=0 onesided=0"),
	"STFT":            takes("signal:T=floats frame_step:indices window:T frame_length:indices").since(17, stft, "onesided=1"),
	"HannWindow":      takes("size:indices").since(17, windowOf(hann), "output_datatype=1 periodic=1"),
	"HammingWindow":   takes("size:indices").since(17, windowOf(hamming), "output_datatype=1 periodic=1"),
	"BlackmanWindow":  takes("size:indices").since(17, windowOf(blackman), "output_datatype=1 periodic=1"),
	"MelWeightMatrix": takes("num_mel_bins:indices dft_length:indices sample_rate:indices lower_edge_hertz:floats upper_edge_hertz:floats").since(17, melWeights, "output_datatype=1"),
}

func dftAttribute(c *call) []*lower.Value { return lower.One(c.dft(c.In(0), c.Int("axis"))) }

func dftOperand(c *call) []*lower.Value {
	axis := int64(-2)
	if c.Opt(2) != nil {
		axis = c.knownInt(2, "axis")
	}
	return lower.One(c.dft(c.In(0), axis))
}

// dft transforms x along an axis that is not the last.
func (c *call) dft(x *lower.Value, axis int64) *lower.Value {
	op := &graph.DFT{Axis: c.Axis(axis, x.Rank()), Inverse: c.Bool("inverse"), OneSided: c.Bool("onesided")}
	if op.Length = x.Type.Shape[op.Axis]; op.Inverse && op.OneSided {
		op.Length = 2 * (op.Length - 1)
	}
	if c.Opt(1) != nil {
		op.Length = c.knownInt(1, "dft_length")
	}
	return c.Emit(op, x)
}

// stft transforms overlapping frames of a signal.
func stft(c *call) []*lower.Value {
	x, window := c.In(0), c.Opt(2)
	c.In(1)
	step := c.knownInt(1, "frame_step")
	if x.Rank() == 2 {
		x = c.Emit(&graph.Reshape{Shape: append(append([]int64(nil), x.Type.Shape...), 1)}, x)
	}
	if x.Rank() != 3 || x.Type.Shape[2] < 1 || x.Type.Shape[2] > 2 {
		c.Fail("operand 0 (signal) is %v, want [batch,length,1] or [batch,length,2]", x.Type)
	}
	samples := x.Type.Shape[1]
	length := samples
	if window != nil {
		if window.Rank() != 1 {
			c.Fail("operand 2 (window) is %v, want 1 dimension", window.Type)
		}
		length = window.Type.Shape[0]
	}
	taken := length
	if c.Opt(3) != nil {
		length = c.knownInt(3, "frame_length")
		if window == nil {
			taken = length
		}
	}
	if step < 1 || length < 1 || length > samples || taken > length {
		c.Fail("frames of %d samples (%d of them in the window), %d apart, do not fit a signal of %d", length, taken, step, samples)
	}
	frames := (samples-length)/step + 1
	c.Makes(budget.Mul(8, frames, max(taken, 1)))
	at := make([]int64, 0, frames*taken)
	for f := range frames {
		for i := range taken {
			at = append(at, f*step+i)
		}
	}
	index := lower.KnownInts(at...)
	index.Type.Shape = []int64{frames, taken}
	y := c.wide(c.Emit(&graph.Gather{Axis: 1}, x, index))
	if window != nil {
		y = c.Emit(&graph.Binary{Fn: graph.Mul}, y, c.Emit(&graph.Reshape{Shape: []int64{taken, 1}}, c.cast(window, y.Type.DType)))
	}
	y = c.Emit(&graph.DFT{Axis: 2, Length: length, OneSided: c.Bool("onesided")}, y)
	return lower.One(c.cast(y, x.Type.DType))
}

// cosines are a window as a function of a phase that goes from 0 to 2π: a[0] - a[1]·cos(phase) + a[2]·cos(2·phase).
type cosines [3]float64

var (
	hann     = cosines{0.5, 0.5}
	hamming  = cosines{25. / 46, 21. / 46}
	blackman = cosines{0.42, 0.5, 0.08}
)

func (a cosines) at(phase float64) float64 {
	v := a[0] - a[1]*math.Cos(phase)
	if a[2] != 0 {
		v += a[2] * math.Cos(2*phase)
	}
	return v
}

// windowOf lowers an operator that makes a window.
func windowOf(f cosines) lowerFunc {
	return func(c *call) []*lower.Value {
		by := c.In(0)
		t := onnx.ElemType(c.Int("output_datatype")).DType()
		if !t.IsFloat() && !t.IsInteger() || t.Size() == 0 {
			c.Unsupported("", "attribute output_datatype %v", onnx.ElemType(c.Int("output_datatype")))
		}
		if by.Type.Elements() == 1 && c.MayDecide(by) {
			return lower.One(c.windowBy(f, t))
		}
		n := c.knownInt(0, "size")
		if n < 0 {
			c.Fail("operand 0 (size) is %d, want 0 or more", n)
		}
		last := float64(n)
		if !c.Bool("periodic") {
			last = max(last-1, 1) // a window of one element is like the first of others
		}
		return lower.One(c.sequence(t, float64(n), func(i int64) []byte { return lower.EncodeFloat(t, f.at(2*math.Pi*float64(i)/last)) }))
	}
}

// melWeights makes the matrix that sums up frequencies to bands of the mel
// scale.
func melWeights(c *call) []*lower.Value {
	known := true
	for i := range 5 {
		if c.In(i).Type.Elements() != 1 {
			c.Fail("operand %d is %v, want one number", i, c.In(i).Type)
		}
		known = known && c.In(i).Known
	}
	t := onnx.ElemType(c.Int("output_datatype")).DType()
	if !t.IsFloat() && !t.IsInteger() {
		c.Unsupported("", "attribute output_datatype %v", onnx.ElemType(c.Int("output_datatype")))
	}
	if !known && c.mayAll(c.list(0), c.list(1)) {
		return lower.One(c.melBy(t))
	}
	bands, length, rate := c.knownInt(0, "num_mel_bins"), c.knownInt(1, "dft_length"), c.knownInt(2, "sample_rate")
	edge := func(i int, what string) float32 {
		v, _ := c.knownFloats(i, what)
		if len(v) != 1 {
			c.Fail("operand %d (%s) is %v, want one number", i, what, c.In(i).Type)
		}
		return float32(2595 * math.Log10(float64(1+float32(v[0])/700)))
	}
	low, high := edge(3, "lower_edge_hertz"), edge(4, "upper_edge_hertz")
	if bands < 1 || length < 1 || rate < 1 || bands > math.MaxInt32 || length > math.MaxInt32 {
		c.Fail("%d bands, a transform of length %d and a sample rate of %d do not make a matrix that is of use", bands, length, rate)
	}
	c.Makes(budget.Mul(8, bands+2, length/2+1))
	// ONNX's reference spaces the bands' edges by a step of single precision.
	step := float64((high - low) / float32(bands+2))
	edges := make([]int64, bands+2)
	for i := range edges {
		hertz := 700 * (math.Pow(10, (float64(i)*step+float64(low))/2595) - 1)
		edges[i] = int64(math.Floor(float64(length+1) * hertz / float64(rate)))
	}
	bins := length/2 + 1
	if edges[0] < 0 || edges[bands+1] > bins {
		c.Fail("the bands reach from frequency %d to %d, but there are those from 0 to %d", edges[0], edges[bands+1], bins-1)
	}
	weights := make([]float64, bins*bands)
	for b := range bands {
		from, middle, to := edges[b], edges[b+1], edges[b+2]
		if middle == from && middle < bins {
			weights[middle*bands+b] = 1
		}
		for j := from; j <= middle && j < bins && middle > from; j++ {
			weights[j*bands+b] = float64(j-from) / float64(middle-from)
		}
		for j := middle; j < to; j++ {
			weights[j*bands+b] = float64(to-j) / float64(to-middle)
		}
	}
	v := c.sequence(t, float64(len(weights)), func(i int64) []byte { return lower.EncodeFloat(t, weights[i]) })
	v.Type.Shape = []int64{bins, bands}
	return lower.One(v)
}
