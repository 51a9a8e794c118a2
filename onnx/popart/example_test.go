package popart_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
	"github.com/popefgen/popefgen/onnx/popart"
)

const digits = "../../generated_examples/digits/digits.onnx"

// check stands for what a program does with errors.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// pixels returns the images of scans, with grey levels from 0 to 1, and their labels.
func pixels(all []scans.Scan) (images []float32, labels []int32) {
	for _, s := range all {
		for _, row := range s.Grey {
			for _, grey := range row {
				images = append(images, float32(grey)/16)
			}
		}
		labels = append(labels, int32(s.Label))
	}
	return images, labels
}

// The model of the digits example reads scans that it was not trained on, one a batch.
func ExampleInferenceSession() {
	ctx := context.Background()
	heldOut, err := scans.HeldOut()
	check(err)
	images, labels := pixels(heldOut)

	flow := popart.DataFlow{BatchesPerStep: len(labels), Anchors: popart.Anchors{"probabilities": popart.All}}
	s, err := popart.NewInferenceSession(ctx, popart.File(digits), flow, popart.CPU(), popart.Shapes{"image": {1, 1, 8, 8}}, nil)
	check(err)
	defer s.Close()
	check(s.PrepareDevice(ctx))

	anchors := s.InitAnchorArrays()
	check(s.Run(ctx, popart.Arrays(map[string]popart.Array{"image": popart.Of(images)}, anchors)))
	fmt.Println(anchors["probabilities"].Shape)
	fmt.Println(right(anchors["probabilities"], labels), "of", len(labels), "read rightly")
	// Output:
	// [359 1 10]
	// 355 of 359 read rightly
}

// The model of the digits example says of what its steps consist, and what they took.
func ExampleInferenceSession_SummaryReport() {
	ctx := context.Background()
	o := popart.Options{
		EngineOptions: map[string]string{"debug.instrument": "true"},
		ReportOptions: map[string]string{"showExecutionSteps": "true"}, // every step, not sums alone
	}
	flow := popart.DataFlow{BatchesPerStep: 1, Anchors: popart.Anchors{"probabilities": popart.All}}
	s, err := popart.NewInferenceSession(ctx, popart.File(digits), flow, popart.CPU(), popart.Shapes{"image": {1, 1, 8, 8}}, &o)
	check(err)
	defer s.Close()
	check(s.PrepareDevice(ctx))
	check(s.Run(ctx, popart.Arrays(map[string]popart.Array{"image": popart.Of(make([]float32, 64))}, s.InitAnchorArrays())))

	summary, err := s.SummaryReport(popart.KeepProfile())
	check(err)
	execution, err := s.ExecutionReport(popart.CBOR)
	check(err)
	fmt.Println(strings.SplitAfter(summary, "\n")[0], strings.Contains(summary, "Execution of 1 runs"), len(execution) > 0)
	// Output:
	// Session of inference, back end cpu
	//  true true
}

// right counts the scans whose most likely digit is the label.
func right(probabilities popart.Array, labels []int32) (n int) {
	all := popart.In[float32](probabilities)
	for i, label := range labels {
		of := all[10*i:][:10]
		if slices.Index(of, slices.Max(of)) == int(label) {
			n++
		}
	}
	return n
}

