package popart_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
	"github.com/popefgen/popefgen/onnx/popart"
)

// The Go side of docs/porting.md, section "PopART's user guide": an example for each of the guide's listings.

// Importing graphs: sessions of a file, for inference and for training.
func ExampleFile() {
	ctx := context.Background()
	flow := popart.DataFlow{BatchesPerStep: 100, Anchors: popart.Anchors{"probabilities": popart.All}}
	shapes := popart.Shapes{"image": {4, 1, 8, 8}}
	s, err := popart.NewInferenceSession(ctx, popart.File(digits), flow, popart.CPU(), shapes, nil)
	check(err)
	defer s.Close()
	fmt.Println(s.InitAnchorArrays()["probabilities"].Shape)

	loss := popart.Nll{Output: "probabilities", Label: "labels"}
	learner, err := popart.NewTrainingSession(ctx, popart.File(digits), flow, loss, popart.ConstSGD(0.001), popart.CPU(), shapes, nil)
	check(err)
	defer learner.Close()
	fmt.Println(learner.Inputs()["labels"].Shape)
	// Output:
	// [100 4 10]
	// [100 4]
}

// Session control options: what the back end does not know is listed.
func ExampleOptions() {
	ctx := context.Background()
	o := popart.Options{
		EngineOptions:      map[string]string{"debug.instrument": "true"},
		ReportOptions:      map[string]string{"showExecutionSteps": "true"},
		ConvolutionOptions: map[string]string{"partialsType": "half"},
	}
	flow := popart.DataFlow{BatchesPerStep: 1, Anchors: popart.Anchors{"probabilities": popart.All}}
	s, err := popart.NewInferenceSession(ctx, popart.File(digits), flow, popart.CPU(), popart.Shapes{"image": {4, 1, 8, 8}}, &o)
	check(err)
	defer s.Close()
	fmt.Println(s.UnknownOptions())
	// Output:
	// [convolution.partialsType=half]
}

// Building graphs: operators, with names and attributes, parameters, outputs.
func ExampleBytes() {
	ctx := context.Background()
	b := build.New(build.Opset(11))
	x := b.Input("x", onnx.Float16, 1, 4, 32, 32)
	indices := b.Input("indices", onnx.Int32, 2)

	weights := make([]num.Float16, 64*4*3*3)
	w := b.Initializer("w", build.TensorOf(weights, 64, 4, 3, 3))
	y := b.Conv(x, w, nil, build.Dilations(1, 1), build.Pads(1, 1, 1, 1), build.Strides(1, 1))
	y = b.Relu(y, build.Name("debug-name"))
	b.Output("o", b.Gather(y, indices, build.Axis(1), build.Name("My-Gather")))

	proto, err := b.Bytes(ctx)
	check(err)
	flow := popart.DataFlow{BatchesPerStep: 1, Anchors: popart.Anchors{"o": popart.All}}
	s, err := popart.NewInferenceSession(ctx, popart.Bytes(proto), flow, popart.CPU(), nil, nil)
	check(err)
	defer s.Close()
	fmt.Println(s.InitAnchorArrays()["o"].Shape)
	// Output:
	// [1 2 32 32]
}

// Setting the IPU number for operations: of a node that is there, and of all nodes that a function makes.
func ExampleONNX() {
	ctx := context.Background()
	b := build.New()
	var in build.Tensors
	for i := range 4 {
		in = append(in, b.Input(fmt.Sprint("i", i+1), onnx.Float, 1))
	}
	var left, right, o *build.Tensor
	b.With(func() {
		left, right = b.Add(in[0], in[1]), b.Add(in[2], in[3])
	}, build.VirtualGraph(0))
	b.With(func() { o = b.Add(left, right) }, build.VirtualGraph(1))
	o = b.Neg(o)
	b.Place(o, build.VirtualGraph(1))
	b.Output("o", o)

	model, err := b.Model(ctx)
	check(err)
	for _, n := range model.Graph.Nodes {
		fmt.Println(n.OpType, n.Attributes[0].Name, n.Attributes[0].Int)
	}
	flow := popart.DataFlow{BatchesPerStep: 1, Anchors: popart.Anchors{"o": popart.All}}
	s, err := popart.NewInferenceSession(ctx, popart.ONNX(model), flow, popart.CPU(), nil, nil)
	check(err)
	defer s.Close()
	// Output:
	// Add __ipu_number 0
	// Add __ipu_number 0
	// Add __ipu_number 1
	// Neg __ipu_number 1
}

// Retrieving results: what a step of six batches returns.
func ExampleDataFlow() {
	ctx := context.Background()
	b := build.New()
	x := b.Input("x", onnx.Float, 2)
	b.Output("all", b.Neg(x))
	b.Output("some", b.Abs(x))
	b.Output("last", b.Relu(x))
	proto, err := b.Bytes(ctx)
	check(err)

	flow := popart.DataFlow{BatchesPerStep: 6, Anchors: popart.Anchors{"all": popart.All, "some": popart.EveryN(3), "last": popart.Final}}
	s, err := popart.NewInferenceSession(ctx, popart.Bytes(proto), flow, popart.CPU(), nil, nil)
	check(err)
	defer s.Close()
	anchors := s.InitAnchorArrays()
	fmt.Println(anchors["all"].Shape, anchors["some"].Shape, anchors["last"].Shape)
	// Output:
	// [6 2] [2 2] [2]
}

