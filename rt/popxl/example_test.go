package popxl_test

import (
	"fmt"

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
	// example_test.go:14: ops.MatMul: a is f32[2,3] and b is f32[2,3], want as many columns of a as rows of b: 3 and 2
	// example_test.go:16: ops.Sum: axis 2, want one from -2 to 1
}