// The model of the digits example forgets what it knows and learns anew: each step computes the 22 batches of an epoch. What it learnt is written as an ONNX model, which an inference
// session reads.
func ExampleTrainingSession() {
	ctx := context.Background()
	const batch, batches = 64, 22
	all, err := scans.Training()
	check(err)

	flow := popart.DataFlow{BatchesPerStep: batches, Anchors: popart.Anchors{"loss": popart.All}}
	loss := popart.Nll{Output: "probabilities", Label: "labels"}
	s, err := popart.NewTrainingSession(ctx, popart.File(digits), flow, loss, popart.Adam{LearningRate: popart.Var(0.002)},
		popart.CPU(), popart.Shapes{"image": {batch, 1, 8, 8}}, nil)
	check(err)
	defer s.Close()
	check(s.PrepareDevice(ctx))
	check(forget(s))
	check(s.WeightsFromHost(ctx))

	anchors := s.InitAnchorArrays()
	var losses []float32 // of the last batch of each epoch
	random := rand.New(rand.NewPCG(1, 2))
	for epoch := range 12 {
		if epoch == 8 {
			check(s.UpdateOptimizer(ctx, popart.Adam{LearningRate: popart.Var(0.0005)}))
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		images, labels := pixels(all[:batch*batches])
		in := map[string]popart.Array{"image": popart.Of(images), "labels": popart.Of(labels)}
		check(s.Run(ctx, popart.Arrays(in, anchors)))
		losses = append(losses, popart.In[float32](anchors["loss"])[batches-1])
	}
	fmt.Println("the loss is a fifth:", losses[11] < losses[0]/5)

	folder, err := os.MkdirTemp("", "popart")
	check(err)
	defer os.RemoveAll(folder)
	learnt := filepath.Join(folder, "learnt.onnx")
	check(s.ModelToHost(ctx, learnt))

	heldOut, err := scans.HeldOut()
	check(err)
	images, labels := pixels(heldOut)
	reader, err := popart.NewInferenceSession(ctx, popart.File(learnt), popart.DataFlow{BatchesPerStep: len(labels), Anchors: popart.Anchors{"probabilities": popart.All}},
		popart.CPU(), popart.Shapes{"image": {1, 1, 8, 8}}, nil)
	check(err)
	defer reader.Close()
	check(reader.PrepareDevice(ctx))
	results := reader.InitAnchorArrays()
	check(reader.Run(ctx, popart.Arrays(map[string]popart.Array{"image": popart.Of(images)}, results)))
	fmt.Println("19 of 20 are read rightly:", 20*right(results["probabilities"], labels) >= 19*len(labels))
	// Output:
	// the loss is a fifth: true
	// 19 of 20 are read rightly: true
}

// A network of two layers is built by calls, and learns to read scans.
func ExampleBuilt() {
	ctx := context.Background()
	const batch, batches = 64, 22
	all, err := scans.Training()
	check(err)
	random := rand.New(rand.NewPCG(5, 6))
	weights := func(rows, columns int64) *onnx.Tensor {
		numbers := make([]float32, rows*columns)
		for i := range numbers {
			numbers[i] = 0.4*random.Float32() - 0.2
		}
		return build.TensorOf(numbers, rows, columns)
	}

	b := build.New(build.Opset(17))
	x := b.Flatten(b.Input("image", onnx.Float, "N", 1, 8, 8))
	x = b.Relu(b.MatMul(x, b.Initializer("hidden.w", weights(64, 32))))
	x = b.MatMul(x, b.Initializer("digits.w", weights(32, 10)))
	b.Output("probabilities", b.Softmax(x))

	flow := popart.DataFlow{BatchesPerStep: batches, Anchors: popart.Anchors{"loss": popart.EveryN(batches)}}
	loss := popart.Nll{Output: "probabilities", Label: "labels"}
	s, err := popart.NewTrainingSession(ctx, popart.Built(b), flow, loss, popart.Adam{LearningRate: popart.Const(0.01)},
		popart.CPU(), popart.Shapes{"image": {batch, 1, 8, 8}}, nil)
	check(err)
	defer s.Close()
	check(s.PrepareDevice(ctx))
	check(s.WeightsFromHost(ctx))
	anchors := s.InitAnchorArrays()
	var losses []float32
	for range 12 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		images, labels := pixels(all[:batch*batches])
		check(s.Run(ctx, popart.Arrays(map[string]popart.Array{"image": popart.Of(images), "labels": popart.Of(labels)}, anchors)))
		losses = append(losses, popart.In[float32](anchors["loss"])[0])
	}
	fmt.Println("the loss is a fifth:", losses[11] < losses[0]/5)
	// Output:
	// the loss is a fifth: true
}

// forget gives the weights of a session small random numbers.
func forget(s *popart.TrainingSession) error {
	weights, err := s.ReadWeights()
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, name := range slices.Sorted(maps.Keys(weights)) { // the same numbers in every run
		if strings.Contains(name, "__") { // a state of the optimizer
			delete(weights, name)
			continue
		}
		numbers := popart.In[float32](weights[name])
		for i := range numbers {
			numbers[i] = 0.2*random.Float32() - 0.1
		}
	}
	return s.WriteWeights(weights)
}

// TestDocument holds the programs of docs/popart.md to the examples of this file, which are compiled and run: every block of Go stands in here, line by line.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/popart.md")
	require.NoError(t, err)
	code, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := strings.Split(string(text), "```go\n")[1:]
	require.Len(t, blocks, 4)
	for _, b := range blocks {
		b, _, ok := strings.Cut(b, "```")
		require.True(t, ok)
		for part := range strings.SplitSeq(b, "// …\n") {
			var indented strings.Builder
			for line := range strings.Lines(part) {
				if line != "\n" {
					indented.WriteString("\t")
				}
				indented.WriteString(line)
			}
			require.Contains(t, string(code), indented.String())
		}
	}
}
