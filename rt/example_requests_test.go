package rt_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// A request has a context. Submit waits for room until it ends, and a request
// whose turn has not come by then never reaches the engine.
func Example_requestContext() {
	runner := openExample()
	defer runner.Close()

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := runner.Submit(ctx, NewInputs(), NewOutputs())
	fmt.Println(errors.Is(err, context.Canceled))
	// Output: true
}

// A ticket's channel is closed when the memory of the request is the caller's
// again. A ticket that nobody waits for may be dropped.
func ExampleTicket_Done() {
	ctx := context.Background()
	runner := openExample()
	defer runner.Close()

	in, out := NewInputs(), NewOutputs()
	in.X[0].Data[0] = 1
	ticket, err := runner.Submit(ctx, in, out)
	must(err)
	select {
	case <-ticket.Done():
		fmt.Println(ticket.Err(), out.Y[0].Data[0])
	case <-ctx.Done():
		ticket.Cancel()
	}
	// Output: <nil> 12
}

// Shutdown lets requests end that were accepted, refuses new ones, and closes.
func Example_shutdown() {
	ctx := context.Background()
	runner := openExample()

	out := NewOutputs()
	ticket, err := runner.Submit(ctx, NewInputs(), out)
	must(err)
	must(runner.Shutdown(ctx))
	fmt.Println(ticket.Wait(ctx), out.Y[0].Data)
	fmt.Println(errors.Is(runner.Run(ctx, NewInputs(), out), rt.ErrClosed))
	// Output:
	// <nil> [10 20]
	// true
}

// Samples may be submitted too: those of several callers share a batch.
func Example_submitSamples() {
	ctx := context.Background()
	runner := openExample(rt.WithBatching(rt.BatchPolicy{}), rt.WithData("w", floats(2, 2)), rt.WithData("b", floats(1, 1)))
	defer runner.Close()

	x, y := []XSample{{1}, {2}, {3}}, make([]YSample, 3)
	ticket, err := runner.SubmitSamples(ctx, x, y)
	must(err)
	fmt.Println(ticket.Wait(ctx), y)
	// Output: <nil> [{3} {5} {7}]
}

// Rows of an array are pointers into it: a range over the array itself would
// copy each. Generated tensors have a method that does this.
func ExampleRows() {
	var y struct{ Data [2][3]float32 }
	for i, row := range genrt.Rows(y.Data[:]) {
		row[i] = 1
	}
	fmt.Println(y.Data)
	// Output: [[1 0 0] [0 1 0]]
}
