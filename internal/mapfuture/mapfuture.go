// Package mapfuture is a model runner of the usual design, written for
// benchmarks to compare with: tensors are found by their names in maps, memory
// for results is allocated for each request, a worker takes requests from a
// queue behind a mutex, and the caller waits for a future. It stands for the
// design only; none of its code is that of an existing runner.
package mapfuture

import (
	"errors"
	"fmt"
	"sync"
)

// Tensors are tensors' bytes by name.
type Tensors = map[string][]byte

// ErrClosed is the error of requests to a closed runner.
var ErrClosed = errors.New("the runner is closed")

// Runner serves requests in the order in which they come.
type Runner struct {
	inputs, outputs map[string]int // sizes in bytes
	program         func(in, out Tensors)
	device          Tensors // memory that the program reads and writes

	mu     sync.Mutex
	some   sync.Cond // a request came, or the runner was closed
	queue  []request
	closed bool
	idle   chan struct{} // closed when the worker has ended
}

type request struct {
	in  Tensors
	out *Future
}

// Future is the outcome of a request, some time later.
type Future struct {
	mu   sync.Mutex
	set  sync.Cond
	done bool
	out  Tensors
	err  error
}

// New starts a runner of a program, for tensors of these names and sizes.
// program is called with memory for all of them.
func New(inputs, outputs map[string]int, program func(in, out Tensors)) *Runner {
	r := &Runner{inputs: inputs, outputs: outputs, program: program, device: Tensors{}, idle: make(chan struct{})}
	r.some.L = &r.mu
	for _, sizes := range []map[string]int{inputs, outputs} {
		for name, size := range sizes {
			r.device[name] = make([]byte, size)
		}
	}
	go r.serve()
	return r
}

// Execute queues a request. The inputs must not change until its future is
// there.
func (r *Runner) Execute(in Tensors) *Future {
	f := &Future{}
	f.set.L = &f.mu
	for name, size := range r.inputs {
		if n := len(in[name]); n != size {
			f.resolve(nil, fmt.Errorf("input %q has %d bytes, want %d", name, n, size))
			return f
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		f.resolve(nil, ErrClosed)
		return f
	}
	r.queue = append(r.queue, request{in, f})
	r.some.Signal()
	return f
}

// Wait returns the request's outputs, in memory that nobody else has.
func (f *Future) Wait() (Tensors, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.done {
		f.set.Wait()
	}
	return f.out, f.err
}

func (f *Future) resolve(out Tensors, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done, f.out, f.err = true, out, err
	f.set.Broadcast()
}

// Close ends the runner after the requests that are queued.
func (r *Runner) Close() {
	r.mu.Lock()
	r.closed = true
	r.some.Signal()
	r.mu.Unlock()
	<-r.idle
}

func (r *Runner) serve() {
	defer close(r.idle)
	for {
		r.mu.Lock()
		for len(r.queue) == 0 && !r.closed {
			r.some.Wait()
		}
		if len(r.queue) == 0 {
			r.mu.Unlock()
			return
		}
		next := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		next.out.resolve(r.run(next.in), nil)
	}
}

func (r *Runner) run(in Tensors) Tensors {
	for name := range r.inputs {
		copy(r.device[name], in[name])
	}
	r.program(r.device, r.device)
	out := make(Tensors, len(r.outputs))
	for name, size := range r.outputs {
		out[name] = make([]byte, size)
		copy(out[name], r.device[name])
	}
	return out
}
