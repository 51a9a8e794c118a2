package update

import (
	"fmt"
	"math"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestNumbersLieApart: the assembly knows how far.
func TestNumbersLieApart(t *testing.T) {
	kerneltest.SameInAssembly(t, "updateNumberBytes", 4*blockLen)
}

// TestStubs runs every loop by itself, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Each(func(set kerneltest.Set) {
		for n := 1; n <= 2*set.Lanes+3; n++ {
			for _, decoupled := range []bool{false, true} {
				name, call := "adam", adamAVX2
				switch {
				case decoupled && set.Wide():
					name, call = "adamDecoupled", adamDecoupledAVX512
				case decoupled:
					name, call = "adamDecoupled", adamDecoupledAVX2
				case set.Wide():
					call = adamAVX512
				}
				s.Run(name+set.Name, func(m *kerneltest.Guarded) { stubAdam(m, name+set.Name, call, decoupled, n) })
			}
		}
	})
	s.Finish()
}

func stubAdam(m *kerneltest.Guarded, name string, call func(dst, newFirst, newSecond, w, g, m, v, numbers *float32, n int), decoupled bool, n int) {
	number := []float32{numFactor: 0.5, numRate: 0.1, numDecay: 0.3, numFirst: 0.9, numFirstRest: 0.1, numSecond: 0.99, numSecondRest: 0.01, numEps: 1e-3, numFirstBias: 1.5, numSecondBias: 1.25}
	var all []float32
	for _, v := range number {
		for range blockLen {
			all = append(all, v)
		}
	}
	numbers := kerneltest.At(m, all)
	w, g, first, second := m.Whole(n), m.Whole(n), m.Whole(n), m.Whole(n)
	dst, want := m.Unset(n)
	newFirst, wantFirst := m.Unset(n)
	newSecond, wantSecond := m.Unset(n)
	for i := range n {
		second[i] = float32(math.Abs(float64(second[i])))
		d := float32(g[i] * number[numFactor])
		wantSecond[i] = float32(second[i]*number[numSecond]) + float32(float32(d*d)*number[numSecondRest])
		wantFirst[i] = float32(first[i]*number[numFirst]) + float32(d*number[numFirstRest])
		x := float32(wantFirst[i]*number[numFirstBias]) / (float32(math.Sqrt(float64(float32(wantSecond[i]*number[numSecondBias])))) + number[numEps])
		if decoupled {
			x += float32(w[i] * number[numDecay])
		}
		want[i] = w[i] - float32(x*number[numRate])
	}
	call(&dst[0], &newFirst[0], &newSecond[0], &w[0], &g[0], &first[0], &second[0], &numbers[0], n)
	what := fmt.Sprintf("%s of %d elements", name, n)
	kerneltest.Same(m, what, dst, want)
	kerneltest.Same(m, what+": first moment", newFirst, wantFirst)
	kerneltest.Same(m, what+": second moment", newSecond, wantSecond)
}
