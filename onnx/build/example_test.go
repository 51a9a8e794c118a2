package build_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
)

// must stands for what a program does with errors.
func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A convolution whose weights the model has, and a linear layer.
func Example() {
	ctx := context.Background()
	b := build.New(build.Opset(17))
	x := b.Input("image", onnx.Float, "N", 1, 8, 8)
	w := b.Initializer("conv.w", build.TensorOf(make([]float32, 4*1*3*3), 4, 1, 3, 3))
	y := b.Relu(b.Conv(x, w, nil, build.Pads(1, 1, 1, 1)))
	y, _ = b.MaxPool(y, []int64{2, 2}, build.Strides(2, 2))
	y = b.Flatten(y)
	a := b.Initializer("fc.w", build.TensorOf(make([]float32, 64*10), 64, 10))
	c := b.Initializer("fc.b", build.TensorOf(make([]float32, 10), 10))
	b.Output("probabilities", b.Softmax(b.Gemm(y, a, c)))

	model, err := b.Model(ctx)
	must(err)
	fmt.Println(len(model.Graph.Nodes), "nodes,", model.Graph.Outputs[0])
	// Output:
	// 6 nodes, float[N,10]
}

// Mistakes are collected, each with the line of its call.
func ExampleBuilder_Err() {
	b := build.New(build.Opset(11))
	x := b.Input("x", onnx.Float, 2, 3)
	y := b.MatMul(x, nil)
	b.Output("y", b.Squeeze(y, nil))
	fmt.Println(b.Err())
	// Output:
	// example_test.go:50: MatMul: operand 1 (B) is nil, want a value: it can't be left out
	// example_test.go:51: Squeeze: it is an operator of sets from 13 on, and the model is of set 11: call SqueezeV1
}

// A subgraph is a function. Nodes that it makes are in the subgraph, and may read the values around it.
func ExampleBuilder_Loop() {
	b := build.New()
	x := b.Input("x", onnx.Float, 2)
	results := b.Loop(build.Const(b, []int64{8}), nil, build.Tensors{x}, func(in build.Tensors) build.Tensors {
		condition, state := in[1], in[2] // in[0] counts iterations
		next := b.Mul(b.Add(state, x), build.Const(b, []float32{0.5}))
		return build.Tensors{condition, next, next} // go on, what is carried, what is collected
	})
	b.Output("last", results[0])
	b.Output("all", results[1])
	model, err := b.Model(context.Background())
	must(err)
	fmt.Println(model.Graph.Outputs)
	// Output:
	// [float[2] float[8,2]]
}

// Placement is kept in the file as PopART's attributes.
func ExampleBuilder_With() {
	b := build.New()
	x := b.Input("x", onnx.Float, 2)
	b.Scope("encoder", func() {
		b.With(func() {
			x = b.Relu(b.Add(x, x), build.Name("activation"))
		}, build.VirtualGraph(0), build.PipelineStage(0))
	})
	y := b.Neg(x, build.VirtualGraph(1))
	b.Place(y, build.PipelineStage(1))
	b.Output("y", y)
	model, err := b.Model(context.Background())
	must(err)
	for _, n := range model.Graph.Nodes {
		fmt.Println(n.Name, n.Attributes[0].Name, n.Attributes[0].Int, n.Attributes[1].Name, n.Attributes[1].Int)
	}
	// Output:
	// encoder/Add __ipu_number 0 __pipeline_stage 0
	// encoder/activation __ipu_number 0 __pipeline_stage 0
	// Neg __ipu_number 1 __pipeline_stage 1
}

// Weights stand in a file of their own, as a model of 2 GiB or more must have them.
func ExampleBuilder_WriteFile() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "build")
	must(err)
	defer os.RemoveAll(folder)

	b := build.New()
	w := b.Initializer("w", build.TensorOf([]float32{1, 2, 3}, 3))
	b.Output("y", b.Mul(b.Input("x", onnx.Float, 3), w))
	b.SaveInitializersExternally("weights.bin", w)
	path := filepath.Join(folder, "scale.onnx")
	must(b.WriteFile(ctx, path))

	model, err := onnx.ReadFile(path)
	must(err)
	fmt.Println(len(model.Graph.Initializers[0].Data), "bytes of weights")
	// Output:
	// 12 bytes of weights
}

// An operator of a library of custom operators. What it computes is not known here, so its type is said.
func ExampleBuilder_Custom() {
	b := build.New()
	x := b.Input("x", onnx.Float, 2, 3)
	y := b.Custom("com.example", 1, "Cube", build.Tensors{x}, 1, build.Attribute("rounds", 3))[0]
	b.Declare(y, onnx.Float, 2, 3)
	b.Output("y", y)
	model, err := b.Model(context.Background())
	must(err)
	fmt.Println(model.Opsets[1], model.Graph.Outputs[0])
	// Output:
	// {com.example 1} float[2,3]
}

// TestDocument holds the programs of docs/build.md to the examples of this file, which are compiled and run: every line of Go stands in here, in order. Names of methods that the
// document has in backquotes are there.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/build.md")
	require.NoError(t, err)
	code, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := strings.Split(string(text), "```go\n")[1:]
	require.GreaterOrEqual(t, len(blocks), 5)
	for _, b := range blocks {
		b, _, ok := strings.Cut(b, "```")
		require.True(t, ok)
		for part := range strings.SplitSeq(b, "// …\n") {
			var indented strings.Builder
			for line := range strings.Lines(part) {
				if line != "\n" {
					indented.WriteString("\t")
				}
				indented.WriteString(strings.ReplaceAll(line, "check(", "must("))
			}
			require.Contains(t, string(code), indented.String())
		}
	}
	declared := ""
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		declared += string(b)
	}
	names := regexp.MustCompile("`(?:build|Builder)\\.([A-Z][A-Za-z0-9]*)").FindAllStringSubmatch(string(text), -1)
	require.GreaterOrEqual(t, len(names), 20)
	for _, n := range names {
		require.Regexp(t, `(?m)^(func (\([^)]*\) )?|type )`+n[1]+`\b`, declared, n[0])
	}
}
