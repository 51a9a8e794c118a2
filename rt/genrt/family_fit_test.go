package genrt

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
)

// drawFamily draws a family and what a package knows of it: inputs of one to four open axes, in any order of the
// dimensions, some of which follow from a dimension by a rule, and outputs.
func drawFamily(t *rapid.T) (*Spec, *family.Family) {
	dims := rapid.IntRange(1, 4).Draw(t, "dims")
	f, spec := &family.Family{}, &Spec{}
	for d := range dims {
		f.Dims = append(f.Dims, family.Dim{Name: fmt.Sprint("d", d), Rows: rapid.Bool().Draw(t, "rows")})
	}
	one := rapid.SliceOfN(rapid.Int64Range(1, 6), dims, dims)
	for _, s := range rapid.SliceOfNDistinct(one, 1, 6, func(s []int64) string { return fmt.Sprint(s) }).Draw(t, "members") {
		f.Members = append(f.Members, family.Member{Sizes: s})
	}
	tensor := func(typ popef.TensorType, role Role, axes []family.Axis) {
		name := fmt.Sprint("t", len(f.Tensors))
		a := AnchorSpec{Name: name, GoName: name, Role: role, Bytes: 4}
		for i := range axes {
			for m := range f.Members {
				axes[i].Sizes = append(axes[i].Sizes, axes[i].At(f.Members[m].Sizes[axes[i].Dim]))
			}
			a.Open = append(a.Open, OpenAxis{Axis: i, Name: fmt.Sprint("F", axes[i].Dim, axes[i].Mul, axes[i].Add)})
		}
		f.Tensors = append(f.Tensors, family.Tensor{Name: name, Type: typ, Elem: popef.F32, Axes: axes})
		spec.Anchors = append(spec.Anchors, a)
	}
	axis := func(derived bool) family.Axis {
		a := family.Axis{Dim: rapid.IntRange(0, dims-1).Draw(t, "dim"), Mul: 1, Div: 1}
		if derived && rapid.IntRange(0, 3).Draw(t, "rule") == 0 {
			a.Mul, a.Add = 2, 1
		}
		return a
	}
	all := make([]family.Axis, dims) // by which every dimension is given
	for d := range all {
		all[d] = family.Axis{Dim: d, Mul: 1, Div: 1}
	}
	tensor(popef.Input, RunInput, rapid.Permutation(all).Draw(t, "order"))
	derived := rapid.Bool().Draw(t, "derived")
	for range rapid.IntRange(0, 3).Draw(t, "inputs") {
		axes := make([]family.Axis, rapid.IntRange(1, 4).Draw(t, "axes"))
		for i := range axes {
			axes[i] = axis(derived)
		}
		tensor(popef.Input, RunInput, axes)
	}
	tensor(popef.Output, RunOutput, []family.Axis{axis(true), axis(true)})
	return spec, f
}

// TestQuickAndSlowAgree asks for sizes that fit, and for some that are wrong in one place: the check that has
// no calls says the same as the one that says what is wrong, which says the same as a look at every tensor.
func TestQuickAndSlowAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec, of := drawFamily(t)
		fit, _, err := fit(spec, of)
		require.NoError(t, err)
		wanted := make([]int, len(of.Dims))
		near, mixed := rapid.SampledFrom(of.Members).Draw(t, "near"), rapid.Bool().Draw(t, "mixed")
		for d := range wanted {
			if wanted[d] = int(near.Sizes[d]); mixed {
				wanted[d] = int(rapid.SampledFrom(of.Members).Draw(t, "of").Sizes[d]) + rapid.SampledFrom([]int{0, 0, 0, -1, 1, -9}).Draw(t, "less")
			}
		}
		mistake := rapid.SampledFrom([]string{"none", "size", "length"}).Draw(t, "mistake")
		where, field := rapid.IntRange(0, fit.inputs-1).Draw(t, "in"), rapid.IntRange(0, 3).Draw(t, "field")
		by := rapid.SampledFrom([]int{1, -1}).Draw(t, "by")
		right := true
		var views []View
		for i := range fit.tensors {
			x := &fit.tensors[i]
			own := &struct {
				sizes [8]int
				data  [][4]byte
			}{}
			v := Open(&own.sizes[0], &own.data)
			for k := range x.fields {
				*v.size(k) = int(x.fields[k].axis.At(int64(wanted[x.fields[k].axis.Dim])))
				if mistake == "size" && i == where && k == field%len(x.fields) {
					*v.size(k) += by
				}
			}
			n := max(0, x.now(&v))
			if mistake == "length" && i == where {
				n = max(0, n+by)
			}
			own.data = make([][4]byte, n)
			views = append(views, v)
			// What the sizes should be: those that the fields of the first input give.
			for k := range x.fields {
				if a := x.fields[k].axis; i == 0 {
					wanted[a.Dim] = *v.size(k)
				} else if i < fit.inputs && *v.size(k) != int(a.At(int64(wanted[a.Dim]))) {
					right = false
				}
			}
			right = right && (i >= fit.inputs || n == x.now(&v))
		}
		member, exact := fit.table.Choose(wanted)
		var q, s, c ask
		err = fit.slow(views, &s)
		require.Equal(t, right && member >= 0, err == nil, "%v: %v", wanted, err)
		if err != nil {
			require.ErrorIs(t, err, rt.ErrSize)
		}
		if !fit.derived {
			require.Equal(t, err == nil, fit.quick(views, &q), "%v", err)
		}
		require.Equal(t, err == nil, fit.choose(views, &c) == nil)
		if err != nil {
			return
		}
		require.Equal(t, []any{member, exact}, []any{s.member, s.exact})
		require.Equal(t, s, c)
		fit.prepare(views, &c)
		for i := fit.inputs; i < len(views); i++ {
			x, n := &fit.tensors[i], 1
			for _, k := range x.axes {
				a := x.fields[k].axis
				require.EqualValues(t, a.At(int64(wanted[a.Dim])), *views[i].size(k))
				n *= *views[i].size(k)
			}
			length, room := views[i].elements()
			require.Equal(t, n, length)
			require.GreaterOrEqual(t, room, length)
		}
	})
}
