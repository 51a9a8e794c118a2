package rt_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
)

// A generated runner computes synchronously, in the caller's goroutine and over
// the caller's memory: one field for each tensor, and a compiler that knows
// their shapes. Open is the generated package's.
func Example_run() {
	runner := openExample() // affine.Open(ctx, &affine.LoadInputs{B: …}, "affine.popef")
	defer runner.Close()

	in, out := NewInputs(), NewOutputs()
	in.X[0].Data = [2]float32{1, 2}
	in.X[1].Data = [2]float32{3, 4}
	if err := runner.Run(context.Background(), in, out); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out.Y[0].Data, out.Y[1].Data)
	// Output: [12 26] [16 32]
}

// Requests that others compute: one ticket stands for all outputs of a request.
func Example_submit() {
	ctx := context.Background()
	runner := openExample()
	defer runner.Close()

	var tickets [3]rt.Ticket
	var outs [3]*Outputs
	for i := range tickets {
		in := NewInputs()
		in.X[0].Data[0] = float32(i)
		outs[i] = NewOutputs()
		var err error
		if tickets[i], err = runner.Submit(ctx, in, outs[i]); err != nil {
			fmt.Println(err) // ctx ended before there was room
			return
		}
	}
	for i, ticket := range tickets {
		fmt.Println(ticket.Wait(ctx), outs[i].Y[0].Data[0])
	}
	// Output:
	// <nil> 10
	// <nil> 12
	// <nil> 14
}

// Any number of samples at a time: what does not fill a batch shares one with
// other callers' samples, or is padded.
func ExampleWithBatching() {
	runner := openExample(rt.WithBatching(rt.BatchPolicy{Linger: 0}), rt.WithData("w", floats(2, 2)), rt.WithData("b", floats(1, 1)))
	defer runner.Close()

	x := []XSample{{1}, {2}, {3}, {4}, {5}, {6}, {7}}
	y := make([]YSample, len(x))
	if err := runner.RunSamples(context.Background(), x, y); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y)
	// Output: [{3} {5} {7} {9} {11} {13} {15}]
}

// Three replicas of the model, each with a device of its own. A request goes to
// the one that is least busy, or to the one that the caller names.
func ExampleWithReplicas() {
	ctx := context.Background()
	sys := exampleSystem(3)
	runner := openExample(rt.WithReplicas(3), rt.WithManager(sys.Manager()))
	defer runner.Close()

	in, out := NewInputs(), NewOutputs()
	must(runner.Run(ctx, in, out))
	must(runner.RunOn(ctx, 2, in, out))
	for i := range 3 {
		fmt.Println("replica", i, "on device", runner.Replica(i).Device().Info().ID)
	}
	fmt.Println(runner.RunOn(ctx, 3, in, out))
	// Output:
	// replica 0 on device 0
	// replica 1 on device 1
	// replica 2 on device 2
	// affine.popef: run: no such replica: 3 of 3
}

// Replicas on devices that the caller chose and owns.
func ExampleWithReplicaDevices() {
	sys := exampleSystem(2)
	devices := map[int]ipu.Device{0: sys.Device(1), 1: sys.Device(0)}
	runner := openExample(rt.WithReplicas(2), rt.WithReplicaDevices(devices), rt.WithManager(sys.Manager()))

	fmt.Println(runner.Replica(0).Device().Info().ID, runner.Replica(1).Device().Info().ID)
	must(runner.Close())
	fmt.Println("still attached:", sys.Attached(0), sys.Attached(1))
	for _, d := range devices {
		must(d.Detach())
	}
	// Output:
	// 1 0
	// still attached: true true
}

// Any number of goroutines may call at the same time.
func Example_concurrent() {
	ctx := context.Background()
	runner := openExample()
	defer runner.Close()

	var sums [8]float32
	var all sync.WaitGroup
	for i := range sums {
		all.Go(func() {
			in, out := NewInputs(), NewOutputs()
			in.X[0].Data[0] = float32(i)
			if err := runner.Run(ctx, in, out); err != nil {
				fmt.Println(err)
			}
			sums[i] = out.Y[0].Data[0]
		})
	}
	all.Wait()
	fmt.Println(sums)
	// Output: [10 12 14 16 18 20 22 24]
}

