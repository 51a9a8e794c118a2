// Package modelrt runs models that are only known at run time, as Model Runtime
// does: [OpenSession] and [NewSession] make an [rt.Session]; a [Buffer], a [Callback],
// or what [HandleInputs] and [HandleOutputs] get from a [Factory] is connected to its
// streams, and a [Predicate] says which anchor gets what. [NewQueueManager] makes
// queues, an [InputQueue] or [OutputQueue] for each stream, which join and split
// requests; a [QueueGroup] enqueues a request to several at once, a [RingPool] is
// memory for them. Generated packages with a type Queues link it too.
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
// What a state does not allow fails with an error of its own (of package rt), and
// changes nothing:
//
//	Run, Load, Save, RunPrograms  ErrUnbound      before Bind, after Unload, after Bind or Reload failed
//	Run, Load, Save, RunPrograms  ErrStopped      after Stop, until Reload
//	Run, Load, Save, RunPrograms  ErrDevice       after the device failed, until Reload or Bind; see rt.AutoReset
//	Run, Load, Save, RunPrograms  ErrUnconnected  while a stream that they move has no host side
//	Run                           ErrSeveralSizes if each main program computes a size of its own
//	Save                          ErrNotLoaded    before the load programs ran
//	Save                          ErrNoSave       if the model has no save programs
//	RunPrograms                   ErrUnknownProgram
//	RunLoaded                     what RunPrograms and Load fail with
//	Connect and its like          ErrUnknownStream
//	Unload, Stop                  ErrUnbound      if there is no device to leave or stop
//	Reload                        ErrUnbound      if no device is remembered
//	Stop                          ErrStopped      after Stop
//	all but Close                 ErrClosed       after Close
//
// # Several sizes
//
// A model of several sizes has a main program for each. A session does not know which of them a request is
// of: connect the streams of one, [rt.Session.Load], and run its program by [rt.Session.RunPrograms]. Or make the
// session of what family.Family.Single returns, which has one size, for which Run and queues are as ever.
//
// # Devices
//
// A device works for one session at a time, unless it is one that any number can
// use, as a CPU is. A session that is bound to a device on which another one is
// makes that one leave first: its request under way ends, its save programs run if
// it has the option [rt.SaveOnUnbind], and what it kept on the device is gone. It
// stays bound, though: its next run takes the device back, loads the executable
// and runs the load programs again. What moves data during a run of a session must
// not wait for another session of the same device.
//
// # Data
//
// Every run moves the data of [rt.Session.DeviceIterations] transfers through each of
// its inputs and outputs, and each of its main programs starts at the first of
// them. Inputs get the data that the model's files carry for them, unless
// [rt.WithDataPolicy] or the caller decides otherwise; outputs that only load
// programs deliver are dropped unless the caller connects them.
package modelrt
