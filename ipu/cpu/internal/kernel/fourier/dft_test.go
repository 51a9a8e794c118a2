package fourier

import (
	"math"
	"math/cmplx"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestFFT compares with the definition, for products of small primes, great
// primes and lengths that have both.
func TestFFT(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 31, 32, 36, 37, 60, 64, 74, 77, 97, 100, 128, 210, 211, 256, 331, 400, 512} {
		f := newFFT(n)
		r := kerneltest.Seeded(uint64(n))
		x := make([]complex128, n)
		for i := range x {
			x[i] = complex(r.Float64()-0.5, r.Float64()-0.5)
		}
		want := make([]complex128, n)
		for k := range want {
			for i, v := range x {
				want[k] += v * cmplx.Exp(complex(0, -2*math.Pi*float64(i*k%n)/float64(n)))
			}
		}
		f.transform(x, make([]complex128, f.scratch()))
		for k := range want {
			require.InDelta(t, 0, cmplx.Abs(x[k]-want[k]), 1e-12*float64(n), "n %d, frequency %d", n, k)
		}
	}
}

func TestDFT(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]graph.DType{graph.F32, graph.F64, graph.F16}).Draw(t, "type")
		parts := rapid.Int64Range(1, 2).Draw(t, "parts")
		x := graph.TensorType{DType: d, Shape: append(kerneltest.DrawShape(t, 1), parts)}
		o := &graph.DFT{
			Axis: rapid.Int64Range(0, int64(len(x.Shape)-2)).Draw(t, "axis"), Length: rapid.Int64Range(1, 20).Draw(t, "length"),
			Inverse: rapid.Bool().Draw(t, "inverse"), OneSided: rapid.Bool().Draw(t, "one-sided"),
		}
		data := (&kerneltest.Source{R: kerneltest.DrawSource(t).R}).Tensor(x)
		out, got := run(t, o, []graph.TensorType{x}, [][]byte{data})
		v := kerneltest.Values(x, data)
		n, from := int(o.Length), int(x.Shape[o.Axis])
		if o.Inverse && o.OneSided {
			from = min(from, n/2+1)
		}
		want := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			k, part := int(at[o.Axis]), at[len(at)-1]
			sum := complex128(0)
			value := func(i int) complex128 {
				c := append([]int64(nil), at...)
				c[o.Axis], c[len(c)-1] = int64(i), 0
				p := kerneltest.Flatten(x.Shape, c)
				if parts == 1 {
					return complex(v[p], 0)
				}
				return complex(v[p], v[p+1])
			}
			for i := range n {
				y := complex128(0)
				switch {
				case i < from && (i < n || !o.OneSided):
					y = value(i)
				case o.Inverse && o.OneSided && n-i < from && n-i > 0:
					y = cmplx.Conj(value(n - i))
				}
				if o.Inverse && o.OneSided && (i == 0 || 2*i == n) {
					y = complex(real(y), 0)
				}
				angle := -2 * math.Pi * float64(i*k%n) / float64(n)
				if o.Inverse {
					angle = -angle
					y /= complex(float64(n), 0)
				}
				sum += y * cmplx.Exp(complex(0, angle))
			}
			want[flat] = kerneltest.Wanted{Value: real(sum), Size: 8}
			if part == 1 {
				want[flat].Value = imag(sum)
			}
		})
		kerneltest.CompareSums(t, o, out[0], got[0], want)
	})
}
