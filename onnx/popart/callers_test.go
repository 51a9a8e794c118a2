package popart_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/popefgen/popefgen/onnx/popart"
)

// TestCallers runs one session from several goroutines, each with data of its own: all get their results, while others read weights.
func TestCallers(t *testing.T) {
	s := prepared(t, popart.DataFlow{2, popart.Anchors{"y": popart.All}}, nil)
	var all sync.WaitGroup
	for caller := range 4 {
		all.Go(func() {
			x, out := make([]float32, 12), s.InitAnchorArrays()
			for i := range 20 {
				for k := range x {
					x[k] = float32(100*caller + i + k)
				}
				assert.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(x)}, out)))
				for k, y := range popart.In[float32](out["y"]) {
					assert.Equal(t, 2*x[k], y)
				}
				_, err := s.ReadWeights()
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
}
