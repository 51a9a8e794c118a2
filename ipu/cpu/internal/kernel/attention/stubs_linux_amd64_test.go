package attention

import (
	"fmt"
	"math"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestStubs runs the loops by themselves, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	const panel = 32
	s.Each(func(set kerneltest.Set) {
		call := softmaxColumnsAVX2
		if set.Wide() {
			call = softmaxColumnsAVX512
		}
		for n := 1; n <= 2*4+3; n++ { // rows, four at a time
			s.Run("softmaxColumns"+set.Name, func(m *kerneltest.Guarded) {
				x := m.Whole((n-1)*panel + set.Lanes)
				const floor = -1
				ceiling := 0.25 + m.Float32()
				want := make([]float64, len(x))
				for i, v := range x {
					want[i] = float64(v) // what is between columns stays
				}
				for c := range set.Lanes {
					peak, total := float64(floor), 0.
					for r := range n {
						peak = max(peak, float64(x[panel*r+c]))
					}
					for r := range n {
						want[panel*r+c] = math.Exp(float64(x[panel*r+c]) - peak)
						total += want[panel*r+c]
					}
					for r := range n {
						want[panel*r+c] *= min(1/total, float64(ceiling))
					}
				}
				call(&x[0], n, floor, ceiling)
				kerneltest.Near(m, fmt.Sprintf("softmaxColumns%s of %d rows", set.Name, n), x, want)
			})
		}
	})
	s.Finish()
}