// Selecting a device: the CPU, a simulated device, and those that there are.
func ExampleDevices() {
	ctx := context.Background()
	var devices popart.Devices
	model, err := devices.IPUModel(ctx, ipu.Simulation{NumIPUs: 2})
	check(err)
	defer model.Close()
	fmt.Println(model.Info().NumIPUs, "IPUs are simulated")

	all, err := devices.Enumerate(ctx)
	check(err)
	fmt.Println(all[0].Info().Backend)
	pair, err := devices.AcquireAvailable(ctx, 2) // a CPU stands for any number of IPUs
	check(err)
	defer pair.Close()
	_, err = devices.AcquireByID(ctx, "cpu", 5)
	fmt.Println(errors.Is(err, ipu.ErrNoDevice))
	// Output:
	// 2 IPUs are simulated
	// cpu
	// true
}

// The guide's last example: two numbers are added.
func ExampleArrays() {
	ctx := context.Background()
	b := build.New()
	x, y := b.Input("a", onnx.Float, 1), b.Input("b", onnx.Float, 1)
	b.Output("o", b.Add(x, y))
	proto, err := b.Bytes(ctx)
	check(err)

	flow := popart.DataFlow{BatchesPerStep: 1, Anchors: popart.Anchors{"o": popart.All}}
	s, err := popart.NewInferenceSession(ctx, popart.Bytes(proto), flow, popart.CPU(), nil, nil)
	check(err)
	defer s.Close()
	check(s.PrepareDevice(ctx))

	anchors := s.InitAnchorArrays()
	a2, b2 := []float32{0.5}, []float32{0.25}
	check(s.Run(ctx, popart.Arrays(map[string]popart.Array{"a": popart.Of(a2), "b": popart.Of(b2)}, anchors)))
	fmt.Println("Input a is", a2)
	fmt.Println("Input b is", b2)
	fmt.Println("Result is", popart.In[float32](anchors["o"]))
	// Output:
	// Input a is [0.5]
	// Input b is [0.25]
	// Result is [0.75]
}

// Executing, saving and loading, and reports of a session that learns y = w·x with the learning rate that each step has.
func ExampleTrainingSession_UpdateOptimizer() {
	ctx := context.Background()
	b := build.New()
	x, label := b.Input("x", onnx.Float, 1), b.Input("label", onnx.Float, 1)
	w := b.Initializer("w", build.TensorOf([]float32{0}, 1))
	miss := b.Sub(b.Mul(x, w), label)
	b.Output("loss", b.ReduceSum(b.Mul(miss, miss), nil, build.Keepdims(false)))
	proto, err := b.Bytes(ctx)
	check(err)

	flow := popart.DataFlow{BatchesPerStep: 1, Anchors: popart.Anchors{"loss": popart.Final}}
	o := popart.Options{EngineOptions: map[string]string{"debug.instrument": "true"}}
	s, err := popart.NewTrainingSession(ctx, popart.Bytes(proto), flow, popart.Loss("loss"), popart.SGD{LearningRate: popart.Var(0.25)}, popart.CPU(), nil, &o)
	check(err)
	defer s.Close()
	check(s.PrepareDevice(ctx))
	check(s.WeightsFromHost(ctx)) // weights, and the optimizer's numbers

	anchors := s.InitAnchorArrays()
	in := map[string]popart.Array{"x": popart.Of([]float32{1}), "label": popart.Of([]float32{2})}
	for _, rate := range []float32{0.25, 0.125} {
		check(s.UpdateOptimizer(ctx, popart.SGD{LearningRate: popart.Var(rate)}))
		check(s.Run(ctx, popart.Arrays(in, anchors)))
		fmt.Println("loss", popart.In[float32](anchors["loss"]))
	}

	folder, err := os.MkdirTemp("", "porting")
	check(err)
	defer os.RemoveAll(folder)
	learnt := filepath.Join(folder, "learnt.onnx")
	check(s.ModelToHost(ctx, learnt))
	check(s.ResetHostWeights(ctx, popart.File(learnt), false))
	weights, err := s.ReadWeights()
	check(err)
	fmt.Println("w", popart.In[float32](weights["w"]))

	summary, err := s.SummaryReport(popart.KeepProfile())
	check(err)
	compiled, err := s.GraphReport(popart.JSON)
	check(err)
	executed, err := s.ExecutionReport(popart.CBOR)
	check(err)
	fmt.Println(len(summary) > 0, len(compiled) > 0, len(executed) > 0)
	// Output:
	// loss [4]
	// loss [1]
	// w [1.25]
	// true true true
}

// Execution tracing: levels by module, for one session.
func ExampleNewLogHandler() {
	ctx := context.Background()
	var log strings.Builder
	handler, err := popart.NewLogHandler(&log, popart.LogConfig{
		Level:   slog.LevelInfo,
		Modules: map[string]slog.Level{"session": popart.LevelOff},
	})
	check(err)
	flow := popart.DataFlow{BatchesPerStep: 1, Anchors: popart.Anchors{"probabilities": popart.All}}
	s, err := popart.NewInferenceSession(ctx, popart.File(digits), flow, popart.CPU(), popart.Shapes{"image": {4, 1, 8, 8}}, &popart.Options{Logger: slog.New(handler)})
	check(err)
	defer s.Close()
	fmt.Println(strings.Contains(log.String(), "[popart:lower] [info] lowered"), strings.Contains(log.String(), "session"))
	// Output:
	// true false
}

// TestPorting: every block of Go of the section on PopART of docs/porting.md is a part of an example of this file, which is run.
func TestPorting(t *testing.T) {
	text, err := os.ReadFile("../../docs/porting.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## PopART's user guide\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	code, err := os.ReadFile("porting_test.go")
	require.NoError(t, err)
	lines := strings.Split(string(code), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "\t")
	}
	blocks := strings.Split(section, "```go\n")[1:]
	require.Len(t, blocks, 9)
	for _, b := range blocks {
		b, _, ok := strings.Cut(b, "```")
		require.True(t, ok)
		for part := range strings.SplitSeq(b, "// …\n") {
			require.Contains(t, strings.Join(lines, "\n"), part)
		}
	}
}
