// Package oip has the words of the Open Inference Protocol, version 2, that servers, clients and
// generated packages share: data types, tensors, what a model takes and gives (Spec), a model that is
// served (Model) with the memory of one request (Call), what a client sends a request through
// (Transport), and the errors that both protocols report. It imports nothing but the standard library, and no
// protocol: package serve has the server.
//
// Elements are in row-major order, each little-endian, in memory as on the wire.
package oip

import "context"

// Spec says what callers see of a model. It does not change once the model is served.
type Spec struct {
	Name     string   // the model's name, unless the server gives it another
	Contract string   // the text of the contract, see package popef/contract; "" if the model has none
	Inputs   []Tensor // in the order of the contract
	Outputs  []Tensor
	// Samples, if above 0, is the most samples that one request may have: axis 0 of every tensor counts
	// them, with Shape[0] = -1 and Max[0] = Samples. Clients call it max_batch_size.
	Samples int
}

// Tensor describes an input or output of a model.
type Tensor struct {
	Name  string
	Type  DataType
	Shape []int64 // the size of each axis, -1 where requests choose it (inputs) or data decides it (outputs)
	Max   []int64 // the largest size of each axis; nil if none is open
	// Labels are the names of the classes, by index along the last axis, for the extension
	// "classification"; nil if there are none.
	Labels []string
}

// Open reports whether an axis has a size that requests choose or data decides.
func (t *Tensor) Open() bool { return t.Max != nil }

// Largest returns the size of axis i at most.
func (t *Tensor) Largest(i int) int64 {
	if t.Max != nil {
		return t.Max[i]
	}
	return t.Shape[i]
}

// MaxElements returns how many elements the tensor has at most. Sizes of a model that is served
// multiply without overflow.
func (t *Tensor) MaxElements() int64 {
	n := int64(1)
	for i := range t.Shape {
		n *= t.Largest(i)
	}
	return n
}

// MaxBytes returns how many bytes its elements take at most.
func (t *Tensor) MaxBytes() int64 { return t.MaxElements() * int64(t.Type.Size()) }

// Model is a model that is served: the Served of a generated package, or a file that package
// serve/dynamic opened. Its methods may be called from any goroutine.
type Model interface {
	// Spec returns what callers see of the model, always the same.
	Spec() *Spec
	// Parallel returns how many requests the model computes at the same time, at least 1: its replicas,
	// or as many as fill the batches of its replicas.
	Parallel() int
	// NewCall returns memory for one request, which servers keep and use for one request after the other.
	NewCall() Call
	// Shutdown waits for requests under way and closes the model. If ctx ends first it closes at once
	// and returns the error of ctx.
	Shutdown(ctx context.Context) error
}

// Call is the memory of one request to a model: a server has every input's memory filled, runs it, and
// reads the outputs. Its methods are for one goroutine at a time. No method allocates once the call has
// the memory that it needs, and Run not at all.
type Call interface {
	// Input returns the memory of input i with that shape, to be filled whole. The server has checked that shape has
	// the rank of the tensor, the sizes that are fixed, and no open one below 0 or above its largest. The slice
	// is valid until the next Input of i.
	Input(i int, shape []int64) ([]byte, error)
	// Run computes the outputs of the inputs. It returns an *Error of the code InvalidArgument for
	// sizes that do not fit each other, or that no size of the model takes, and others as the engine
	// reports them. It does not keep ctx, which ends with the request.
	Run(ctx context.Context) error
	// Output returns output i of the last Run and its shape. Both are valid until the next Input or Run.
	Output(i int) (data []byte, shape []int64)
}

// Transport carries requests of a typed client to a server. Its methods may be called from any goroutine.
type Transport interface {
	// Infer sends the inputs of x to the model that spec names and has the server's answer written to its
	// outputs. The request carries the hash of spec.Contract, unless that is "": a server whose model has another
	// contract, which is not compatible, answers FailedPrecondition with the difference.
	Infer(ctx context.Context, spec *Spec, x Exchange) error
	// Close closes the connections.
	Close() error
}

// Exchange is one request as a client sees it, the other side of a [Call]. Its methods are for one goroutine at a time.
type Exchange interface {
	// Given returns input i and its shape.
	Given(i int) (data []byte, shape []int64)
	// Take returns memory for output i with that shape, which the transport fills. The transport has checked
	// rank, fixed sizes and the largest ones.
	Take(i int, shape []int64) ([]byte, error)
}
