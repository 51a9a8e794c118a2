package popart_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/popart"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// doubler is y = 2·x, and z = y + w behind it; x has micro-batches of 2 samples of 3 elements.
func doubler() popart.Model {
	return popart.ONNX(onnxtest.Model(13, &onnx.Graph{
		Name:         "doubler",
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(3), 1, 2, 3), "w")},
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "n", 3)},
		Nodes: []*onnx.Node{
			onnxtest.Node("Add", onnxtest.Names("x", "x"), onnxtest.Names("y")),
			onnxtest.Node("Add", onnxtest.Names("y", "w"), onnxtest.Names("z")),
		},
		Outputs: onnxtest.Outputs("z"),
	}))
}

func count(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)
	}
	return out
}

var shapes = popart.Shapes{"x": {2, 3}}

func prepared(t testing.TB, flow popart.DataFlow, o *popart.Options) *popart.InferenceSession {
	t.Helper()
	s, err := popart.NewInferenceSession(t.Context(), doubler(), flow, popart.CPU(), shapes, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.PrepareDevice(t.Context()))
	return s
}

// TestReturnTypes computes every return type for numbers of batches and replicas, of a tensor inside of the model: shapes, and values of inputs
// in the order batch, replica, sample.
// Feature 106.
func TestReturnTypes(t *testing.T) {
	for _, batches := range []int{1, 4} {
		for _, replicas := range []int{1, 2} {
			t.Run(fmt.Sprint(batches, replicas), func(t *testing.T) {
				every := max(1, batches/2)
				for _, how := range []popart.AnchorReturn{popart.All, popart.EveryN(every), popart.Final, popart.Sum} {
					s := prepared(t, popart.DataFlow{batches, popart.Anchors{"y": how}}, &popart.Options{ReplicationFactor: replicas})
					out := s.InitAnchorArrays()
					x := count(6 * batches * replicas)
					require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(x)}, out)))
					step := 6 * replicas
					var want []float32
					var shape []int64
					returned := map[string]int{"ALL": batches, "FINAL": 1, "SUM": 1}[how.String()]
					if returned == 0 {
						returned = batches / every
					}
					for _, n := range []int{returned, replicas} {
						if n > 1 {
							shape = append(shape, int64(n))
						}
					}
					for b := range returned {
						last := (b+1)*(batches/returned) - 1
						for i := range step {
							v := 2 * x[last*step+i]
							if how == popart.Sum {
								v = 0
								for k := range batches {
									v += 2 * x[k*step+i]
								}
							}
							want = append(want, v)
						}
					}
					require.Equal(t, append(shape, 2, 3), out["y"].Shape, how)
					require.Equal(t, want, popart.In[float32](out["y"]), how)
				}
			})
		}
	}
}

// TestDataFlowErrors refuses numbers and names that can't be.
func TestDataFlowErrors(t *testing.T) {
	for text, flow := range map[string]popart.DataFlow{
		"0 batches per step":                 {0, popart.Anchors{"z": popart.All}},
		"-1 batches":                         {-1, popart.Anchors{"z": popart.All}},
		"no anchors":                         {1, nil},
		"N = 0":                              {4, popart.Anchors{"z": popart.EveryN(0)}},
		"N = -2":                             {4, popart.Anchors{"z": popart.EveryN(-2)}},
		"more than the 4":                    {4, popart.Anchors{"z": popart.EveryN(5)}},
		"no factor of the 4":                 {4, popart.Anchors{"z": popart.EveryN(3)}},
		"only EVERYN has an N":               {4, popart.Anchors{"z": {Type: popart.Final.Type, N: 2}}},
		`"zz" is no tensor of the model; di`: {4, popart.Anchors{"zz": popart.All}},
	} {
		_, err := popart.NewInferenceSession(t.Context(), doubler(), flow, popart.CPU(), shapes, nil)
		require.ErrorIs(t, err, popart.ErrDataFlow)
		require.ErrorIs(t, err, popart.ErrPopART)
		require.ErrorContains(t, err, text)
	}
	_, err := popart.AnchorReturnType("FINAL", 2)
	require.ErrorContains(t, err, "has no number")
	_, err = popart.AnchorReturnType("everyn")
	require.ErrorContains(t, err, "want one")
	r, err := popart.AnchorReturnType("EveryN", 3)
	require.NoError(t, err)
	require.Equal(t, popart.EveryN(3), r)
}

