package genrt

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// textFamily is that of a text model of eight sizes, with three inputs and an output.
func textFamily(t testing.TB) (*fitting, []View) {
	axis := func(d int) family.Axis { return family.Axis{Dim: d, Mul: 1, Div: 1} }
	f := &family.Family{Dims: []family.Dim{{Name: "batch", Rows: true}, {Name: "seq", Rows: true}}}
	tokens := family.Tensor{Name: "tokens", Type: popef.Input, Elem: popef.S64, Axes: []family.Axis{axis(0), axis(1)}}
	hidden := family.Tensor{Name: "hidden", Type: popef.Output, Elem: popef.F32, Axes: []family.Axis{axis(0), axis(1), {Size: 128, Dim: -1}}}
	for _, batch := range []int64{1, 4} {
		for _, seq := range []int64{16, 32, 64, 128} {
			f.Members = append(f.Members, family.Member{Sizes: []int64{batch, seq}, Cost: float64(batch * seq)})
			for i, n := range []int64{batch, seq} {
				tokens.Axes[i].Sizes = append(tokens.Axes[i].Sizes, n)
				hidden.Axes[i].Sizes = append(hidden.Axes[i].Sizes, n)
			}
		}
	}
	mask, segments := tokens, tokens
	mask.Name, segments.Name = "mask", "segments"
	f.Tensors = []family.Tensor{tokens, mask, segments, hidden}
	open := []OpenAxis{{Axis: 0, Name: "Batch"}, {Axis: 1, Name: "Seq"}}
	fit, _, err := fit(&Spec{Anchors: []AnchorSpec{
		{Name: "tokens", GoName: "Tokens", Role: RunInput, Bytes: 8, Open: open},
		{Name: "mask", GoName: "Mask", Role: RunInput, Bytes: 8, Open: open},
		{Name: "segments", GoName: "Segments", Role: RunInput, Bytes: 8, Open: open},
		{Name: "hidden", GoName: "Hidden", Role: RunOutput, Bytes: 512, Open: open},
	}}, f)
	require.NoError(t, err)
	type input struct {
		sizes [2]int
		data  []int64
	}
	type output struct {
		sizes [2]int
		data  [][128]float32
	}
	var views []View
	for range fit.inputs {
		in := &input{[2]int{3, 50}, make([]int64, 150)}
		views = append(views, Open(&in.sizes[0], &in.data))
	}
	out := &output{}
	return fit, append(views, Open(&out.sizes[0], &out.data))
}

// TestChoosingAllocatesNothing finds the member of a request that is smaller than it, and gives the outputs
// their sizes.
func TestChoosingAllocatesNothing(t *testing.T) {
	f, views := textFamily(t)
	var a ask
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := f.choose(views, &a); err != nil {
			t.Fatal(err)
		}
		f.prepare(views, &a)
	}))
	require.Equal(t, []int{4, 64}, f.table.Of(a.member))
	require.False(t, a.exact)
	require.Equal(t, []int{3, 50}, []int{*views[3].size(0), *views[3].size(1)})
	n, _ := views[3].elements()
	require.Equal(t, 150, n)
}

// BenchmarkFit is what a request costs before it runs: a family of eight members in two dimensions, three inputs.
// The least of many short turns is what it takes while nobody else has the processor.
func BenchmarkFit(b *testing.B) {
	f, views := textFamily(b)
	least := func(b *testing.B, fits func() error) {
		const turn = 500
		best := math.Inf(1)
		b.ReportAllocs()
		for b.Loop() {
			begun := time.Now()
			for range turn {
				if err := fits(); err != nil {
					b.Fatal(err)
				}
			}
			best = min(best, float64(time.Since(begun))/turn)
		}
		b.ReportMetric(best, "ns/request")
	}
	for _, c := range []struct {
		name       string
		batch, seq int
	}{{"exact", 4, 64}, {"smaller", 3, 50}} {
		for i := range f.inputs {
			*views[i].size(0), *views[i].size(1) = c.batch, c.seq
			views[i].resize(c.batch*c.seq, c.batch*c.seq, 8)
		}
		b.Run(c.name, func(b *testing.B) {
			least(b, func() error {
				var a ask
				return f.choose(views, &a)
			})
		})
		b.Run(c.name+" and its outputs", func(b *testing.B) {
			least(b, func() error {
				var a ask
				err := f.choose(views, &a)
				f.prepare(views, &a)
				return err
			})
		})
	}
}
