package rt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef/checkpoint"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt/internal/errs"
)

// The errors of this package, for errors.Is. Those that ipu and back ends
// return too are the same values there.
var (
	// ErrClosed: the runner or session was closed, or never opened. Requests
	// that were under way or waiting when it closed fail with it too. Open
	// another one.
	ErrClosed = ipu.ErrClosed
	// ErrStopped: the session was stopped. [Session.Reload] makes it run again.
	ErrStopped = ipu.ErrStopped
	// ErrUnbound: the session is on no device: it was made with modelrt.Deferred and
	// not bound yet, it was unloaded, or binding or reloading it failed.
	// [Session.Bind] puts it on one, [Session.Reload] on the one that it was on.
	ErrUnbound = errors.New("session is bound to no device")
	// ErrConcurrent: two goroutines called Run, Save or another method that
	// drives the engine at the same time, in spite of the option [SingleCaller].
	// Without it they wait for each other. A stream of a generated package, which
	// keeps a state, always is for one caller at a time.
	ErrConcurrent = errs.ErrConcurrent
	// ErrQueueFull: as many requests as the queue is deep were submitted and have
	// not ended. A generated Submit waits for room, TrySubmit does not.
	ErrQueueFull = errs.ErrQueueFull
	// ErrOverloaded: as many calls wait already as [WithMaxWaiting] allows.
	// Nothing was begun; the caller may come again later, or elsewhere.
	ErrOverloaded = errs.ErrOverloaded
	// ErrNotFaked: a generated Fake has no function for a method that was called.
	ErrNotFaked = errors.New("the fake has no function for this method")
	// ErrTicketUsed: a ticket was waited for to the end before, another goroutine
	// waits for it, or it is the zero Ticket.
	ErrTicketUsed = errs.ErrTicketUsed
	// ErrNilAnchor: the memory of an input or output is nil. The error is a
	// [*NilAnchorError], which names the anchor.
	ErrNilAnchor = errors.New("anchor without memory")
	// ErrLength: a flat slice has another number of elements than the tensor
	// it is to be viewed as.
	ErrLength = errors.New("wrong number of elements")
	// ErrContract: the model has another contract than the generated code.
	// The error is a [*ContractError], which shows the difference.
	ErrContract = errors.New("contract mismatch")
	// ErrReplication: the model was compiled for more than one replica (or
	// for none). A session runs models of replication factor 1 only: compile
	// the model without replication and open it several times.
	ErrReplication = errors.New("unsupported replication factor")
	// ErrUnconnected: a program moves streams that nothing is connected to.
	// The error is an [*UnconnectedError], which lists them: connect every
	// one, or have the model file carry its data.
	ErrUnconnected = ipu.ErrUnconnected
	// ErrUnknownStream: the executable has no stream of that handle.
	ErrUnknownStream = ipu.ErrUnknownStream
	// ErrUnknownProgram: the executable has no program of that index.
	ErrUnknownProgram = ipu.ErrUnknownProgram
	// ErrNotLoaded: Save before the load programs have run.
	ErrNotLoaded = ipu.ErrNotLoaded
	// ErrNoSave: Save of a model whose program flow has no save programs.
	ErrNoSave = errors.New("model has no save programs")
	// ErrData: data in the model's files, or that the caller gave, does not fit
	// the executable's stream, or is missing.
	ErrData = errors.New("data does not fit")
	// ErrStateful: the main programs change tensors that the load programs set,
	// as those of a model that trains do. Loading some weights again would throw
	// the changes of all away, and replicas would drift apart; the error names
	// the anchors.
	ErrStateful = errors.New("model has a state")
	// ErrEndOfData: a program asked for more transfers than there are: the
	// feed in the file has ended, or the memory of this run has been read or
	// filled. Transfers are never repeated silently.
	ErrEndOfData = errors.New("end of data")
	// ErrOption: an option has a value that is out of range, or no meaning
	// where it was given.
	ErrOption = errs.ErrOption
	// ErrGenerated: generated code contradicts itself or the executable. It
	// was edited, or this is a bug in the generator: generate it again.
	ErrGenerated = errors.New("generated code is inconsistent")
	// ErrDevice: the device failed. The error is a [*DeviceError], which names
	// the request, the one during which it happened, and the remedy.
	ErrDevice = errors.New("device failure")
	// ErrCheckpoint: a checkpoint can't be read, or belongs to another model. The errors of package
	// checkpoint say which it is.
	ErrCheckpoint = checkpoint.ErrCheckpoint
	// ErrNotFinite: an element is infinite or no number: of a weight or state that is to be saved, of a value of the
	// optimizer, or of a loss, with the option [WithFiniteLoss].
	ErrNotFinite = checkpoint.ErrNotFinite
	// ErrReplica: the runner has no replica of that number.
	ErrReplica = errors.New("no such replica")
	// ErrSamples: slices of samples differ in length, or the number of samples
	// is not a multiple of a run's and the batch policy wants one.
	ErrSamples = errors.New("wrong number of samples")
	// ErrPanic: code that the caller gave panicked: a stream, an observer, a
	// logger, a factory, a predicate, a function of a queue. The error is a
	// [*PanicError], and that of the call during which it happened, also of
	// Close; the session works on. An observer that panics where no call of its
	// session is under way (at a hand-over, for one) makes Close return it.
	ErrPanic = ipu.ErrPanic
)

