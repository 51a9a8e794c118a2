package genrt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// textFamily is that of a text model of 16 sizes, with two inputs and an output.
func textFamily(t testing.TB) (*fitting, []View) {
	axis := func(d int) family.Axis { return family.Axis{Dim: d, Mul: 1, Div: 1} }
	f := &family.Family{Dims: []family.Dim{{Name: "batch", Rows: true}, {Name: "seq", Rows: true}}}
	tokens := family.Tensor{Name: "tokens", Type: popef.Input, Elem: popef.S64, Axes: []family.Axis{axis(0), axis(1)}}
	hidden := family.Tensor{Name: "hidden", Type: popef.Output, Elem: popef.F32, Axes: []family.Axis{axis(0), axis(1), {Size: 128, Dim: -1}}}
	for _, batch := range []int64{1, 4, 16, 64} {
		for _, seq := range []int64{16, 32, 64, 128} {
			f.Members = append(f.Members, family.Member{Sizes: []int64{batch, seq}, Cost: float64(batch * seq)})
			for i, n := range []int64{batch, seq} {
				tokens.Axes[i].Sizes = append(tokens.Axes[i].Sizes, n)
				hidden.Axes[i].Sizes = append(hidden.Axes[i].Sizes, n)
			}
		}
	}
	mask := tokens
	mask.Name = "mask"
	f.Tensors = []family.Tensor{tokens, mask, hidden}
	open := []OpenAxis{{Axis: 0, Name: "Batch"}, {Axis: 1, Name: "Seq"}}
	fit, _, err := fit(&Spec{Anchors: []AnchorSpec{
		{Name: "tokens", GoName: "Tokens", Role: RunInput, Bytes: 8, Open: open},
		{Name: "mask", GoName: "Mask", Role: RunInput, Bytes: 8, Open: open},
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
	a, b, c := &input{[2]int{3, 50}, make([]int64, 150)}, &input{[2]int{3, 50}, make([]int64, 150)}, &output{}
	return fit, []View{Open(&a.sizes[0], &a.data), Open(&b.sizes[0], &b.data), Open(&c.sizes[0], &c.data)}
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
	require.Equal(t, []int{3, 50}, []int{*views[2].size(0), *views[2].size(1)})
	n, _ := views[2].elements()
	require.Equal(t, 150, n)
}

// BenchmarkFit is what a request costs before it runs.
func BenchmarkFit(b *testing.B) {
	f, views := textFamily(b)
	var a ask
	b.Run("choose", func(b *testing.B) {
		for b.Loop() {
			if err := f.choose(views, &a); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("choose and prepare", func(b *testing.B) {
		for b.Loop() {
			if err := f.choose(views, &a); err != nil {
				b.Fatal(err)
			}
			f.prepare(views, &a)
		}
	})
}