// TestArrays checks sizes and types at every run, and wraps only when asked.
// Feature 108.
func TestArrays(t *testing.T) {
	s := prepared(t, popart.DataFlow{4, popart.Anchors{"y": popart.All}}, nil)
	out := s.InitAnchorArrays()
	run := func(in map[string]popart.Array, o ...popart.ArraysOption) error {
		return s.Run(t.Context(), popart.Arrays(in, out, o...))
	}
	require.NoError(t, run(map[string]popart.Array{"x": popart.Of(count(24))}))
	for range 2 { // not in the first run alone
		err := run(map[string]popart.Array{"x": popart.Of(count(12))})
		require.ErrorIs(t, err, popart.ErrSize)
		require.ErrorContains(t, err, `input "x": the array has 12 elements, want 24: 4 batches per step × accumulation 1 × 1 replicas × micro-batch 2 × 3 elements a sample`)
	}
	require.NoError(t, run(map[string]popart.Array{"x": popart.Of(count(12))}, popart.Wrap()))
	require.Equal(t, float32(2*11), popart.In[float32](out["y"])[23])
	require.ErrorIs(t, run(map[string]popart.Array{"x": popart.Of(count(7))}, popart.Wrap()), popart.ErrSize)
	require.ErrorIs(t, run(map[string]popart.Array{"x": popart.Of(make([]int32, 24))}), popart.ErrType)
	require.ErrorContains(t, run(nil), `no array for input "x", want 24 elements`)
	err := run(map[string]popart.Array{"x": popart.Of(count(24)), "xx": popart.Of(count(24))})
	require.ErrorIs(t, err, popart.ErrTensor)
	require.ErrorContains(t, err, `did you mean "x"?`)
}

// TestNarrow narrows INT64 data of an INT32 input, and refuses numbers that do not fit.
func TestNarrow(t *testing.T) {
	m := onnxtest.Model(13, &onnx.Graph{Inputs: []onnx.ValueInfo{onnxtest.Info("i", onnx.Int32, 2)},
		Nodes: []*onnx.Node{onnxtest.Node("Neg", onnxtest.Names("i"), onnxtest.Names("n"))}, Outputs: onnxtest.Outputs("n")})
	s, err := popart.NewInferenceSession(t.Context(), popart.ONNX(m), popart.DataFlow{1, popart.Anchors{"n": popart.All}}, popart.CPU(), nil, nil)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.PrepareDevice(t.Context()))
	out := s.InitAnchorArrays()
	require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"i": popart.Of([]int64{5, -7})}, out)))
	require.Equal(t, []int32{-5, 7}, popart.In[int32](out["n"]))
	err = s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"i": popart.Of([]int64{5, 1 << 31})}, out))
	require.ErrorContains(t, err, "element 1 is 2147483648")
}