// NilAnchorError says which input or output has no memory.
type NilAnchorError struct {
	Model  string // the model's file, or "package NAME" if Open was called without the memory; "" inside of an error that names it
	Field  string // what is nil in Go's words: "Inputs.Image", or "Inputs" for the whole struct
	Anchor string // name of the anchor; "" for the whole struct
}

// Error returns the likes of
// `digits.popef: Inputs.Image is nil: anchor "image" needs memory`.
func (e *NilAnchorError) Error() string {
	about := ""
	if e.Model != "" {
		about = e.Model + ": "
	}
	if e.Anchor == "" {
		return about + e.Field + " is nil: New" + e.Field + " allocates one"
	}
	return fmt.Sprintf("%s%s is nil: anchor %q needs memory", about, e.Field, e.Anchor)
}

// Is reports whether target is [ErrNilAnchor].
func (e *NilAnchorError) Is(target error) bool { return target == ErrNilAnchor }

// ContractError says in what a model differs from what code was generated for
// so that its callers would notice.
type ContractError struct {
	Package  string             // the generated package
	Model    string             // the model's file
	Want     string             // hash of the package's contract
	Found    string             // hash of the model's contract
	Findings []contract.Finding // every difference, from the package to the model; see [contract.Finding.Opens]
}

// Error lists every difference because of which the package does not open the
// model, with the reason, and says what to do.
func (e *ContractError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "contract %.8s is not that of package %s, %.8s:", e.Found, e.Package, e.Want)
	const most = 20
	count := 0
	for _, f := range e.Findings {
		if f.Opens {
			continue
		}
		if count++; count <= most {
			fmt.Fprintf(&b, "\n  %s (%s)", f.Change(), f.Why)
		}
	}
	if count > most {
		fmt.Fprintf(&b, "\n  and %d more differences", count-most)
	}
	fmt.Fprintf(&b, "\ngenerate package %s again from this model, or open the model that it was generated from", e.Package)
	return b.String()
}

// Is reports whether target is [ErrContract].
func (e *ContractError) Is(target error) bool { return target == ErrContract }

// UnconnectedError lists the streams that programs were to move and nothing is
// connected to.
type UnconnectedError struct {
	Streams []Unconnected
}

// Unconnected is a stream that nothing is connected to.
type Unconnected struct {
	Anchor    string        // name of the anchor with this handle; "" if there is none
	Handle    string        // what [Session.Connect] takes
	Direction ipu.Direction // which way it moves data
	Type      string        // type and shape, such as "F32 [4 10]"
	Programs  []int         // the programs that were to run and move it
}

// String returns the likes of
// `input "image" F32 [4 10] (handle "h2d_image", programs [5])`.
func (u Unconnected) String() string {
	kind := "input"
	if u.Direction == ipu.DeviceToHost {
		kind = "output"
	}
	return fmt.Sprintf("%s %q %s (handle %q, programs %d)", kind, u.Anchor, u.Type, u.Handle, u.Programs)
}

// Error lists the streams.
func (e *UnconnectedError) Error() string {
	var b strings.Builder
	b.WriteString("nothing is connected to ")
	for i, s := range e.Streams {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(s.String())
	}
	return b.String()
}

// Is reports whether target is [ErrUnconnected].
func (e *UnconnectedError) Is(target error) bool { return target == ErrUnconnected }

// PanicError is a panic of code that the caller gave, see [ErrPanic].
type PanicError = ipu.PanicError

// DeviceError is why a call failed that met a device failure: the request during
// which the device failed, those that waited in the queue then, and, unless the
// session resets the device by itself, every later one until
// [Session.Reload] or [Session.Bind].
type DeviceError struct {
	Request   uint64       // number of the failed request in the session, from 1; 0 if it was another call, such as Save
	Cause     uint64       // number of the request during which the device failed; 0 if it was another program
	Replica   int          // of a runner
	Recovery  ipu.Recovery // what the device says would repair it
	AutoReset bool         // the session resets the device before its next request
	Err       error        // what the device said
}

// Error says which request failed because of which, and what to do.
func (e *DeviceError) Error() string {
	var b strings.Builder
	if e.Request != 0 {
		fmt.Fprintf(&b, "request %d: ", e.Request)
	}
	b.WriteString("the device failed")
	if e.Cause != e.Request && e.Cause != 0 {
		fmt.Fprintf(&b, " during request %d", e.Cause)
	}
	fmt.Fprintf(&b, ": %v; ", e.Err)
	switch {
	case e.AutoReset:
		b.WriteString("the next request resets it")
	case ipu.Reloadable(e.Err):
		b.WriteString("Reload resets it, and the option AutoReset does so by itself")
	case e.Recovery != ipu.RecoveryNone:
		fmt.Fprintf(&b, "it needs %v before Reload", e.Recovery)
	default:
		b.WriteString("it needs repair before Reload")
	}
	return b.String()
}

// Is reports whether target is [ErrDevice].
func (e *DeviceError) Is(target error) bool { return target == ErrDevice }

// Unwrap returns what the device said.
func (e *DeviceError) Unwrap() error { return e.Err }
