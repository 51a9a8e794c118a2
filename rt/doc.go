// Package rt is what users of generated packages see of the runtime: options of
// Open, tickets of submitted requests, errors, events, statistics, weights, and the
// [Session] below a Runner. A generated package holds what is particular to a model,
// its types and methods; what they take and return beside tensors is here:
//
//	r, err := digits.Open(ctx, rt.WithReplicas(2), rt.AutoReset())
//	...
//	ticket, err := r.Submit(ctx, in, out)
//	...
//	err = ticket.Wait(ctx) // such as rt.ErrClosed, or an *rt.DeviceError
//
// A synchronous request computes in the caller's goroutine, over the caller's
// memory, and allocates nothing. Package modelrt is for models that are only known
// at run time, and for queues; it says which states a session has and what fails in
// which. Package genrt is what generated code calls.
//
// # Concurrency
//
// One request at a time drives an engine. Any goroutine may call any method:
// calls that drive the engine (Run, Save, Load, Bind, Reload, Connect and their
// like) wait for each other. With [SingleCaller] one that comes while another
// is under way fails with [ErrConcurrent] and disturbs nothing; requests that
// were submitted are never in the way.
//
// The requests that one goroutine makes are served in the order in which it makes
// them, and submitted ones in the order in which they were submitted, so that a
// model with a state sees them in that order. Of several callers that wait, one
// may be overtaken for up to a millisecond: short requests of many callers need
// not wait for the scheduler between any two. [WithMaxWaiting] bounds how many
// wait.
//
// One goroutine serves submitted requests, and some more submitted samples. They
// start when they are needed, park while there is nothing to do, never spin, and
// end with Close. Stop, Close, Stats, Ticket's methods and the methods that only
// tell what a session is may be called from any goroutine at any time.
//
// A context is honoured before a call starts, while it waits for the engine or
// for room, and during the run: engines and streams are given it. That of Submit
// is the request's.
//
// # Failures
//
// A request that fails leaves the runner as it was, and the next may succeed. What
// it was to write is then undefined: its outputs, and whatever the model keeps on
// the device.
//
// When a device fails, the request under way and those in the queue fail with a
// [*DeviceError]. With [AutoReset] the next request loads the executable again,
// if that is what the device needs; without it, or if it needs more, every
// request fails until [Session.Reload]. A device that any number can use, as a CPU
// is, has no state that a program could spoil, so that an error there concerns one
// request.
//
// # Events
//
// An [Observer] hears of all that happens to a session: its device, its
// programs, every request, what fails, what is reset. A [log/slog.Logger] does
// so too, see [WithLogger], [LogLevelVariable] and [LogDestVariable]; by default
// nothing is logged. [Session.Stats] and [Session.Traces] tell what requests
// took.
//
// # Lifetime
//
// Inputs must not change and outputs must not be read from the start of a
// request to its end: the return of Run or, for a submitted request, that its
// [Ticket] is done. Afterwards this package keeps no reference
// to them. Memory given at Open (load inputs, the model's bytes) and to
// [Session.ConnectData] is used in place until Close.
//
// Close ends everything, in every state and from any goroutine: requests under
// way or waiting fail with [ErrClosed] unless they end first, every waiter
// returns, the worker is gone, the device is free.
package rt
