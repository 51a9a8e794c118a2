package popart_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/popart"
)

// noisy is y = x + noise, of 8 numbers that follow from the session's seed, with a weight.
func noisy() popart.Model {
	return popart.ONNX(onnxtest.Model(13, &onnx.Graph{
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(1), 1), "w")},
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 8)},
		Nodes: []*onnx.Node{
			onnxtest.Node("RandomNormalLike", onnxtest.Names("x"), onnxtest.Names("noise")),
			onnxtest.Node("Mul", onnxtest.Names("x", "w"), onnxtest.Names("xw")),
			onnxtest.Node("Add", onnxtest.Names("xw", "noise"), onnxtest.Names("y")),
		},
		Outputs: onnxtest.Outputs("y"),
	}))
}

// TestLostDevice has another session take the device before each call that drives it: the results are those of a session that nobody disturbs.
func TestLostDevice(t *testing.T) {
	devices := popart.Devices{Manager: iputest.New(iputest.Config{}).Manager()}
	device, err := devices.IPUModel(t.Context(), ipu.Simulation{NumIPUs: 1})
	require.NoError(t, err)
	defer device.Close()
	thief, err := popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{1, popart.Anchors{"z": popart.All}}, device, shapes, nil)
	require.NoError(t, err)
	defer thief.Close()
	require.NoError(t, thief.PrepareDevice(t.Context()))
	steal := func(of *popart.Device) {
		if of == device {
			out := thief.InitAnchorArrays()
			require.NoError(t, thief.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(count(6))}, out)))
		}
	}

	var learnt, drawn [][]byte // of the session in peace, then of the one that is disturbed
	for _, on := range []*popart.Device{popart.CPU(), device} {
		s, err := popart.NewTrainingSession(t.Context(), dropping(), popart.DataFlow{2, popart.Anchors{"y": popart.All}}, popart.Loss("cost"),
			momentum(0.01), on, nil, nil)
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.PrepareDevice(t.Context()))
		require.NoError(t, s.WeightsFromHost(t.Context()))
		x, out := slices.Repeat([]float32{1}, 128), s.InitAnchorArrays()
		step := func() {
			require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(x)}, out)))
		}
		step()
		steal(on)
		require.NoError(t, s.UpdateOptimizer(t.Context(), momentum(0.002)))
		step()
		steal(on)
		state, err := s.RNGState(t.Context())
		require.NoError(t, err)
		drawn = append(drawn, state)
		step()
		steal(on)
		require.NoError(t, s.SetRNGState(t.Context(), state))
		step()
		steal(on)
		require.NoError(t, s.WeightsFromHost(t.Context()))
		step()
		steal(on)
		require.NoError(t, s.SetRandomSeed(t.Context(), 9))
		step()
		steal(on)
		require.NoError(t, s.WeightsToHost(t.Context()))
		all, err := s.ReadWeights()
		require.NoError(t, err)
		learnt = append(learnt, slices.Concat(all["w"].Data, all["Accl___w"].Data, slices.Clone(out["y"].Data)))

		reader, err := popart.NewInferenceSession(t.Context(), noisy(), popart.DataFlow{1, popart.Anchors{"y": popart.All}}, on, nil, &popart.Options{VariableWeights: true})
		require.NoError(t, err)
		defer reader.Close()
		require.NoError(t, reader.PrepareDevice(t.Context()))
		read := func() {
			out := reader.InitAnchorArrays()
			require.NoError(t, reader.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(x[:8])}, out)))
			learnt[len(learnt)-1] = append(learnt[len(learnt)-1], out["y"].Data...)
		}
		read()
		steal(on)
		require.NoError(t, reader.WriteWeights(t.Context(), map[string]popart.Array{"w": popart.Of([]float32{2})}))
		read()
	}
	require.Equal(t, drawn[0], drawn[1])
	require.Equal(t, learnt[0], learnt[1])
}

// TestSessionsTogether has two training sessions take one device from each other at every call, from goroutines of their own: each learns what it learns alone.
func TestSessionsTogether(t *testing.T) {
	devices := popart.Devices{Manager: iputest.New(iputest.Config{}).Manager()}
	device, err := devices.IPUModel(t.Context(), ipu.Simulation{NumIPUs: 1})
	require.NoError(t, err)
	defer device.Close()
	learn := func(on *popart.Device, rate float32) (learnt []byte) {
		s, err := popart.NewTrainingSession(t.Context(), dropping(), popart.DataFlow{1, popart.Anchors{"cost": popart.All}}, popart.Loss("cost"), momentum(rate), on, nil, nil)
		if !assert.NoError(t, err) {
			return nil
		}
		defer s.Close()
		x, out := slices.Repeat([]float32{1}, 64), s.InitAnchorArrays()
		assert.NoError(t, s.PrepareDevice(t.Context()))
		assert.NoError(t, s.WeightsFromHost(t.Context()))
		for i := range 8 {
			assert.NoError(t, s.UpdateOptimizer(t.Context(), momentum(rate/float32(i+1))))
			assert.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(x)}, out)))
			state, err := s.RNGState(t.Context())
			assert.NoError(t, err)
			assert.NoError(t, s.WeightsToHost(t.Context()))
			all, err := s.ReadWeights()
			assert.NoError(t, err)
			learnt = slices.Concat(learnt, state, all["w"].Data, all["Accl___w"].Data, out["cost"].Data)
		}
		return learnt
	}
	want := [][]byte{learn(popart.CPU(), 0.01), learn(popart.CPU(), 0.02)}
	got := make([][]byte, 2)
	var both sync.WaitGroup
	for i, rate := range []float32{0.01, 0.02} {
		both.Go(func() { got[i] = learn(device, rate) })
	}
	both.Wait()
	require.Equal(t, want, got)
}
