package page

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
)

const (
	maxWeights = 100 // weights that a page shows one by one
	histBins   = 40
)

// weight is a weight with what its elements look like.
type weight struct {
	Name, Type, Where   string
	Bytes               int64
	Size                string
	Bar                 float64 // of the largest, 0 to 100
	Min, Max, Mean, Dev string
	Zeros, Odd          string
	Hist                template.HTML
	Mark, Note          string
	data                []byte
	dtype               graph.DType
	tensor              graph.TensorType
}

// dtypes are the types of elements in the terms of package graph.
var dtypes = map[popef.DataType]graph.DType{
	popef.Bool: graph.Bool, popef.S8: graph.I8, popef.U8: graph.U8, popef.S16: graph.I16, popef.U16: graph.U16, popef.S32: graph.I32,
	popef.U32: graph.U32, popef.S64: graph.I64, popef.U64: graph.U64, popef.F16: graph.F16, popef.F32: graph.F32, popef.F64: graph.F64,
	popef.F8143: graph.F8E4M3, popef.F8152: graph.F8E5M2,
}

// weightsOf lists the weights of a model, the largest first: constants of its
// executable and tensor data of its files. exe is nil if it is not portable.
func weightsOf(m *popef.Model, exe *graph.Executable) ([]weight, error) {
	var all []weight
	loads := map[string]graph.TensorType{} // by stream handle
	if exe != nil {
		for i := range exe.Streams {
			loads[exe.Streams[i].Handle] = exe.Streams[i].Type
		}
		for i := range exe.Tensors {
			if t := &exe.Tensors[i]; t.Const && len(t.Data) > 0 {
				all = append(all, weight{Name: t.Name, Where: "constant", Bytes: int64(len(t.Data)), data: t.Data, dtype: t.Type.DType, tensor: t.Type})
			}
		}
	}
	seen := map[string]bool{}
	for _, a := range m.Metadata.Anchors {
		b, ok := m.Data(a.Name)
		if !ok || b.Kind != popef.TensorBlob || !a.Type.TakesData() || seen[a.Name] {
			continue
		}
		seen[a.Name] = true
		data, err := m.ReadTensor(a.Name)
		if err != nil {
			return nil, err
		}
		w := weight{Name: a.Name, Where: "tensor data", Bytes: int64(len(data)), data: data, dtype: dtypes[a.Info.DataType]}
		w.tensor = graph.TensorType{DType: w.dtype, Shape: a.Info.Shape}
		if t, ok := loads[a.Handle]; ok { // bfloat16 is U16 in PopEF's terms
			w.tensor, w.dtype = t, t.DType
		}
		all = append(all, w)
	}
	slices.SortStableFunc(all, func(a, b weight) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Name, b.Name))
	})
	for i := range all {
		w := &all[i]
		w.Type, w.Size = w.tensor.String(), bytesText(w.Bytes)
		w.Bar = float64(w.Bytes) / float64(all[0].Bytes) * 100
		if i < maxWeights {
			w.describe()
		}
	}
	return all, nil
}

// describe computes the weight's figures and its histogram.
func (w *weight) describe() {
	n, finite, zeros := 0, 0, 0
	lo, hi, mean, square := math.Inf(1), math.Inf(-1), 0.0, 0.0
	elements(w.dtype, w.data, func(v float64) {
		n++
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
		finite++
		if v == 0 {
			zeros++
		}
		lo, hi = min(lo, v), max(hi, v)
		// Welford's update: sums of squares would lose small deviations.
		d := v - mean
		mean += d / float64(finite)
		square += d * (v - mean)
	})
	if n == 0 {
		return
	}
	if finite < n {
		w.Odd = fmt.Sprintf("%d of %d are NaN or infinite", n-finite, n)
	}
	if finite == 0 {
		return
	}
	g := func(v float64) string { return fmt.Sprintf("%.3g", v) }
	w.Min, w.Max, w.Mean, w.Dev = g(lo), g(hi), g(mean), g(math.Sqrt(square/float64(finite)))
	w.Zeros = fmt.Sprintf("%.3g %%", 100*float64(zeros)/float64(n))
	var counts [histBins]int
	elements(w.dtype, w.data, func(v float64) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			counts[bin(v, lo, hi)]++
		}
	})
	w.Hist = histogram(counts[:], "from "+w.Min+" to "+w.Max)
}

// bin returns the bin of a value. Halves keep the range of float64 finite.
func bin(v, lo, hi float64) int {
	if hi <= lo {
		return histBins / 2
	}
	return min(histBins-1, max(0, int((v/2-lo/2)/(hi/2-lo/2)*histBins)))
}

func histogram(counts []int, what string) template.HTML {
	const width, height = 4, 34
	most := max(1, slices.Max(counts))
	var s strings.Builder
	fmt.Fprintf(&s, "<svg class=\"hist\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"%s\"><path d=\"", width*len(counts), height, width*len(counts), height,
		text("histogram "+what))
	for i, c := range counts {
		if c > 0 {
			h := max(1, round(float64(height-1)*float64(c)/float64(most)))
			fmt.Fprintf(&s, "M%d,%dv-%sh3v%sz", i*width, height-1, px(h), px(h))
		}
	}
	fmt.Fprintf(&s, "\"/><path class=\"base\" d=\"M0,%d.5H%d\"/></svg>", height-1, width*len(counts))
	return trusted(s.String())
}

// elements decodes row-major little-endian data.
func elements(t graph.DType, data []byte, visit func(float64)) {
	size := t.Size()
	if size == 0 {
		return
	}
	for ; len(data) >= size; data = data[size:] {
		visit(graph.Number(t, data))
	}
}
