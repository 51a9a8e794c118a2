package autodiff_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
)

// regions are the operands of a RoiAlign.
type regions struct {
	o      *graph.RoiAlign
	shape  []int64 // of x
	x      []float64
	rois   []float64
	images []int64
}

// regions draws them so that no sample is at a kink, and no maximum near another.
func (d *draw) regions(mode graph.RoiMode) regions {
	r := regions{o: &graph.RoiAlign{Mode: mode, Height: d.size("height", 1, 2), Width: d.size("width", 1, 2), SamplingRatio: d.size("ratio", 0, 2), HalfPixel: d.yes("half pixel")}}
	r.o.SpatialScale = rapid.SampledFrom([]float64{0.5, 1, 1.5}).Draw(d.T, "scale")
	r.shape = []int64{d.size("batch", 1, 2), d.size("channels", 1, 2), d.size("rows", 1, 4), d.size("columns", 1, 4)}
	n := d.size("regions", 1, 3)
	for range n {
		r.images = append(r.images, d.size("image", 0, r.shape[0]-1))
	}
	rois, x := d.numbers(4*n, -2, 5), d.numbers(f64(r.shape...).Elements(), -2, 2)
	for try := 0.0; ; try++ { // numbers in between, until they are good
		require.Less(d, try, 1e4)
		r.rois, r.x = nil, nil
		for i, v := range slices.Concat(rois, x) {
			_, part := math.Modf(try * math.Sqrt(float64(2+5*i)))
			if v = float64(float32(v + part)); i < len(rois) {
				r.rois = append(r.rois, v)
			} else {
				r.x = append(r.x, v)
			}
		}
		if r.good() {
			return r
		}
	}
}

// places are those of the samples of a cell on an axis; they are not good near where the derivatives change.
func (r *regions) places(lo, hi float64, cells, cell int64) (places []float64, good bool) {
	offset := 0.0
	if r.o.HalfPixel {
		offset = 0.5
	}
	size := (hi - lo) * r.o.SpatialScale
	good = r.o.HalfPixel || math.Abs(size-1) > 1./16
	if !r.o.HalfPixel {
		size = max(size, 1)
	}
	size /= float64(cells)
	count := float64(r.o.SamplingRatio)
	if count == 0 {
		count = max(math.Ceil(size), 0)
		good = good && (!r.o.HalfPixel && size*float64(cells) == 1 || math.Abs(size-math.Round(size)) > 1./16)
	}
	for i := range int64(count) {
		v := lo*r.o.SpatialScale - offset + float64(cell)*size + (float64(i)+0.5)*size/count
		places = append(places, v)
		good = good && math.Abs(v-math.Round(v)) > 1./32
	}
	return places, good
}

// good reports whether derivatives are the same all around.
func (r *regions) good() bool {
	channels, rows, columns := r.shape[1], r.shape[2], r.shape[3]
	near := func(v float64, n int64) (at [2]int64, weight [2]float64) {
		v = min(max(v, 0), float64(n-1))
		at[0] = int64(v)
		at[1] = min(at[0]+1, n-1)
		return at, [2]float64{1 - (v - float64(at[0])), v - float64(at[0])}
	}
	for i, image := range r.images {
		box := r.rois[4*i:]
		for cell := range r.o.Height * r.o.Width {
			down, ok := r.places(box[1], box[3], r.o.Height, cell/r.o.Width)
			across, fine := r.places(box[0], box[2], r.o.Width, cell%r.o.Width)
			if !ok || !fine {
				return false
			}
			for channel := range channels {
				weighted := []float64{}
				zero := false
				type part struct {
					weight float64
					at     int64
				}
				seen := map[part]bool{} // samples beyond a border are all the same
				for _, v := range down {
					for _, h := range across {
						if v < -1 || v > float64(rows) || h < -1 || h > float64(columns) {
							zero = true
							continue
						}
						ys, wy := near(v, rows)
						xs, wx := near(h, columns)
						for k := range 4 {
							p := part{wy[k/2] * wx[k%2], ys[k/2]*columns + xs[k%2]}
							zero = zero || p.weight == 0
							if p.weight != 0 && !seen[p] {
								weighted = append(weighted, p.weight*r.x[(image*channels+channel)*rows*columns+p.at])
							}
							seen[p] = true
						}
					}
				}
				if zero {
					weighted = append(weighted, 0)
				}
				slices.Sort(weighted)
				if n := len(weighted); r.o.Mode == graph.RoiMax && n > 1 && weighted[n-1]-weighted[n-2] < 1./32 {
					return false
				}
			}
		}
	}
	return true
}

// give adds the node.
func (r *regions) give(d *draw) {
	n := int64(len(r.images))
	d.give(r.o, d.input(r.shape, r.x), d.input([]int64{n, 4}, r.rois), d.i64s([]int64{n}, r.images...))
}