// TestCallbacks calls the four functions in order, and wants a buffer unless it asks ahead of time.
// Feature 109.
func TestCallbacks(t *testing.T) {
	s := prepared(t, popart.DataFlow{2, popart.Anchors{"y": popart.All}}, nil)
	var calls []string
	out := make([][]byte, 0, 2)
	n := 0
	io := popart.Callbacks{
		In: func(name string, elements int, prefetch bool) []byte {
			calls = append(calls, fmt.Sprintf("in %s %d", name, elements))
			n++
			return popart.Of(count(6 * n)[6*(n-1):]).Data
		},
		InComplete: func(name string) { calls = append(calls, "done "+name) },
		Out: func(name string, elements int) []byte {
			calls = append(calls, fmt.Sprintf("out %s %d", name, elements))
			out = append(out, make([]byte, 4*elements))
			return out[len(out)-1]
		},
		OutComplete: func(name string) { calls = append(calls, "done "+name) },
	}
	require.NoError(t, s.Run(t.Context(), io))
	round := []string{"in x 6", "done x", "out y 6", "done y"}
	require.Equal(t, append(round, round...), calls)
	require.Equal(t, float32(2*11), popart.In[float32](popart.Array{Type: popef.F32, Data: out[1]})[5])
	io.In = func(string, int, bool) []byte { return nil }
	err := s.Run(t.Context(), io)
	require.ErrorIs(t, err, popart.ErrNilBuffer)
	require.ErrorIs(t, err, popart.ErrRuntime)
	require.ErrorContains(t, err, `input "x"`)
	require.ErrorIs(t, s.Run(t.Context(), popart.Callbacks{}), popart.ErrNilBuffer)
}

// TestInferencePreconditions: what a session wants before it runs, and what it refuses.
// Feature 103.
func TestInferencePreconditions(t *testing.T) {
	flow := popart.DataFlow{1, popart.Anchors{"z": popart.All}}
	s, err := popart.NewInferenceSession(t.Context(), doubler(), flow, popart.CPU(), shapes, &popart.Options{
		EngineOptions: map[string]string{"threads": "1", "target.magic": "7"}, ConvolutionOptions: map[string]string{"partialsType": "half"}})
	require.NoError(t, err)
	require.Equal(t, []string{"target.magic=7", "convolution.partialsType=half"}, s.UnknownOptions())
	in := map[string]popart.Array{"x": popart.Of(count(6))}
	out := s.InitAnchorArrays()
	err = s.Run(t.Context(), popart.Arrays(in, out))
	require.ErrorIs(t, err, popart.ErrNotPrepared)
	require.ErrorIs(t, err, popart.ErrRuntime)
	require.NoError(t, s.PrepareDevice(t.Context()))
	require.NoError(t, s.Run(t.Context(), popart.Arrays(in, out)))
	require.Equal(t, []float32{1, 4, 7, 7, 10, 13}, popart.In[float32](out["z"]))
	w := map[string]popart.Array{"w": popart.Of([]float32{0, 0, 0})}
	require.ErrorIs(t, s.WriteWeights(t.Context(), w), popart.ErrConstantWeights)
	require.Error(t, s.Run(t.Context(), nil))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Run(t.Context(), popart.Arrays(in, out)), popart.ErrClosed)

	_, err = popart.NewInferenceSession(t.Context(), doubler(), flow, popart.CPU(), nil, nil)
	require.ErrorContains(t, err, "--dim n=SIZE")
	v := prepared(t, flow, &popart.Options{VariableWeights: true})
	require.NoError(t, v.WriteWeights(t.Context(), w))
	require.NoError(t, v.Run(t.Context(), popart.Arrays(in, out)))
	require.Equal(t, []float32{0, 2, 4, 6, 8, 10}, popart.In[float32](out["z"]))
	require.ErrorContains(t, v.WriteWeights(t.Context(), map[string]popart.Array{"v": w["w"]}), `no weight "v"`)
}

// TestDevices acquires by number and id, and never runs on a device that is offline.
// Feature 112.
func TestDevices(t *testing.T) {
	var devices popart.Devices
	all, err := devices.Enumerate(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, all)
	_, err = devices.AcquireAvailable(t.Context(), 3)
	require.ErrorContains(t, err, "3 IPUs, want a power of two")
	d, err := devices.AcquireAvailable(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	_, err = devices.AcquireByID(t.Context(), "cpu", 17)
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.ErrorContains(t, err, "17")
	devices.Connection = popart.ConnectNever
	d, err = devices.AcquireByID(t.Context(), "cpu", 0)
	require.NoError(t, err)
	s, err := popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{1, popart.Anchors{"z": popart.All}}, d, shapes, nil)
	require.NoError(t, err)
	defer s.Close()
	require.ErrorIs(t, s.PrepareDevice(t.Context()), popart.ErrOffline)
}

