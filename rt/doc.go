// Package rt is what users of generated packages see of the runtime: options of
// Open, errors, events, statistics, tickets of submitted requests, and the
// [Session] below a Runner. A synchronous request computes in the caller's
// goroutine, over the caller's memory, and allocates nothing.
//
// Package modelrt has what tools need for models that they only learn of at run
// time, and queues; package genrt is what generated code calls. A session's streams
// are connected by handle: to a modelrt.Buffer, to functions (modelrt.Callback), to
// data that is always the same ([Session.ConnectData]), or to queues that join and
// split requests (modelrt.QueueManager).
//
// # States
//
//	NewSession          NewSession, Open
//	with Deferred            │
//	   │                     ▼      Load, or the first Run
//	   │        Bind      ┌─ placed ──────────────────────▶ loaded ──┐
//	   ▼      ┌──────────▶│   ▲ ▲                            │  │    │
//	unbound ──┘           │   │ └── another session took ────┘  │    │ Run, Save,
//	   ▲                  │   │     the device, and the         │    │ RunPrograms
//	   │                  │   │     next Run took it back       │    │
//	   │   Unload         │   │ Reload, Bind               Stop │ ◀──┘
//	   └───────────────── │   │                                 │
//	       (from all)     └─▶ stopped ◀─────────────────────────┘
//
//	Close leads from everywhere to closed.
//
// A session is placed when the executable is on the device and the data of the
// model's files is connected; the load programs then bring the weights there.
// What a state does not allow fails with an error of its own, and changes
// nothing:
//
//	Run, Load, Save, RunPrograms  ErrUnbound      before Bind, after Unload, after Bind or Reload failed
//	Run, Load, Save, RunPrograms  ErrStopped      after Stop, until Reload
//	Run, Load, Save, RunPrograms  ErrDevice       after the device failed, until Reload or Bind; see AutoReset
//	Run, Load, Save, RunPrograms  ErrUnconnected  while a stream that they move has no host side
//	Save                          ErrNotLoaded    before the load programs ran
//	Save                          ErrNoSave       if the model has no save programs
//	RunPrograms                   ErrUnknownProgram
//	Connect and its like          ErrUnknownStream
//	Unload, Stop                  ErrUnbound      if there is no device to leave or stop
//	Reload                        ErrUnbound      if no device is remembered
//	Stop                          ErrStopped      after Stop
//	all but Close                 ErrClosed       after Close
//
// A request that fails leaves the session as it was, and the next may
// succeed. What it was to write is then undefined: its outputs, and whatever
// the model keeps on the device.
//
// # Devices
//
// A device works for one session at a time, unless it is one that any number
// can use, as a CPU is. A session that is bound to a device on which another
// one is makes that one leave first: its request under way ends, its save
// programs run if it has the option [SaveOnUnbind], and what it kept on the
// device is gone. It stays bound, though: its next run takes the device back,
// loads the executable and runs the load programs again. What moves data during a run of a session must not wait for another
// session of the same device.
//
// When a device fails, the request under way and those in the queue fail with a
// [*DeviceError]. With [AutoReset] the next request loads the executable again,
// if that is what the device needs; without it, or if it needs more, every
// request fails until Reload. A device that any number can use has no state
// that a program could spoil, so that an error there concerns one request.
//
// # Data
//
// Every run moves the data of [Session.DeviceIterations] transfers through each
// of its inputs and outputs, and each of its main programs starts at the first
// of them. Inputs get the data that the model's files carry for them, unless
// [WithDataPolicy] or the caller decides otherwise; outputs that only load
// programs deliver are dropped unless the caller connects them.
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
