package popxl_test

import (
	"context"
	"fmt"
	"log"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// A wrong shape is an error with the file and line of the call.
func ExampleIr_Err() {
	ir := popxl.New("wrong")
	x := popxl.NewInput[float32](ir, "x", 2, 3).Load()
	y := ops.MatMul(x, x)
	popxl.NewOutput("y", ops.Relu(y)) // not reported: it follows from the line before
	ops.Sum(x, 2)
	fmt.Println(ir.Err())
	// Output:
	// example_test.go:17: ops.MatMul: a is f32[2,3] and b is f32[2,3], want as many columns of a as rows of b: 3 and 2
	// example_test.go:19: ops.Sum: axis 2, want one from -2 to 1
}

// A run changes a variable, which the host reads and sets.
func ExampleSession() {
	ctx := context.Background()
	ir := popxl.New("counter")
	x := popxl.NewInput[float32](ir, "x", 2)
	sum := popxl.NewVariable(ir, "sum", []float32{10, 20}, 2)
	sum.Assign(ops.Add(sum.Tensor(), x.Load()))
	y := popxl.NewOutput("y", ops.Negate(sum.Tensor()))

	s, err := popxl.NewSession(ctx, ir)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	got := y.Make()
	err = s.In(ctx, func() error { // attached: variables are on the device
		return s.Run(ctx, x.Feed([]float32{1, 2}), y.Into(got))
	}) // detached: they are on the host again
	if err != nil {
		log.Fatal(err)
	}
	value := make([]float32, 2)
	if err := s.Variables(ctx, sum.Into(value)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(got, value)
	// Output:
	// [-11 -22] [11 22]
}

// A line learns to go through points.
func ExampleMinimize() {
	ctx := context.Background()
	ir := popxl.New("line")
	x, label := popxl.NewInput[float32](ir, "x", 4), popxl.NewInput[float32](ir, "label", 4)
	slope, offset := popxl.NewVariable(ir, "slope", []float32{0}), popxl.NewVariable(ir, "offset", []float32{0})
	y := ops.Add(ops.Mul(x.Load(), slope.Tensor()), offset.Tensor())
	loss := ops.MSELoss(y, label.Load())
	lossOut := popxl.NewOutput("loss", loss)
	sgd := optim.NewSGD()
	sgd.LearningRate = optim.Changeable(0.1)
	popxl.Minimize(loss, popxl.Training{Optimizer: sgd}, slope, offset)

	s, err := popxl.NewSession(ctx, ir)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	l := lossOut.Make()
	err = s.In(ctx, func() error {
		for range 200 {
			if err := s.Run(ctx, x.Feed([]float32{0, 1, 2, 3}), label.Feed([]float32{1, 3, 5, 7}), lossOut.Into(l)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	a, b := []float32{0}, []float32{0}
	if err := s.Variables(ctx, slope.Into(a), offset.Into(b)); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("y = %.2f·x + %.2f, loss %.4f\n", a[0], b[0], l[0])
	// Output:
	// y = 2.00·x + 1.00, loss 0.0000
}

// x to the power of 4 in a loop, or -x.
func ExampleLoop() {
	ir := popxl.New("power")
	x, c := popxl.NewInput[float32](ir, "x"), popxl.NewInput[bool](ir, "c")
	y := ops.Conditional(c.Load(), func() popxl.Tensor[float32] {
		return ops.Repeat(3, x.Load(), func(v popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Mul(v, x.Load()) })
	}, func() popxl.Tensor[float32] { return ops.Negate(x.Load()) })
	out := popxl.NewOutput("y", y)

	ctx := context.Background()
	s, err := popxl.NewSession(ctx, ir)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	err = s.In(ctx, func() error {
		for _, which := range []bool{true, false} {
			got := out.Make()
			if err := s.Run(ctx, x.Feed([]float32{2}), c.Feed([]bool{which}), out.Into(got)); err != nil {
				return err
			}
			fmt.Println(got)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// [16]
	// [-2]
}

// A loop loads a number in every iteration, and stores one.
func ExampleInput_Next() {
	ir := popxl.New("running")
	x, sums := popxl.NewInput[float32](ir, "x"), popxl.DeclareOutput[float32](ir, "sums")
	ops.Repeat(4, ops.Init[float32](ir), func(sum popxl.Tensor[float32]) popxl.Tensor[float32] {
		sum = ops.Add(sum, x.Next())
		sums.Store(sum)
		return sum
	})

	ctx := context.Background()
	s, err := popxl.NewSession(ctx, ir)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	got := sums.Make()
	err = s.In(ctx, func() error { return s.Run(ctx, x.Feed([]float32{1, 2, 3, 4}), sums.Into(got)) })
	fmt.Println(got, err)
	// Output:
	// [1 3 6 10] <nil>
}

// A layer that is called by itself and in a loop, and its gradient graph.
func ExampleGraph() {
	ir := popxl.New("layers")
	var x, w popxl.Param[float32]
	var y popxl.Result[float32]
	layer := popxl.NewGraph(ir, "layer", func(g *popxl.Graph) {
		x, w = popxl.NewParam[float32](g, "x", 2), popxl.NewParam[float32](g, "w", 2)
		y = popxl.NewResult(g, ops.Tanh(ops.Mul(x.Tensor(), w.Tensor())))
	})
	in := popxl.NewInput[float32](ir, "in", 2)
	one, two := popxl.NewVariable(ir, "one", []float32{1, 2}, 2), popxl.NewVariable(ir, "two", []float32{3, 4}, 2)
	first := layer.Call(x.Is(in.Load()), w.Is(one.Tensor()))
	again := layer.Repeat(3, x.From(y.Of(first), y), w.Is(two.Tensor()))
	out := popxl.NewOutput("out", y.Of(again))

	gradients := layer.Autodiff(popxl.GradOptions{})
	seed := popxl.Constant(ir, []float32{1, 1}, 2)
	slope := popxl.NewOutput("slope", popxl.GradientOf(gradients.Call(first, y.Gradient(seed)), x))

	ctx := context.Background()
	s, err := popxl.NewSession(ctx, ir)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	outs, slopes := out.Make(), slope.Make()
	err = s.In(ctx, func() error { return s.Run(ctx, in.Feed([]float32{0, 0.5}), out.Into(outs), slope.Into(slopes)) })
	fmt.Printf("%.3f %.3f %v\n", outs, slopes, err)
	// Output:
	// [0.000 0.999] [1.000 0.840] <nil>
}