// TestSimulated runs a session on simulated devices, of a test system and of the CPU. The latter refuses what its tiles have no room for, and more replicas than it has IPUs.
// Feature 112.
func TestSimulated(t *testing.T) {
	session := func(d *popart.Device, o *popart.Options) *popart.InferenceSession {
		s, err := popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{1, popart.Anchors{"z": popart.All}}, d, shapes, o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	sys := iputest.New(iputest.Config{})
	for _, devices := range []popart.Devices{{Manager: sys.Manager()}, {}} {
		d, err := devices.IPUModel(t.Context(), ipu.Simulation{NumIPUs: 1, Version: 21})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		require.Equal(t, "ipu_model", d.Info().Kind)
		require.Equal(t, 21, d.Info().Version)
		s := session(d, nil)
		require.NoError(t, s.PrepareDevice(t.Context()))
		out := s.InitAnchorArrays()
		require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(count(6))}, out)))
		require.Equal(t, []float32{1, 4, 7, 7, 10, 13}, popart.In[float32](out["z"]))
	}
	_, err := (&popart.Devices{Manager: sys.Manager()}).AcquireAvailable(t.Context(), 4)
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.ErrorContains(t, err, "4")

	small, err := (&popart.Devices{}).IPUModel(t.Context(), ipu.Simulation{BytesPerTile: 14}.Small())
	require.NoError(t, err)
	err = session(small, nil).PrepareDevice(t.Context())
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.ErrorIs(t, err, popart.ErrRuntime)
	require.ErrorContains(t, err, "the device has 56: IPUs 1 × tiles 4 × bytes 14; the largest: ")

	two, err := (&popart.Devices{}).IPUModel(t.Context(), ipu.Simulation{NumIPUs: 2})
	require.NoError(t, err)
	require.NoError(t, session(two, &popart.Options{ReplicationFactor: 2}).PrepareDevice(t.Context()))
	err = session(two, &popart.Options{ReplicationFactor: 4}).PrepareDevice(t.Context())
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.ErrorContains(t, err, "too few IPUs: need 4, have 2")
}

// TestParseIPUModel reads the options of createIpuModelDevice.
// Feature 112.
func TestParseIPUModel(t *testing.T) {
	s, err := popart.ParseIPUModel(map[string]string{"numIPUs": "4", "tilesPerIPU": "64", "ipuVersion": "ipu21", "compileIPUCode": "false"})
	require.NoError(t, err)
	require.Equal(t, ipu.Simulation{NumIPUs: 4, TilesPerIPU: 64, Version: 21}, s)
	s, err = popart.ParseIPUModel(nil)
	require.NoError(t, err)
	require.Zero(t, s)
	for want, options := range map[string]map[string]string{
		`IPU model: tiles="4" is unknown, want one of compileIPUCode, ipuVersion, numIPUs, tilesPerIPU`: {"tiles": "4"},
		`IPU model: numIPUs="0": want a number, 1 or more`:                                              {"numIPUs": "0"},
		`IPU model: tilesPerIPU="many": want a number, 1 or more`:                                       {"tilesPerIPU": "many"},
		`IPU model: ipuVersion="ipu1": want "ipu2" or "ipu21"`:                                          {"ipuVersion": "ipu1"},
		`IPU model: compileIPUCode="true": want "false": there is no code of an IPU to compile`:         {"compileIPUCode": "true"},
	} {
		_, err := popart.ParseIPUModel(options)
		require.ErrorIs(t, err, popart.ErrOption)
		require.ErrorContains(t, err, want)
	}
}

