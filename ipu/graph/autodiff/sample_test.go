package autodiff_test

import (
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
)

var sampleCases = map[string]func(*draw){
	"GridSample": func(d *draw) {
		axes := int(d.size("axes", 1, 2))
		o := &graph.GridSample{AlignCorners: d.yes("align")}
		o.Mode = rapid.SampledFrom([]graph.ResizeMode{graph.ResizeLinear, graph.ResizeCubic}).Draw(d.T, "mode")
		o.Padding = rapid.SampledFrom([]graph.SamplePadding{graph.SampleZeros, graph.SampleBorder, graph.SampleReflection}).Draw(d.T, "padding")
		// Places are a third of the way between elements, so that none is at a kink.
		batch := d.size("batch", 1, 2)
		x, grid := []int64{batch, d.size("channels", 1, 2)}, []int64{batch}
		for range axes {
			x, grid = append(x, d.size("size", 2, 4)), append(grid, d.size("points", 1, 2))
		}
		grid = append(grid, int64(axes))
		v := make([]float64, f64(grid...).Elements())
		for i := range v {
			n := float64(x[len(x)-1-i%axes])
			place := float64(d.size("place", -2, int64(n)+1)) + rapid.SampledFrom([]float64{0.3, 0.6}).Draw(d.T, "between")
			if v[i] = (2*place+1)/n - 1; o.AlignCorners {
				v[i] = 2*place/(n-1) - 1
			}
		}
		d.give(o, d.x(x, -2, 2), d.input(grid, v))
	},
	"GridSample/nearest": func(d *draw) {
		o := &graph.GridSample{AlignCorners: d.yes("align"), Mode: graph.ResizeNearest}
		o.Padding = rapid.SampledFrom([]graph.SamplePadding{graph.SampleZeros, graph.SampleBorder, graph.SampleReflection}).Draw(d.T, "padding")
		x := d.x([]int64{1, 2, 3, 2}, -2, 2)
		grid := d.fixed(f64(1, 2, 2, 2), encode(graph.F64, d.numbers(8, -1.5, 1.5)))
		d.give(o, x, grid)
	},
	"DFT": func(d *draw) {
		shape := []int64{d.size("batch", 1, 2), d.size("samples", 1, 6), d.size("parts", 1, 2)}
		o := &graph.DFT{Axis: 1, Length: d.size("length", 1, 7), Inverse: d.yes("inverse"), OneSided: d.yes("one-sided")}
		d.give(o, d.x(shape, -2, 2))
	},
	"LinearAttention": func(d *draw) {
		kv := d.size("heads of K", 1, 2)
		o := &graph.LinearAttention{KVHeads: kv, Heads: kv * d.size("shared", 1, 2), Scale: 0.75, Gated: d.yes("gated"), Delta: d.yes("delta")}
		batch, steps, size, width := d.size("batch", 1, 2), d.size("steps", 1, 3), d.size("size", 1, 2), d.size("width", 1, 2)
		in := []graph.TensorID{d.x([]int64{batch, steps, o.Heads * size}, -1, 1), d.x([]int64{batch, steps, kv * size}, -1, 1), d.x([]int64{batch, steps, kv * width}, -1, 1),
			graph.None, graph.None, graph.None, graph.None}
		if d.yes("past") {
			in[3] = d.x([]int64{batch, kv, size, width}, -1, 1)
		}
		if o.Gated {
			in[4] = d.x([]int64{batch, steps, rapid.SampledFrom([]int64{kv, kv * size}).Draw(d.T, "decays")}, -1, 0.5)
		}
		if o.Delta {
			in[5] = d.x([]int64{batch, steps, rapid.SampledFrom([]int64{kv, 1}).Draw(d.T, "betas")}, -1, 1)
			if d.yes("erase") {
				in[6] = d.x([]int64{batch, steps, kv * size}, -1, 1)
			}
		}
		d.give(o, in...)
	},
}