var regionCases = map[string]func(*draw){
	"RoiAlign":     func(d *draw) { r := d.regions(graph.RoiAverage); r.give(d) },
	"RoiAlign/max": func(d *draw) { r := d.regions(graph.RoiMax); r.give(d) },
	"RoiAlignGradient": func(d *draw) { // of x: what is there of it does not matter
		r := d.regions(graph.RoiAverage)
		n, o := int64(len(r.images)), graph.RoiAlignGradient(*r.o)
		x := d.fixed(f64(r.shape...), make([]byte, f64(r.shape...).Bytes()))
		rois, images := d.input([]int64{n, 4}, r.rois), d.i64s([]int64{n}, r.images...)
		d.results = d.node(&o, x, rois, images, d.x([]int64{n, r.shape[1], r.o.Height, r.o.Width}, -2, 2))[:1]
	},
	"MaxRoiPool": func(d *draw) {
		o := &graph.MaxRoiPool{Height: d.size("height", 1, 3), Width: d.size("width", 1, 3), SpatialScale: rapid.SampledFrom([]float64{0.5, 1}).Draw(d.T, "scale")}
		x := []int64{d.size("batch", 1, 2), d.size("channels", 1, 2), d.size("rows", 1, 4), d.size("columns", 1, 4)}
		n := d.size("regions", 1, 3)
		var rois []float64
		for range n {
			rois = append(append(rois, float64(d.size("image", 0, x[0]-1))), d.numbers(4, -3, 6)...)
		}
		d.give(o, d.apart(x), d.fixed(f64(n, 5), encode(graph.F64, rois)))
	},
	"DeformConv": func(d *draw) {
		w := d.window(2, true)
		group, offsets, c, m, batch := d.size("group", 1, 2), d.size("offset groups", 1, 2), d.size("channels", 1, 2), d.size("results", 1, 2), d.size("batch", 1, 2)
		o := &graph.DeformConv{Strides: w.strides, Dilations: w.dilations, PadsBegin: w.begin, PadsEnd: w.end, Group: group, OffsetGroup: offsets}
		x := append([]int64{batch, 2 * c}, w.size...)
		weights := append([]int64{group * m, 2 * c / group}, w.kernel...)
		points := []int64{batch, offsets * w.kernel[0] * w.kernel[1]}
		for i, k := range w.kernel {
			points = append(points, (w.size[i]+w.begin[i]+w.end[i]-(k-1)*w.dilations[i]-1)/w.strides[i]+1)
		}
		moved := slices.Clone(points)
		moved[1] *= 2
		v := make([]float64, f64(moved...).Elements())
		for i := range v { // a third of the way between elements
			v[i] = float64(d.size("offset", -2, 2)) + rapid.SampledFrom([]float64{0.3, 0.6}).Draw(d.T, "between")
		}
		in := []graph.TensorID{d.x(x, -2, 2), d.x(weights, -2, 2), d.input(moved, v), graph.None, graph.None}
		if d.yes("bias") {
			in[3] = d.x([]int64{group * m}, -2, 2)
		}
		if d.yes("mask") {
			in[4] = d.x(points, 0, 1)
		}
		d.give(o, in...)
	},
}

// differentiate returns the gradients of a sum of the results of an operator, by the operands whose gradients are wanted.
func differentiate(t *testing.T, op graph.Op, types []graph.TensorType, values [][]float64, wanted ...int) ([][]float64, error) {
	t.Helper()
	b := graph.NewBuilder("test")
	main := b.BeginGraph("main")
	given := map[graph.TensorID][]byte{}
	var in, required []graph.TensorID
	for i, v := range values {
		x := b.AddLocal("operand", types[i])
		in = append(in, x)
		if given[x] = encode(graph.F64, v); types[i].DType == graph.I64 {
			given[x] = nil
			for _, v := range v {
				given[x] = binary.LittleEndian.AppendUint64(given[x], uint64(int64(v)))
			}
		}
	}
	for _, i := range wanted {
		required = append(required, in[i])
	}
	out, err := b.Node(op, "node", in...)
	require.NoError(t, err)
	e, err := b.Finish()
	require.NoError(t, err)
	info, err := autodiff.Backward(e, main, autodiff.Options{Provided: out[:1], Required: required})
	if err != nil {
		return nil, err
	}
	given[info.Inputs[0].Tensor] = encode(graph.F64, slices.Repeat([]float64{1}, int(e.Tensors[out[0]].Type.Elements())))
	p := newInterpreter(e, given)
	require.NoError(t, p.run(main))
	require.NoError(t, p.run(info.Graph))
	var grads [][]float64
	for _, l := range info.Outputs {
		grads = append(grads, decode(graph.F64, p.values[l.Tensor]))
	}
	return grads, nil
}

