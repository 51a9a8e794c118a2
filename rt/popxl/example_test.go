package popxl_test

import (
	"context"
	"fmt"
	"log"

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
	// example_test.go:16: ops.MatMul: a is f32[2,3] and b is f32[2,3], want as many columns of a as rows of b: 3 and 2
	// example_test.go:18: ops.Sum: axis 2, want one from -2 to 1
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