// regression is y = x·w, with the loss "loss": its mean square.
func regression() *onnx.Model {
	return onnxtest.Model(13, &onnx.Graph{
		Name:         "regression",
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(3, 1), 1, -2, 3), "w")},
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "n", 3)},
		Nodes: []*onnx.Node{
			onnxtest.Node("MatMul", onnxtest.Names("x", "w"), onnxtest.Names("y")),
			onnxtest.Node("Mul", onnxtest.Names("y", "y"), onnxtest.Names("square")),
			onnxtest.Node("ReduceMean", onnxtest.Names("square"), onnxtest.Names("loss"), onnxtest.AInt("keepdims", 0)),
		},
		Outputs: onnxtest.Outputs("loss"),
	})
}

func momentum(rate float32) popart.SGD {
	return popart.SGD{LearningRate: popart.Var(rate), Momentum: popart.Const(0.9)}
}

func training(t testing.TB, m *onnx.Model) *popart.TrainingSession {
	t.Helper()
	s, err := popart.NewTrainingSession(t.Context(), popart.ONNX(m), popart.DataFlow{2, popart.Anchors{"loss": popart.All}}, popart.Loss("loss"),
		momentum(0.01), popart.CPU(), shapes, &popart.Options{AccumulationFactor: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.PrepareDevice(t.Context()))
	return s
}

func steps(t testing.TB, s *popart.TrainingSession, n int) []float32 {
	t.Helper()
	out := s.InitAnchorArrays()
	require.Equal(t, []int64{2, 2}, out["loss"].Shape)
	x := count(24)
	for i := range x {
		x[i] /= 24
	}
	for range n {
		require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(x)}, out)))
	}
	return popart.In[float32](out["loss"])
}

func weights(t testing.TB, s *popart.TrainingSession) map[string]popart.Array {
	t.Helper()
	require.NoError(t, s.WeightsToHost(t.Context()))
	all, err := s.ReadWeights()
	require.NoError(t, err)
	return all
}

// TestTraining: weights have to be loaded first; the loss falls; another learning rate of 0 keeps weights from then on, and what the executable has as a constant can't change.
// Feature 104.
func TestTraining(t *testing.T) {
	s := training(t, regression())
	err := s.Run(t.Context(), popart.Arrays(nil, nil))
	require.ErrorIs(t, err, popart.ErrWeightsNotLoaded)
	require.NoError(t, s.WeightsFromHost(t.Context()))
	first := append([]float32(nil), steps(t, s, 1)...)
	require.Less(t, steps(t, s, 10)[0], first[0])
	before := weights(t, s)
	err = s.UpdateOptimizer(t.Context(), popart.SGD{LearningRate: popart.Var(0.01), Momentum: popart.Const(0.5)})
	require.ErrorIs(t, err, popart.ErrReplacement)
	require.ErrorContains(t, err, "momentum")
	require.ErrorIs(t, s.UpdateOptimizer(t.Context(), popart.Adam{}), popart.ErrReplacement)
	require.NoError(t, s.UpdateOptimizer(t.Context(), momentum(0)))
	require.Equal(t, before["w"], weights(t, s)["w"], "program 1 alone keeps weights")
	require.Equal(t, before["Accl___w"], weights(t, s)["Accl___w"], "and moments")
	steps(t, s, 2)
	require.Equal(t, before["w"], weights(t, s)["w"])
}

