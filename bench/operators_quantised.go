package main

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/bench/synth"
	"github.com/popefgen/popefgen/onnx/verify"
)

// quantised is the group of operators on bytes, of which no goal speaks.
const quantised group = "quantised"

// steps is how far apart results of quantised operators may be: their steps
// are about 1, and layers pass differences on.
var steps = verify.Tolerance{Rel: 1e-3, Abs: 4}

func init() {
	operators = append(operators, quantisedProduct(128, 768, 768), quantisedProduct(128, 768, 3072), dynamicProduct(128, 768, 768),
		quantisedConv(3, 64, 64, 56, 1), quantisedConv(3, 256, 256, 14, 1), quantisedConv(1, 64, 256, 56, 1), quantisedConv(1, 256, 1024, 14, 1),
		quantisedConv(3, 144, 144, 56, 144))
}

// activation is what a layer hands to the next: bytes with a scale and a zero
// point.
type activation struct{ x, scale, zero string }

func quantise(m *synth.Model, x string, scale float64, zero uint8) activation {
	a := activation{scale: m.Scale(scale), zero: m.Zero(zero)}
	a.x = m.Node("QuantizeLinear", []string{x, a.scale, a.zero})
	return a
}

func (a activation) float(m *synth.Model) string {
	return m.Node("DequantizeLinear", []string{a.x, a.scale, a.zero})
}

// quantisedProduct is x[m,k]·W[k,n] between conversions to bytes and back.
func quantisedProduct(m, n, k int64) operator {
	return operator{name: fmt.Sprintf("int8 %d×%d · %d×%d", m, k, k, n), group: quantised, build: func(g *synth.Model) {
		x := quantise(g, g.Input("x", m, k), 1.0/32, 128).float(g)
		w := g.Node("DequantizeLinear", []string{g.Bytes8(k, n), g.Scale(1 / math.Sqrt(float64(k)))})
		g.Output(quantise(g, g.Node("MatMul", []string{x, w}), 1, 120).float(g), m, n)
	}}
}

// dynamicProduct is x[m,k]·W[k,n] with x made bytes by its own range.
func dynamicProduct(m, n, k int64) operator {
	return operator{name: fmt.Sprintf("int8, dynamic %d×%d · %d×%d", m, k, k, n), group: quantised, build: func(g *synth.Model) {
		x := g.Nodes("DynamicQuantizeLinear", []string{g.Input("x", m, k)}, 3)
		acc := g.Node("Cast", []string{g.Node("MatMulInteger", []string{x[0], g.Bytes8(k, n), x[2]})}, attr("to", int64(1)))
		y := g.Node("Mul", []string{acc, g.Node("Mul", []string{x[1], g.Scale(1 / math.Sqrt(float64(k)))})})
		g.Output(g.Node("Add", []string{y, g.Weights(1, n)}), m, n)
	}}
}

// quantisedConv is a chain of convolutions of bytes, from channels to hidden
// and back.
func quantisedConv(kk, channels, hidden, size, groups int64) operator {
	o := conv(dense, kk, channels, hidden, size, groups)
	return operator{name: "int8 " + o.name, group: quantised, build: func(g *synth.Model) {
		a := quantise(g, g.Input("x", 1, channels, size, size), 1.0/32, 128)
		in, out, p, scale := channels, hidden, kk/2, 1.0/32
		for range chained {
			// Sums have the magnitude of √n products; results lie around the
			// middle of their range.
			ws := 1 / (scale * 75 * 75 * math.Sqrt(float64(in/groups*kk*kk)))
			w := g.Node("DequantizeLinear", []string{g.Bytes8(out, in/groups, kk, kk), g.Scales(out, 40*ws)}, attr("axis", int64(0)))
			x := g.Node("Conv", []string{a.float(g), w}, attr("pads", []int64{p, p, p, p}), attr("group", groups), attr("kernel_shape", []int64{kk, kk}))
			a, scale = quantise(g, x, 1, 110), 1
			in, out = out, in
		}
		g.Output(a.float(g), 1, in, size, size)
	}}
}
