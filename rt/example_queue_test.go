package rt_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Queues for everything that the caller has to give data or memory for. The
// session owns them.
func ExampleNewQueueManager() {
	session := exampleSession()
	defer session.Close()

	queues, err := modelrt.NewQueueManager(context.Background(), session, modelrt.QueueConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, q := range queues.Inputs() {
		fmt.Println("input", q.Name(), q.Info(), q.NumBuffers())
	}
	for _, q := range queues.Outputs() {
		fmt.Println("output", q.Name(), q.Info(), q.NumBuffers())
	}
	_, err = queues.InputQueue("z")
	fmt.Println(err)
	// Output:
	// input x F32 [4 2] 8
	// output w F32 [2] 1
	// output y F32 [4 2] 8
	// line.popef: find a queue: input queue "z": no such queue; there are ["x"]
}

// exampleQueues makes the queues of x and y.
func exampleQueues(session rt.Session, c modelrt.QueueConfig) (*modelrt.QueueManager, *modelrt.InputQueue, *modelrt.OutputQueue) {
	m, err := modelrt.NewQueueManager(context.Background(), session, c)
	must(err)
	x, err := m.InputQueue("x")
	must(err)
	y, err := m.OutputQueue("y")
	must(err)
	return m, x, y
}

// The model was compiled for batches of four samples. The caller enqueues any
// number of them: requests of one, two and five samples make two runs.
func ExampleInputQueue() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	_, x, y := exampleQueues(session, modelrt.QueueConfig{})

	next := float32(0)
	for i, n := range []int{1, 2, 5} {
		var in []float32
		for range n {
			next++
			in = append(in, next, next)
		}
		out := make([]byte, n*exampleSample)
		must(x.Enqueue(ctx, modelrt.InputData{
			Data:           floats(in...),
			OnReadStart:    func() { fmt.Println("request", i, "is being read") },
			OnReadComplete: func() { fmt.Println("request", i, "was read") },
		}))
		must(y.Enqueue(ctx, modelrt.OutputData{
			Data:            out,
			OnWriteComplete: func() { fmt.Println("request", i, "gives", values(out)) },
		}))
	}
	for i := range 2 {
		fmt.Println("run", i)
		must(session.Run(ctx))
	}
	// Output:
	// run 0
	// request 0 is being read
	// request 1 is being read
	// request 2 is being read
	// request 0 was read
	// request 1 was read
	// request 0 gives [12 23]
	// request 1 gives [14 26 16 29]
	// run 1
	// request 2 was read
	// request 2 gives [18 32 20 35 22 38 24 41 26 44]
}

// Memory that is not a whole number of samples is refused.
func ExampleInputQueue_Enqueue() {
	session := exampleSession()
	defer session.Close()
	_, x, _ := exampleQueues(session, modelrt.QueueConfig{})

	err := x.Enqueue(context.Background(), modelrt.InputData{Data: make([]byte, 10)})
	fmt.Println(err)
	// Output: line.popef: enqueue: anchor "x": not a whole number of samples: 10 bytes, want a positive multiple of 8
}

// A buffer is locked, filled in and handed over, as with a ring.
func ExampleInputQueue_EnqueueLock() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	_, x, y := exampleQueues(session, modelrt.QueueConfig{})
	in, out := floats(1, 1, 2, 2, 3, 3, 4, 4), make([]byte, exampleBatch*exampleSample)

	src, err := x.EnqueueLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	src.Data = in
	must(x.EnqueueComplete())
	dst, err := y.EnqueueLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	dst.Data = out
	must(y.EnqueueComplete())

	must(session.Run(ctx))
	fmt.Println(values(out))
	// Output: [12 23 14 26 16 29 18 32]
}

// Results are scattered to memory of any number of samples. Nobody may read it
// before it is complete.
func ExampleOutputQueue() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	_, x, y := exampleQueues(session, modelrt.QueueConfig{})

	one, three := make([]byte, exampleSample), make([]byte, 3*exampleSample)
	must(x.Enqueue(ctx, modelrt.InputData{Data: floats(1, 1, 2, 2, 3, 3, 4, 4)}))
	must(y.Enqueue(ctx, modelrt.OutputData{Data: one}))
	must(y.Enqueue(ctx, modelrt.OutputData{Data: three, OnDone: func(err error) { fmt.Println("three:", err) }}))
	must(session.Run(ctx))
	fmt.Println(values(one), values(three))
	// Output:
	// three: <nil>
	// [12 23] [14 26 16 29 18 32]
}

// Three samples wait for a fourth that does not come: dummy data completes the
// batch in every queue, and the dummy's result goes nowhere.
func ExampleQueueManager_FlushAll() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	queues, x, y := exampleQueues(session, modelrt.QueueConfig{})

	out := make([]byte, 3*exampleSample)
	must(x.Enqueue(ctx, modelrt.InputData{Data: floats(1, 1, 2, 2, 3, 3)}))
	fmt.Println(errors.Is(queues.FlushAll(), modelrt.ErrUnbalanced)) // half of a request is there
	must(y.Enqueue(ctx, modelrt.OutputData{Data: out}))
	must(queues.FlushAll())
	must(session.Run(ctx))
	fmt.Println(values(out))
	// Output:
	// true
	// [12 23 14 26 16 29]
}

// A device that has waited for data for a millisecond goes on with dummies.
func ExampleFlushOnTimeout() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	_, x, y := exampleQueues(session, modelrt.QueueConfig{Timeout: time.Millisecond, OnTimeout: modelrt.FlushOnTimeout})

	out := make([]byte, exampleSample)
	must(x.Enqueue(ctx, modelrt.InputData{Data: floats(1, 1)}))
	must(y.Enqueue(ctx, modelrt.OutputData{Data: out}))
	must(session.Run(ctx)) // would otherwise wait for three more samples
	fmt.Println(values(out))
	// Output: [12 23]
}