// TestInputOrder counts through the data of a training session with batches, accumulation and replicas: the first element of each micro-batch comes out in the
// order of the factors, and an array of another size is an error that names them all.
// Feature 107.
func TestInputOrder(t *testing.T) {
	s, err := popart.NewTrainingSession(t.Context(), scorer(), popart.DataFlow{2, popart.Anchors{"y": popart.All}}, popart.Loss("cost"), popart.ConstSGD(0), popart.CPU(), shapes,
		&popart.Options{AccumulationFactor: 3, ReplicationFactor: 2})
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, []int64{2, 3, 2, 2, 3}, s.Inputs()["x"].Shape)
	require.NoError(t, s.PrepareDevice(t.Context()))
	require.NoError(t, s.WeightsFromHost(t.Context()))
	out := s.InitAnchorArrays()
	require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(count(72))}, out)))
	require.Equal(t, []int64{2, 3, 2, 2, 3}, out["y"].Shape)
	var first []float32
	for i := 0; i < 72; i += 6 {
		first = append(first, popart.In[float32](out["y"])[i])
	}
	require.Equal(t, []float32{0, 12, 24, 36, 48, 60, 72, 84, 96, 108, 120, 132}, first)
	err = s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(count(71))}, out))
	require.ErrorContains(t, err, "has 71 elements, want 72: 2 batches per step × accumulation 3 × 2 replicas × micro-batch 2 × 3 elements a sample")
}

// TestModelToHost trains, writes the ONNX model, and goes on in another session with its weights and the moments of the first: as if it had never stopped.
func TestModelToHost(t *testing.T) {
	a := training(t, regression())
	require.NoError(t, a.WeightsFromHost(t.Context()))
	steps(t, a, 5)
	path := filepath.Join(t.TempDir(), "learnt.onnx")
	require.NoError(t, a.ModelToHost(t.Context(), path))
	state := weights(t, a)

	b := training(t, regression())
	require.NoError(t, b.ResetHostWeights(t.Context(), popart.File(path), false))
	require.NoError(t, b.WriteWeights(map[string]popart.Array{"Accl___w": state["Accl___w"]}))
	require.NoError(t, b.WeightsFromHost(t.Context()))
	require.Equal(t, steps(t, a, 5), steps(t, b, 5))
	require.Equal(t, weights(t, a), weights(t, b))

	flow := popart.DataFlow{1, popart.Anchors{"y": popart.All}}
	fixed, err := popart.NewInferenceSession(t.Context(), popart.ONNX(regression()), flow, popart.CPU(), shapes, nil)
	require.NoError(t, err)
	defer fixed.Close()
	require.ErrorIs(t, fixed.ResetHostWeights(t.Context(), popart.File(path), false), popart.ErrConstantWeights)
	reader, err := popart.NewInferenceSession(t.Context(), popart.ONNX(regression()), flow, popart.CPU(), shapes, &popart.Options{VariableWeights: true})
	require.NoError(t, err)
	defer reader.Close()
	require.NoError(t, reader.PrepareDevice(t.Context()))
	require.NoError(t, reader.ResetHostWeights(t.Context(), popart.File(path), false))
	out := reader.InitAnchorArrays()
	require.NoError(t, reader.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of([]float32{1, 0, 0, 0, 0, 1})}, out)))
	w := popart.In[float32](state["w"])
	require.Equal(t, []float32{w[0], w[2]}, popart.In[float32](out["y"]))

	other := regression()
	other.Graph.Initializers = append(other.Graph.Initializers, onnxtest.Named(onnxtest.F32s(onnxtest.Dims(1), 1), "unknown"))
	require.ErrorContains(t, b.ResetHostWeights(t.Context(), popart.ONNX(other), false), `no weight "unknown"`)
	require.NoError(t, b.ResetHostWeights(t.Context(), popart.ONNX(other), true))
	other.Graph.Initializers[0] = onnxtest.Named(onnxtest.F32s(onnxtest.Dims(1, 3), 1, 1, 1), "w")
	require.ErrorContains(t, b.ResetHostWeights(t.Context(), popart.ONNX(other), true), "[1 3]")
}

