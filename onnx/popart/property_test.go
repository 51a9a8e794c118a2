package popart_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/popart"
	"github.com/popefgen/popefgen/popef"
)

// micros are the values that a tensor has in the micro-batches of a step.
type micros struct {
	batches, accumulation, replicas int
	at                              func(batch, micro, replica int) []float32
}

// returned is what a return type gives back: the shape of what stands before the tensor, without dimensions of 1, and the values.
func (m *micros) returned(how popart.AnchorReturn) (outer []int64, values []float32) {
	dims := []int{m.replicas}
	switch how {
	case popart.Final:
		for r := range m.replicas {
			values = append(values, m.at(m.batches-1, m.accumulation-1, r)...)
		}
	case popart.Sum:
		for r := range m.replicas {
			sum := make([]float32, len(m.at(0, 0, 0)))
			for b := range m.batches {
				for a := range m.accumulation {
					for i, v := range m.at(b, a, r) {
						sum[i] += v
					}
				}
			}
			values = append(values, sum...)
		}
	default:
		every := max(1, how.N)
		for b := every - 1; b < m.batches; b += every {
			for a := range m.accumulation {
				for r := range m.replicas {
					values = append(values, m.at(b, a, r)...)
				}
			}
		}
		dims = []int{m.batches / every, m.accumulation, m.replicas}
	}
	for _, d := range dims {
		if d != 1 {
			outer = append(outer, int64(d))
		}
	}
	return outer, values
}

// scorer is y = 2·x, z = y + w and the loss cost = Σz, so that sessions of both kinds compute it.
func scorer() popart.Model {
	return popart.ONNX(onnxtest.Model(13, &onnx.Graph{
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(3), 1, 2, 3), "w")},
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "n", 3)},
		Nodes: []*onnx.Node{
			onnxtest.Node("Add", onnxtest.Names("x", "x"), onnxtest.Names("y")),
			onnxtest.Node("Add", onnxtest.Names("y", "w"), onnxtest.Names("z")),
			onnxtest.Node("ReduceSum", onnxtest.Names("z"), onnxtest.Names("cost"), onnxtest.AInt("keepdims", 0)),
		},
		Outputs: onnxtest.Outputs("cost"),
	}))
}

// TestDataFlowProperty computes random data flows, by training sessions whose weights stand still and by inference sessions, from arrays and by callbacks: whatever return types,
// batches, accumulation and replicas are, shapes and values are those of a few loops in Go. Numbers are small and whole, so that sums are exact.
// Feature 106.
func TestDataFlowProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
		m := micros{batches: n("batches", 6), accumulation: n("accumulation", 3), replicas: n("replicas", 3)}
		micro, trains := n("micro-batch", 3), rapid.Bool().Draw(t, "trains")
		if !trains {
			m.accumulation = 1
		}
		hows := []popart.AnchorReturn{popart.All, popart.Final, popart.Sum}
		for every := range m.batches {
			if m.batches%(every+1) == 0 {
				hows = append(hows, popart.EveryN(every+1))
			}
		}
		flow := popart.DataFlow{BatchesPerStep: m.batches, Anchors: popart.Anchors{}}
		for _, name := range []string{"y", "z", "cost"} {
			if name == "z" || rapid.Bool().Draw(t, "anchor "+name) {
				flow.Anchors[name] = rapid.SampledFrom(hows).Draw(t, "return of "+name)
			}
		}
		one := 3 * micro
		x := make([]float32, one*m.batches*m.accumulation*m.replicas)
		for i, v := range rapid.SliceOfN(rapid.IntRange(-8, 8), len(x), len(x)).Draw(t, "x") {
			x[i] = float32(v)
		}
		values := map[string]func(b, a, r int) []float32{}
		values["y"] = func(b, a, r int) []float32 {
			y := slices.Clone(x[((b*m.accumulation+a)*m.replicas+r)*one:][:one])
			for i := range y {
				y[i] *= 2
			}
			return y
		}
		values["z"] = func(b, a, r int) []float32 {
			z := values["y"](b, a, r)
			for i := range z {
				z[i] += float32(1 + i%3)
			}
			return z
		}
		values["cost"] = func(b, a, r int) []float32 {
			sum := float32(0)
			for _, v := range values["z"](b, a, r) {
				sum += v
			}
			return []float32{sum}
		}
		options := &popart.Options{AccumulationFactor: m.accumulation, ReplicationFactor: m.replicas}
		sizes := popart.Shapes{"x": {int64(micro), 3}}
		var s interface {
			PrepareDevice(context.Context) error
			Run(context.Context, popart.StepIO) error
			InitAnchorArrays() map[string]popart.Array
			Close() error
		}
		if trains {
			made, err := popart.NewTrainingSession(context.Background(), scorer(), flow, popart.Loss("cost"), popart.ConstSGD(0), popart.CPU(), sizes, options)
			require.NoError(t, err)
			s = made
			require.NoError(t, s.PrepareDevice(context.Background()))
			require.NoError(t, made.WeightsFromHost(context.Background()))
		} else {
			made, err := popart.NewInferenceSession(context.Background(), scorer(), flow, popart.CPU(), sizes, options)
			require.NoError(t, err)
			s = made
			require.NoError(t, s.PrepareDevice(context.Background()))
		}
		defer s.Close()
		for range 2 { // a step leaves nothing behind that changes the next
			out := s.InitAnchorArrays()
			got := map[string][]float32{}
			if rapid.Bool().Draw(t, "callbacks") {
				got = called(t, s.Run, x, one)
			} else {
				require.NoError(t, s.Run(context.Background(), popart.Arrays(map[string]popart.Array{"x": popart.Of(x)}, out)))
				for name, a := range out {
					got[name] = popart.In[float32](a)
				}
			}
			require.Len(t, got, len(flow.Anchors))
			for name, how := range flow.Anchors {
				m.at = values[name]
				shape, want := m.returned(how)
				if name != "cost" {
					shape = append(shape, int64(micro), 3)
				}
				require.Equal(t, want, got[name], "%s of %s", how, name)
				require.Equal(t, shape, out[name].Shape, "%s of %s", how, name)
			}
		}
	})
}

// called runs a step through callbacks and returns what it gave to each anchor.
func called(t require.TestingT, run func(context.Context, popart.StepIO) error, x []float32, one int) map[string][]float32 {
	given := map[string][][]byte{}
	at := 0
	require.NoError(t, run(context.Background(), popart.Callbacks{
		In: func(_ string, n int, _ bool) []byte {
			if n != one || at+one > len(x) {
				return nil
			}
			at += one
			return popart.Of(x[at-one : at]).Data
		},
		Out: func(name string, n int) []byte {
			given[name] = append(given[name], popart.Of(make([]float32, n)).Data)
			return given[name][len(given[name])-1]
		},
	}))
	require.Equal(t, len(x), at, "all of the input is read")
	got := map[string][]float32{}
	for name, all := range given {
		for _, data := range all {
			got[name] = append(got[name], popart.In[float32](popart.Array{Type: popef.F32, Data: data})...)
		}
	}
	return got
}