// TestRegionKinks: where derivatives jump, one side is taken, and what is sampled nowhere has no gradient.
func TestRegionKinks(t *testing.T) {
	one := []int64{1, 1}
	image, box := f64(1, 1, 2, 2), f64(1, 4)
	number := graph.TensorType{DType: graph.I64, Shape: []int64{1}}
	for _, c := range []struct {
		name   string
		op     graph.Op
		types  []graph.TensorType
		values [][]float64
		wanted []int
		want   [][]float64
	}{
		{"the first of equal maxima", &graph.MaxRoiPool{Height: 1, Width: 1, SpatialScale: 1},
			[]graph.TensorType{image, f64(1, 5)}, [][]float64{{1, 3, 3, 3}, {0, 0, 0, 1, 1}}, []int{0}, [][]float64{{0, 1, 0, 0}}},
		{"a cell without elements", &graph.MaxRoiPool{Height: 1, Width: 1, SpatialScale: 1},
			[]graph.TensorType{image, f64(1, 5)}, [][]float64{{1, 2, 3, 4}, {0, 5, 5, 6, 6}}, []int{0}, [][]float64{{0, 0, 0, 0}}},
		{"the zero beyond is the maximum", &graph.RoiAlign{Mode: graph.RoiMax, Height: 1, Width: 1, SamplingRatio: 2, SpatialScale: 1},
			[]graph.TensorType{image, box, number}, [][]float64{{-1, -2, -3, -4}, {-2.5, -2.5, 1.5, 1.5}, {0}}, []int{0, 1}, [][]float64{{0, 0, 0, 0}, {0, 0, 0, 0}}},
		{"the first of equal samples", &graph.RoiAlign{Mode: graph.RoiMax, Height: 1, Width: 1, SamplingRatio: 1, SpatialScale: 1},
			[]graph.TensorType{image, box, number}, [][]float64{{2, 2, 2, 2}, {0, 0, 1, 1}, {0}}, []int{0}, [][]float64{{0.25, 0, 0, 0}}},
		{"a region smaller than an element", &graph.RoiAlign{Mode: graph.RoiAverage, Height: 1, Width: 1, SamplingRatio: 1, SpatialScale: 1},
			[]graph.TensorType{image, box, number}, [][]float64{{0, 1, 2, 3}, {0, 0, 0.5, 0.5}, {0}}, []int{1}, [][]float64{{1, 2, 0, 0}}},
		// As torchvision's deform_conv2d: differences to the next elements, and nothing at -1, which is not sampled.
		{"offsets of zero", &graph.DeformConv{Strides: one, Dilations: one, PadsBegin: one, PadsEnd: []int64{0, 0}, Group: 1, OffsetGroup: 1},
			[]graph.TensorType{image, f64(1, 1, 1, 1), f64(1, 2, 3, 3)}, [][]float64{{1, 2, 4, 8}, {1}, make([]float64, 18)}, []int{0, 2},
			[][]float64{{1, 1, 1, 1}, {0, 0, 0, 0, 3, 6, 0, -4, -8, 0, 0, 0, 0, 1, -2, 0, 4, -8}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := differentiate(t, c.op, c.types, c.values, c.wanted...)
			require.NoError(t, err)
			require.Equal(t, len(c.want), len(got))
			for i := range got {
				require.InDeltaSlice(t, c.want[i], got[i], 1e-12)
			}
		})
	}
}

// TestRegionsWithoutGradient has gradients that do not exist.
func TestRegionsWithoutGradient(t *testing.T) {
	image, box, number := f64(1, 1, 2, 2), f64(1, 4), graph.TensorType{DType: graph.I64, Shape: []int64{1}}
	align := func(mode graph.RoiMode) *graph.RoiAlignGradient {
		return &graph.RoiAlignGradient{Mode: mode, Height: 1, Width: 1, SpatialScale: 1}
	}
	operands := [][]float64{make([]float64, 4), make([]float64, 4), {0}, {1}}
	_, err := differentiate(t, &graph.MaxRoiPool{Height: 1, Width: 1, SpatialScale: 1}, []graph.TensorType{image, f64(1, 5)}, [][]float64{make([]float64, 4), make([]float64, 5)}, 1)
	require.ErrorContains(t, err, `goes through node "node" (MaxRoiPool), whose gradient is zero`)
	_, err = differentiate(t, align(graph.RoiMax), []graph.TensorType{image, box, number, f64(1, 1, 1, 1)}, operands, 3)
	require.ErrorContains(t, err, "gradients of the gradient of RoiAlign are computed for the mode avg, not for max")

	b := graph.NewBuilder("test")
	main := b.BeginGraph("main")
	var in []graph.TensorID
	for _, t := range []graph.TensorType{image, box, number, f64(1, 1, 1, 1)} {
		in = append(in, b.AddLocal("operand", t))
	}
	out, err := b.Node(align(graph.RoiAverage), "node", in...)
	require.NoError(t, err)
	e, err := b.Finish()
	require.NoError(t, err)
	_, err = autodiff.Backward(e, main, autodiff.Options{Provided: out[1:], Required: in[3:]})
	require.ErrorContains(t, err, "the gradient that RoiAlign gives its regions has none")
}
