package popxl_test

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

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// The Go side of docs/porting.md, section "PopXL's sessions": an example for each listing of that chapter of PopXL's user guide. listings_test.go checks the same listings step by step.

// check stands for what a program does with errors.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Listing 12.1: a session of a finished Ir, on a simulated device.
func ExampleNewSession_device() {
	ctx := context.Background()
	ir := popxl.New("tensor_addition")
	a, b := popxl.NewVariable(ir, "a", []int32{3}), popxl.Constant(ir, []int32{1})
	o := popxl.NewOutput("o", ops.Add(a.Tensor(), b))

	s, err := popxl.NewSession(ctx, ir, popxl.IPUModel)
	check(err)
	defer s.Close()
	outputs := o.Make()
	check(s.In(ctx, func() error { return s.Run(ctx, o.Into(outputs)) }))
	fmt.Println(outputs)
	// Output:
	// [4]
}

// Listings 12.2 and 12.3: a run with inputs, into memory that the stream makes and into part of a larger slice.
func ExampleSession_Run() {
	ctx := context.Background()
	ir := popxl.New("tensor_addition")
	a, b := popxl.NewInput[float32](ir, "a", 1), popxl.NewInput[float32](ir, "b", 1)
	o := popxl.NewOutput("o", ops.Add(a.Load(), b.Load()))
	s, err := popxl.NewSession(ctx, ir)
	check(err)
	defer s.Close()

	outputs, larger := o.Make(), make([]float32, 3)
	check(s.In(ctx, func() error {
		if err := s.Run(ctx, a.Feed([]float32{2}), b.Feed([]float32{3}), o.Into(outputs)); err != nil {
			return err
		}
		return s.Run(ctx, a.Feed([]float32{4}), b.Feed([]float32{5}), o.Into(larger[1:2]))
	}))
	fmt.Println(outputs, larger)

	err = s.Run(ctx, a.Feed([]float32{2}), b.Feed([]float32{3}), o.Into(outputs))
	fmt.Println(err)
	// Output:
	// [5] [0 9 0]
	// tensor_addition: run: the session is not attached to its device: call Attach first, or In
}

// Listing 12.4: the data of a variable is read and written.
func ExampleSession_Variables() {
	ctx := context.Background()
	ir := popxl.New("tensor_get_write")
	a, b := popxl.NewVariable(ir, "a", []int32{3}), popxl.NewVariable(ir, "b", []int32{1})
	o := popxl.NewOutput("o", ops.Add(a.Tensor(), b.Tensor()))
	s, err := popxl.NewSession(ctx, ir, popxl.IPUModel)
	check(err)
	defer s.Close()
	outputs, aData, bData := o.Make(), []int32{0}, []int32{0}

	scope, err := s.Attach(ctx)
	check(err)
	check(s.Run(ctx, o.Into(outputs)))
	check(s.Variables(ctx, a.Into(aData), b.Into(bData)))
	fmt.Println(outputs, aData, bData)

	check(s.SetVariables(ctx, a.Set([]int32{5}))) // on the host and on the device
	check(s.Variables(ctx, a.Into(aData)))
	check(s.Run(ctx, o.Into(outputs)))
	fmt.Println(outputs, aData)
	check(scope.Close())
	// Output:
	// [4] [3] [1]
	// [6] [5]
}

// Listing 12.5: when variables are copied between host and device. A run adds 1 to a.
func ExampleSession_transfers() {
	ctx := context.Background()
	ir := popxl.New("tensor_get_write_adv")
	a := popxl.NewVariable(ir, "a", []int32{3})
	a.Assign(ops.Add(a.Tensor(), popxl.Constant(ir, []int32{1})))
	popxl.NewOutput("o", a.Tensor()) // an Ir has an output, though no run has to ask for it
	s, err := popxl.NewSession(ctx, ir, rt.WithObserver(func(e rt.Event) {
		switch e.Kind {
		case rt.EventLoaded:
			fmt.Println("  to the device")
		case rt.EventSaved:
			fmt.Println("  to the host")
		}
	}))
	check(err)
	defer s.Close()
	data := []int32{0}

	fmt.Println("write, detached")
	check(s.SetVariables(ctx, a.Set([]int32{5})))
	fmt.Println("attach")
	check(s.In(ctx, func() error {
		fmt.Println("read")
		check(s.Variables(ctx, a.Into(data)))
		fmt.Println("run, read")
		check(s.Run(ctx))
		check(s.Variables(ctx, a.Into(data)))
		fmt.Println("write, read")
		check(s.SetVariables(ctx, a.Set([]int32{8})))
		check(s.Variables(ctx, a.Into(data)))
		fmt.Println("run, detach")
		return s.Run(ctx)
	}))
	fmt.Println("read, detached")
	check(s.Variables(ctx, a.Into(data)))
	fmt.Println(data)
	// Output:
	// write, detached
	// attach
	//   to the device
	// read
	// run, read
	//   to the host
	// write, read
	//   to the device
	// run, detach
	//   to the host
	// read, detached
	// [9]
}