// TestSaveExecutable: what a session writes, in one file or two, trains as the session does, bit by bit over 20 steps.
func TestSaveExecutable(t *testing.T) {
	s := training(t, regression())
	dir := t.TempDir()
	one, exe, variables := filepath.Join(dir, "one.popef"), filepath.Join(dir, "exe.popef"), filepath.Join(dir, "variables.popef")
	require.NoError(t, s.SaveExecutable(one, popart.WithVariables()))
	require.NoError(t, s.SaveExecutable(exe))
	require.NoError(t, s.SaveVariables(variables))
	require.NoError(t, s.WeightsFromHost(t.Context()))
	want := steps(t, s, 20)
	for _, files := range [][]string{{one}, {exe, variables}} {
		r, err := modelrt.OpenSession(context.Background(), files)
		require.NoError(t, err)
		require.Equal(t, []uint32{0, 1}, r.Model().Metadata.ProgramFlow.Load)
		require.False(t, r.Model().Metadata.IsInference)
		x := count(24)
		for i := range x {
			x[i] /= 24
		}
		ends := map[string]*modelrt.Buffer{}
		for _, st := range r.Streams() {
			for _, a := range r.Contract().Visible() {
				if a.Handle == st.Handle && (a.Name == "x" || a.Name == "loss") {
					b, err := modelrt.NewBuffer(st, r.Contract().Transfers(&a))
					require.NoError(t, err)
					ends[a.Name] = b
					require.NoError(t, r.Connect(t.Context(), a.Handle, b))
				}
			}
		}
		copy(ends["x"].Bytes(), popart.Of(x).Data)
		for range 20 {
			require.NoError(t, r.Run(t.Context()))
		}
		require.Equal(t, popart.Of(want).Data, ends["loss"].Bytes())
		require.NoError(t, r.Close())
	}
}

// TestErrors: zero values and nonsense are errors, no panics.
// Feature 118.
func TestErrors(t *testing.T) {
	var zero popart.TrainingSession
	require.ErrorIs(t, zero.Run(t.Context(), nil), popart.ErrClosed)
	require.ErrorIs(t, zero.ModelToHost(t.Context(), ""), popart.ErrPopART)
	require.NoError(t, zero.Close())
	flow := popart.DataFlow{1, popart.Anchors{"z": popart.All}}
	_, err := popart.NewInferenceSession(t.Context(), popart.Model{}, flow, nil, nil, nil)
	require.ErrorIs(t, err, popart.ErrPopART)
	require.NotErrorIs(t, err, popart.ErrInternal)
	s, err := popart.NewInferenceSession(t.Context(), doubler(), flow, nil, shapes, nil)
	require.NoError(t, err)
	require.ErrorContains(t, s.PrepareDevice(t.Context()), "no device")
	var none *popart.Device
	require.Equal(t, popart.ConnectNever, none.Connection())
	require.Equal(t, ipu.DeviceInfo{}, none.Info())
	require.NoError(t, none.Close())
	for _, n := range []int{1<<31 + 1, 1<<32 + 1, math.MaxInt} { // numbers that would wrap where a file has 32 bits for them
		_, err = popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{n, flow.Anchors}, popart.CPU(), shapes, nil)
		require.ErrorContains(t, err, "want 1 to 2147483648")
		_, err = popart.NewInferenceSession(t.Context(), doubler(), flow, popart.CPU(), shapes, &popart.Options{ReplicationFactor: n})
		require.ErrorContains(t, err, "want 1 to 2147483648")
	}
	p := prepared(t, flow, nil)
	for _, odd := range []popart.Array{{}, {Type: 99, Data: make([]byte, 24)}, {Type: popef.F32, Data: make([]byte, 23)}} {
		require.ErrorIs(t, p.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": odd}, p.InitAnchorArrays())), popart.ErrPopART)
		require.Nil(t, popart.In[float32](odd))
	}
	_, err = popart.NewInferenceSession(t.Context(), popart.File("nowhere.onnx"), flow, nil, nil, nil)
	require.ErrorIs(t, err, popart.ErrPopART)
	_, err = popart.NewTrainingSession(t.Context(), doubler(), flow, nil, nil, nil, nil, nil)
	require.ErrorIs(t, err, popart.ErrOption)
}