// A frozen input has the same value in every request, which need not give it:
// generated code has a typed option for each. WithData overrides what the
// model's file carries, too.
func ExampleWithData() {
	runner := openExample(FreezeX(&X{Data: [2]float32{1, 1}}), rt.WithData("w", floats(100, 1000)))
	defer runner.Close()

	out := NewOutputs()
	must(runner.Run(context.Background(), &Inputs{}, out))
	fmt.Println(out.Y[0].Data)
	// Output: [110 1020]
}

// The save programs run when the runner is closed, into typed memory for each
// replica.
func Example_saveAtClose() {
	sys := exampleSystem(2)
	runner := openExample(rt.WithReplicas(2), rt.WithManager(sys.Manager()))
	var saved [2]SaveOutputs
	for i := range saved {
		saved[i].W = new(W)
		must(runner.SaveAtClose(context.Background(), i, &saved[i]))
	}
	must(runner.Close())
	fmt.Println(saved[0].W.Data, saved[1].W.Data)
	// Output: [2 3] [2 3]
}

// Weights change while the runner stays open. Requests that go on meanwhile
// compute with the old ones or the new ones.
func Example_updateWeights() {
	ctx := context.Background()
	runner := openExample()
	defer runner.Close()

	in, out := NewInputs(), NewOutputs()
	in.X[0].Data = [2]float32{1, 1}
	must(runner.Run(ctx, in, out))
	fmt.Println(out.Y[0].Data)
	must(runner.UpdateWeights(ctx, rt.WeightOf(NameW, &W{Data: [2]float32{5, 6}})))
	must(runner.Run(ctx, in, out))
	fmt.Println(out.Y[0].Data)
	// Output:
	// [12 23]
	// [15 26]
}

// A device fails. The request under way fails with an error that says what
// repairs it; with AutoReset the next one resets the device and succeeds.
func ExampleAutoReset() {
	ctx := context.Background()
	sys := exampleSystem(1)
	runner := openExample(rt.AutoReset(), rt.WithManager(sys.Manager()))
	defer runner.Close()
	sys.Inject(iputest.OnRun(mainProgram), &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset})

	in, out := NewInputs(), NewOutputs()
	err := runner.Run(ctx, in, out)
	var failure *rt.DeviceError
	if errors.As(err, &failure) {
		fmt.Println("request", failure.Request, "failed, needs", failure.Recovery)
	}
	fmt.Println(runner.Run(ctx, in, out))
	// Output:
	// request 1 failed, needs IPU_RESET
	// <nil>
}

// How long requests took, in all and in every phase, as typed numbers.
func ExampleTimed() {
	ctx := context.Background()
	runner := openExample(rt.Timed())
	defer runner.Close()

	in, out := NewInputs(), NewOutputs()
	for range 10 {
		must(runner.Run(ctx, in, out))
	}
	stats := runner.Session().Stats()
	fmt.Println(stats.Requests, "requests,", stats.Errors, "errors")
	fmt.Println(stats.Request.Min <= stats.Request.Mean, stats.Request.P50 <= stats.Request.P99, stats.Request.Percentile(0.9) > 0)
	last := runner.Session().Traces()[9]
	fmt.Println(last.Request, last.Computation <= last.Total)
	// Output:
	// 10 requests, 0 errors
	// true true true
	// 10 true
}

// What a model takes and gives, load tensors included.
func ExampleSession_Contract() {
	runner := openExample()
	defer runner.Close()

	for _, a := range runner.Session().Contract().Anchors {
		fmt.Println(a.Name, a.Role, a.Info, a.HasData)
	}
	// Output:
	// b load input F32 [2] false
	// w load data F32 [2] true
	// w save output F32 [2] false
	// x run input F32 [2] false
	// y run output F32 [2] false
}