// Listing 12.6: scopes within each other. The one that attached the session detaches it.
func ExampleSession_Attach() {
	ctx := context.Background()
	ir := popxl.New("nested_session_contexts")
	x := popxl.NewInput[float32](ir, "x")
	popxl.NewOutput("y", ops.Negate(x.Load()))
	s, err := popxl.NewSession(ctx, ir)
	check(err)
	defer s.Close()

	outer, err := s.Attach(ctx)
	check(err)
	inner, err := s.Attach(ctx) // attached already: nothing is copied
	check(err)
	check(inner.Close())
	fmt.Println("behind the inner scope:", s.Attached())
	check(outer.Close())
	fmt.Println("behind the outer scope:", s.Attached())
	// Output:
	// behind the inner scope: true
	// behind the outer scope: false
}

// denseLayer is a layer, as a module of PopXL: its parameters are what calls give it.
type denseLayer struct {
	*popxl.Graph
	x, w, b popxl.Param[float32]
	y       popxl.Result[float32]
}

// Listing 12.7: a loop over a graph that loads and stores in every iteration.
func ExampleGraph_Repeat() {
	const repeatCount = 8
	ctx := context.Background()
	ir := popxl.New("repeat_graph_2")
	xH2D, yD2H := popxl.NewInput[float32](ir, "x_stream", 2, 2), popxl.DeclareOutput[float32](ir, "y_stream", 2, 2)
	w := popxl.NewVariable(ir, "W", []float32{1, 1, 1, 1}, 2, 2)
	b := popxl.NewVariable(ir, "b", []float32{1, 1}, 2)

	var l denseLayer
	l.Graph = popxl.NewGraph(ir, "Linear", func(g *popxl.Graph) {
		l.x = popxl.NewParam[float32](g, "x", 2, 2) // carried, and not used: the graph loads what it computes with
		l.w, l.b = popxl.NewParam[float32](g, "W", 2, 2), popxl.NewParam[float32](g, "b", 2)
		y := ops.Add(ops.MatMul(xH2D.Next(), l.w.Tensor()), l.b.Tensor())
		yD2H.Store(y)
		l.y = popxl.NewResult(g, y)
	})
	l.Repeat(repeatCount, l.x.From(ops.Init[float32](ir, 2, 2), l.y), l.w.Is(w.Tensor()), l.b.Is(b.Tensor()))
	for _, t := range ir.Transfers() {
		fmt.Println(t.Name, t.Count) // num_host_transfers
	}

	s, err := popxl.NewSession(ctx, ir)
	check(err)
	defer s.Close()
	data, outputs := make([]float32, repeatCount*2*2), yD2H.Make() // [8, 2, 2]
	for i := range data {
		data[i] = float32(i)
	}
	check(s.In(ctx, func() error { return s.Run(ctx, xH2D.Feed(data), yD2H.Into(outputs)) }))
	fmt.Println(outputs[:4], outputs[28:])
	// Output:
	// x_stream 8
	// y_stream 8
	// [2 2 6 6] [58 58 62 62]
}

// TestPorting: every block of Go of the section on PopXL of docs/porting.md is a part of an example of this file, which is run.
func TestPorting(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "porting.md"))
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## PopXL's sessions\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	code, err := os.ReadFile("porting_test.go")
	require.NoError(t, err)
	examples := regexp.MustCompile(`(?m)^\t`).ReplaceAllString(string(code), "")
	found := blocks(section, "go")
	require.Len(t, found, 6)
	for _, b := range found {
		for part := range strings.SplitSeq(b, "// …\n") {
			require.Contains(t, examples, part)
		}
	}
}
