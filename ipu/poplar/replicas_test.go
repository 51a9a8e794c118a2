//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/poplar"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// TestReplicasLearn has the two replicas of a popxl.Ir on a device each, which exchange gradients in the middle of a run: what one device asks for ahead of time is not there before the other has given its own. They learn what one
// replica learns from both micro-batches, to the bit.
func TestReplicasLearn(t *testing.T) {
	learnt := func(replicas int, accumulation int64, opts ...popxl.Kind) (w []float32) {
		ir := popxl.New("replicas")
		ir.SetReplicas(replicas)
		ir.SetIterations(3)
		x := popxl.NewInput[float32](ir, "x", 2)
		v := popxl.NewVariable(ir, "v", []float32{1, -1}, 2)
		loss := ops.MSELoss(ops.Mul(x.Load(), v.Tensor()), x.Load())
		out := popxl.NewOutput("loss", loss)
		popxl.Minimize(loss, popxl.Training{Optimizer: optim.NewAdam(), Accumulation: accumulation}, v)
		s, err := popxl.NewSession(t.Context(), ir, opts[0], rt.WithBackend(poplar.Name))
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		w = make([]float32, 2*replicas)
		require.NoError(t, s.In(t.Context(), func() error {
			return s.Run(t.Context(), x.Feed([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}), out.Into(out.Make()))
		}))
		require.NoError(t, s.Variables(t.Context(), v.Into(w)))
		return w
	}
	want := learnt(1, 2, popxl.Hardware)
	require.NotEqual(t, []float32{1, -1}, want)
	for _, nasty := range []string{"", "poison,refuse,extra,delay,discard"} {
		t.Setenv("FAKE_POPLAR_NASTY", nasty)
		require.Equal(t, append(want, want...), learnt(2, 1, popxl.Hardware))
	}
}
