package conv

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestConvOfManyMaps draws convolutions of all forms, in bands and strips that
// are small enough for small images to have several.
func TestConvOfManyMaps(t *testing.T) {
	defer func(band, most int) { bandBytes, mostBandBytes = band, most }(bandBytes, mostBandBytes)
	forms := map[convForm]int{}
	var direct, flat, strips, pairs int
	compare := func(t *rapid.T) {
		bandBytes = rapid.SampledFrom([]int{2 << 10, 8 << 10, 192 << 10}).Draw(t, "band")
		mostBandBytes = rapid.SampledFrom([]int{2, 3}).Draw(t, "most") * bandBytes
		var s kerneltest.Slide
		size := rapid.SampledFrom([]int64{1, 1, 2, 3, 3, 4}).Draw(t, "window")
		stride := rapid.SampledFrom([]int64{1, 1, 2, 2, 3}).Draw(t, "stride")
		dilation := rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, "dilation")
		for axis := range 2 {
			reach := (size-1)*dilation + 1
			begin, end := rapid.Int64Range(0, reach/2).Draw(t, "begin"), rapid.Int64Range(0, reach/2).Draw(t, "end")
			least := max(1, reach-begin-end)
			s.Size = append(s.Size, rapid.Int64Range(least, least+rapid.SampledFrom([]int64{2, 8, 40, 90}).Draw(t, "more")/int64(2-axis)).Draw(t, "size"))
			s.Kernel, s.Strides, s.Dilations = append(s.Kernel, size), append(s.Strides, stride), append(s.Dilations, dilation)
			s.Begin, s.End = append(s.Begin, begin), append(s.End, end)
		}
		c, m := rapid.Int64Range(1, 20).Draw(t, "channels"), rapid.Int64Range(1, 50).Draw(t, "maps")
		if size == 1 {
			c = rapid.SampledFrom([]int64{1, 7, 40, 140}).Draw(t, "channels")
		}
		group := rapid.SampledFrom([]int64{1, 1, 1, 2}).Draw(t, "group")
		// Little work for the plain sums.
		for _, n := range []*int64{&s.Size[0], &m, &c} {
			for s.Size[0]*s.Size[1]*c*m*size*size*group > 1<<21 && *n > size*dilation {
				*n = max(size*dilation, *n/2)
			}
		}
		checkConv(t, graph.F32, s, 1, group, c, m, rapid.Bool().Draw(t, "bias"))

		op := &graph.Conv{Strides: s.Strides, Dilations: s.Dilations, PadsBegin: s.Begin, PadsEnd: s.End, Group: group}
		in := []graph.TensorType{
			{DType: graph.F32, Shape: append([]int64{1, group * c}, s.Size...)},
			{DType: graph.F32, Shape: append([]int64{group * m, c}, s.Kernel...)},
		}
		out, err := op.Infer(in)
		require.NoError(t, err)
		k, err := newKernel(op, in, out)
		require.NoError(t, err)
		if v, ok := k.(*vectorConv); ok {
			forms[v.form]++
			for _, n := range []struct {
				is    bool
				count *int
			}{{v.band.direct, &direct}, {v.band.flat, &flat}, {v.band.width < v.Out[2], &strips}, {v.pairs(), &pairs}} {
				if n.is {
					*n.count++
				}
			}
		}
	}
	kerneltest.CheckPaths(t, compare)
	if tensor.FastestPath() > tensor.PathGo && !testing.Short() { // few draws need not have all forms
		for range 4 { // nor need the first hundred of each path
			if forms[convByMaps]*forms[convByPixels]*direct*flat*strips*pairs == 0 {
				kerneltest.CheckPaths(t, compare)
			}
		}
		require.NotZero(t, forms[convByMaps])
		require.NotZero(t, forms[convByPixels])
		require.NotZero(t, direct)
		require.NotZero(t, flat)
		require.NotZero(t, strips)
		require.NotZero(t, pairs)
	}
}

// TestAssemblyBlock compares the products of a block with those that the writer of
// the assembly has.
func TestAssemblyBlock(t *testing.T) { kerneltest.SameInAssembly(t, "convBlock", convBlock) }
