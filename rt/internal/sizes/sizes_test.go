package sizes_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt/internal/sizes"
)

// TestChooseIsTheCheapestThatTakes compares tables of families of any sizes with a look
// at every member.
func TestChooseIsTheCheapestThatTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dims := rapid.IntRange(0, 3).Draw(t, "dims")
		most := rapid.SampledFrom([]int64{9, 100, 1 << 20}).Draw(t, "most")
		f := &family.Family{}
		for i := range dims {
			f.Dims = append(f.Dims, family.Dim{Name: fmt.Sprint(i), Rows: rapid.Bool().Draw(t, "rows")})
		}
		least := make([]int64, dims) // of which an axis that follows from it has something left
		for d := range least {
			add := rapid.Int64Range(-8, 3).Draw(t, "add")
			f.Tensors = append(f.Tensors, family.Tensor{Axes: []family.Axis{{Dim: d, Mul: 2, Add: add, Div: 3}}})
			least[d] = max(1, (1-add)/2)
		}
		all := rapid.SliceOfNDistinct(rapid.SliceOfN(rapid.Int64Range(0, most), dims, dims), 1, 12, func(s []int64) string { return fmt.Sprint(s) }).Draw(t, "members")
		if dims == 0 {
			all = all[:1]
		}
		costs := rapid.Bool().Draw(t, "costs")
		for _, s := range all {
			m := family.Member{Sizes: s}
			if costs {
				m.Cost = float64(rapid.IntRange(1, 5).Draw(t, "cost"))
			}
			f.Members = append(f.Members, m)
		}
		table := sizes.New(f)
		require.Equal(t, len(all), table.Len())
		for range 20 {
			ask := rapid.SliceOfN(rapid.Int64Range(-2, most+2), dims, dims).Draw(t, "ask")
			if rapid.Bool().Draw(t, "near") {
				ask = slices.Clone(rapid.SampledFrom(all).Draw(t, "of"))
				for i := range ask {
					ask[i] -= rapid.Int64Range(0, 1).Draw(t, "less")
				}
			}
			takes := func(m int) bool {
				for d, n := range ask {
					if has := all[m][d]; n != has && (!f.Dims[d].Rows || n > has || n < least[d]) {
						return false
					}
				}
				return true
			}
			cost := func(m int) float64 {
				if costs {
					return f.Members[m].Cost
				}
				v := 1.0
				for _, n := range all[m] {
					v *= float64(n)
				}
				return v
			}
			wanted := make([]int, dims)
			for i, n := range ask {
				wanted[i] = int(n)
			}
			got, exact := table.Choose(wanted)
			if got < 0 {
				for m := range all {
					require.False(t, takes(m), "%v is taken by %v", ask, all[m])
				}
				continue
			}
			require.True(t, takes(got), "%v by %v", ask, all[got])
			require.Equal(t, slices.Equal(ask, all[got]), exact)
			for m := range all {
				if takes(m) && cost(m) < cost(got) {
					t.Fatalf("%v is computed by %v, of cost %v, and %v costs %v", ask, all[got], cost(got), all[m], cost(m))
				}
			}
		}
	})
}

// TestLooseSizesForbidPadding has an output whose size nobody can tell but for the members.
func TestLooseSizesForbidPadding(t *testing.T) {
	f := &family.Family{
		Dims:    []family.Dim{{Name: "batch", Rows: true}, {Name: "seq", Pads: []family.Pad{{Input: "x", Value: "0"}}}},
		Members: []family.Member{{Sizes: []int64{1, 8}}, {Sizes: []int64{4, 8}}, {Sizes: []int64{1, 16}}},
		Tensors: []family.Tensor{{Name: "y", Axes: []family.Axis{{Dim: -1, Sizes: []int64{3, 3, 7}}}}},
	}
	table := sizes.New(f)
	m, exact := table.Choose([]int{3, 8})
	require.Equal(t, 1, m)
	require.False(t, exact)
	m, _ = table.Choose([]int{1, 9})
	require.Equal(t, -1, m)
}

// TestBox pads and cuts tensors of any shape, element by element.
func TestBox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rank := rapid.IntRange(1, 4).Draw(t, "rank")
		elem := rapid.SampledFrom([]int{1, 2, 8}).Draw(t, "elem")
		small, big := make([]int, rank), make([]int, rank)
		n, all := elem, elem
		for i := range rank {
			big[i] = rapid.IntRange(0, 4).Draw(t, "big")
			small[i] = rapid.IntRange(0, big[i]).Draw(t, "small")
			n, all = n*small[i], all*big[i]
		}
		src := make([]byte, n)
		for i := range src {
			src[i] = byte(i + 1)
		}
		var value []byte
		if rapid.Bool().Draw(t, "value") {
			value = rapid.SliceOfN(rapid.Byte(), elem, elem).Draw(t, "bytes")
		}
		b := sizes.NewBox(rank)
		b.Set(small, big, elem)
		padded := make([]byte, all)
		for i := range padded {
			padded[i] = 0xee
		}
		b.Pad(padded, src, value)
		want := make([]byte, 0, all)
		taken := 0
		for i := range all / max(1, elem) {
			inside, rest := true, i
			for d := rank - 1; d >= 0; d-- {
				inside = inside && rest%big[d] < small[d]
				rest /= big[d]
			}
			switch {
			case inside:
				want = append(want, src[taken:taken+elem]...)
				taken += elem
			case value != nil:
				want = append(want, value...)
			default:
				want = append(want, make([]byte, elem)...)
			}
		}
		require.Equal(t, want, padded)
		back := make([]byte, n)
		b.Cut(back, padded)
		require.Equal(t, src, back)
		b.Cut(padded[:n], padded) // in place
		require.Equal(t, src, padded[:n:n])
	})
}

func BenchmarkChoose(b *testing.B) {
	f := &family.Family{Dims: []family.Dim{{Name: "batch", Rows: true}, {Name: "seq", Rows: true}}}
	for _, n := range []int64{1, 4, 16, 64} {
		for _, s := range []int64{16, 32, 64, 128} {
			f.Members = append(f.Members, family.Member{Sizes: []int64{n, s}})
		}
	}
	table, ask := sizes.New(f), []int{3, 17}
	b.ReportAllocs()
	for b.Loop() {
		table.Choose(ask)
	}
}