// Several goroutines enqueue requests to the same queues, each all at once. A
// ticket tells when results have arrived.
func ExampleQueueGroup() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	queues, x, y := exampleQueues(session, modelrt.QueueConfig{})
	request, err := queues.Group(x, y)
	must(err)
	go func() { must(queues.Run(ctx)) }()

	var results [2][]byte
	var all sync.WaitGroup
	for i := range results {
		results[i] = make([]byte, exampleBatch/2*exampleSample)
		all.Go(func() {
			ticket, err := request.Enqueue(ctx, floats(float32(i), 0, 0, 0), results[i])
			must(err)
			must(ticket.Wait(ctx))
		})
	}
	all.Wait()
	fmt.Println(values(results[0]), values(results[1]))
	// Output: [10 20 10 20] [12 20 10 20]
}

// The device side runs whenever there are requests, in an errgroup with what else
// the program does. A shutdown lets it compute what was enqueued before.
func ExampleQueueManager_Run() {
	session := exampleSession()
	defer session.Close()
	queues, x, y := exampleQueues(session, modelrt.QueueConfig{})
	request, err := queues.Group(x, y)
	must(err)

	group, ctx := errgroup.WithContext(context.Background())
	group.Go(func() error { return queues.Run(ctx) })
	group.Go(func() error {
		out := make([]byte, exampleBatch*exampleSample)
		ticket, err := request.Enqueue(ctx, floats(1, 1, 2, 2, 3, 3, 4, 4), out)
		if err != nil {
			return err
		}
		if err := ticket.Wait(ctx); err != nil {
			return err
		}
		fmt.Println(values(out))
		return session.Shutdown(ctx)
	})
	fmt.Println(group.Wait())
	// Output:
	// [12 23 14 26 16 29 18 32]
	// <nil>
}

// Disconnected queues let a program that waits for data come to its end, at the
// close of a service for instance.
func ExampleQueueManager_DisconnectAll() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	queues, x, _ := exampleQueues(session, modelrt.QueueConfig{})

	ended := make(chan error)
	go func() { ended <- session.Run(ctx) }() // waits: nothing is enqueued
	time.Sleep(time.Millisecond)
	queues.DisconnectAll()
	fmt.Println(<-ended)
	fmt.Println(x.Enqueue(ctx, modelrt.InputData{Data: floats(1, 1)}))
	// Output:
	// <nil>
	// line.popef: enqueue: anchor "x": queue is disconnected
}

// After a stop, queues are empty and connected again. What was enqueued and not
// used up is returned.
func ExampleQueueManager_ResetAll() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	queues, x, y := exampleQueues(session, modelrt.QueueConfig{})

	must(x.Enqueue(ctx, modelrt.InputData{Data: floats(9, 9), OnDone: func(err error) { fmt.Println("returned:", err) }}))
	must(session.Stop())
	must(session.Reload(ctx))
	must(queues.ResetAll(ctx))

	out := make([]byte, exampleBatch*exampleSample)
	must(x.Enqueue(ctx, modelrt.InputData{Data: floats(1, 1, 2, 2, 3, 3, 4, 4)}))
	must(y.Enqueue(ctx, modelrt.OutputData{Data: out}))
	must(session.Run(ctx))
	fmt.Println(values(out))
	// Output:
	// returned: line.popef: return memory: anchor "x": before it was used up: queue is disconnected
	// [12 23 14 26 16 29 18 32]
}

// Large rings for what main programs move, small ones for weights that are
// moved once.
func ExampleRingSizeForMain() {
	session := exampleSession()
	defer session.Close()
	main := modelrt.RingSizeForMain(session.Contract(), 8, 1)
	save := modelrt.RingSizeForPrograms([]uint32{2}, 3, 1)
	for _, handle := range []string{"h2d_x", "d2h_w"} {
		a := *session.Contract().Anchor(handle)
		fmt.Println(handle, main(a), save(a))
	}
	_, x, _ := exampleQueues(session, modelrt.QueueConfig{RingSize: main})
	fmt.Println(x.NumBuffers(), "samples, each on its own, find room")
	// Output:
	// h2d_x 8 1
	// d2h_w 1 3
	// 32 samples, each on its own, find room
}

// A pool hands out its blobs in turn, and none that is in use.
func ExampleRingPool() {
	pool, err := modelrt.NewRingPool(64, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := pool.Get()
	must(err)
	_, err = pool.Get()
	must(err)
	_, err = pool.Get()
	fmt.Println(err)
	must(a.Release())
	again, err := pool.Get()
	fmt.Println(again == a, err)
	// Output:
	// ring pool: blob is in use: number 1 of 2
	// true <nil>
}

// A pool that is large enough to back a queue; every blob goes back by itself
// once the device has used it.
func ExampleNewQueuePool() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	_, x, y := exampleQueues(session, modelrt.QueueConfig{})
	inputs, err := modelrt.NewQueuePool(x, 1)
	must(err)
	fmt.Println(inputs.NumBlobs(), "blobs of", inputs.BlobSize(), "bytes")

	for i := range 20 { // more often than there are blobs
		blob, err := inputs.Get()
		must(err)
		copy(blob.Bytes(), floats(float32(i), 0))
		must(x.Enqueue(ctx, modelrt.InputData{Data: blob.Bytes(), OnDone: blob.Done()}))
		out := make([]byte, exampleBatch*exampleSample)
		must(y.Enqueue(ctx, modelrt.OutputData{Data: out}))
		must(session.Run(ctx))
		if i == 19 {
			fmt.Println(values(out)[0])
		}
	}
	// Output:
	// 9 blobs of 32 bytes
	// 48
}
