package rt

import (
	"context"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt/internal/seal"
)

// Session runs one model on one device, whatever the model is. The Session and
// Replica methods of a generated Runner return those that it is built on, for
// what has no typed form there; package modelrt opens sessions of models that are
// only known at run time. The package's documentation describes a session's states
// and who may call what when. Only this module implements it.
type Session interface {
	// Run runs the main programs in order, once. Before the first time after the
	// session was bound, reloaded, or got its device back from another session, it
	// runs the load programs. Of a model of several sizes, of which each main program computes
	// one, it runs none ([ErrSeveralSizes]).
	Run(ctx context.Context) error
	// Load runs the load programs in order: weights go to the device.
	Load(ctx context.Context) error
	// Save runs the save programs in order: weights come from the device. It
	// fails with [ErrNoSave] if the model has none, and with [ErrNotLoaded] if the
	// load programs have not run since the session got its device, since there is
	// nothing to save.
	Save(ctx context.Context) error
	// RunPrograms runs the programs with these indices, in this order, and nothing
	// else: the load programs do not run first.
	RunPrograms(ctx context.Context, programs ...int) error
	// RunLoaded is RunPrograms after what Run does first: the load programs run if
	// they have not since the session was bound, reloaded, or got its device back
	// from another session.
	RunLoaded(ctx context.Context, programs ...int) error
	// UpdateWeights connects other data to inputs that get the same at every
	// transfer, and runs the load programs if they have run before: requests after
	// it compute with the new values. Nothing changes if one of the weights does
	// not fit, or if the load programs would overwrite what the model has made of
	// inputs that are not among them ([ErrStateful]). If the load programs fail the session has the new data and needs
	// another Load.
	UpdateWeights(ctx context.Context, weights ...Weight) error

	// Bind puts the session on a device: it leaves the one that it is on, if any,
	// attaches d, makes another session that is on it leave, and loads the
	// executable, also if d is the device that the session is on already. The load
	// programs run again before the next run. The device stays the caller's, who
	// detaches it.
	//
	// With [SaveOnUnbind], leaving runs the save programs; if they fail the session
	// stays where it is. If loading fails the session is unbound.
	Bind(ctx context.Context, d ipu.Device) error
	// Unload takes the session off its device, which it remembers: see
	// [Session.Reload]. It fails with [ErrUnbound] if the session is on none. With
	// [SaveOnUnbind] the save programs run first; if they fail the session stays
	// where it is. A device that the session found for itself is detached.
	Unload(ctx context.Context) error
	// Reload puts the executable onto the remembered device again: what was on the
	// device is lost, and the load programs run before the next run. It is how a
	// session that was stopped or unloaded, or whose program failed for good, runs
	// again. Without a device it fails with [ErrUnbound].
	Reload(ctx context.Context) error
	// Stop makes a run that is under way, if any, fail with [ErrStopped], and
	// every later one until [Session.Reload]. It may be called from any goroutine
	// at any time, also while Close waits for a run that is to be saved. Stopping a
	// session that is stopped fails with [ErrStopped], one that is on no device
	// with [ErrUnbound].
	Stop() error
	// Stopped reports whether the session was stopped and not reloaded since.
	Stopped() bool
	// Bound reports whether the session is on a device. It stays bound while
	// another session uses that device, and takes it back for its next run.
	Bound() bool
	// Active reports whether the session holds its device now: it is bound, and no
	// other session has taken the device since. Of a device that any number of
	// sessions share nobody is ever displaced.
	Active() bool

	// Connect attaches the host's side of the stream named handle, replacing any
	// earlier one, also data of the model's files. The stream's methods are called
	// during runs only, in the goroutine that runs or one of the engine's.
	// A buffer starts at its first transfer in every run. While a program runs,
	// Connect waits for it, until ctx ends.
	Connect(ctx context.Context, handle string, stream ipu.Stream) error
	// ConnectData feeds the same data to the input stream named handle at every
	// transfer: a weight, a seed, a frozen input. It replaces data of the model's
	// files. data must have exactly the stream's size, and must not change as long
	// as it is connected: an engine uses it in place. ctx is as for
	// [Session.Connect].
	ConnectData(ctx context.Context, handle string, data []byte) error
	// Unconnected returns the streams that the programs with these indices move
	// and that nothing is connected to, in the executable's order. Without
	// arguments it looks at the load and main programs. Like Connect, it needs the
	// session for itself, for which it waits until ctx ends.
	Unconnected(ctx context.Context, programs ...int) ([]Unconnected, error)
	// CheckConnected returns an [*UnconnectedError] if the programs with these
	// indices move streams that nothing is connected to; it takes and looks at what
	// [Session.Unconnected] does.
	CheckConnected(ctx context.Context, programs ...int) error

	// Model returns the model.
	Model() *popef.Model
	// Contract returns the model's contract.
	Contract() contract.Contract
	// DeviceIterations returns how many transfers of every run input and output
	// one run makes that has no number of its own: [contract.Contract.Transfers] knows that of each.
	DeviceIterations() int
	// Inputs returns every anchor that is an input, in the contract's order.
	Inputs() []contract.Anchor
	// UserInputs returns the inputs that the caller must connect, in the
	// contract's order: run inputs, load inputs and a seed without data.
	UserInputs() []contract.Anchor
	// UserOutputs returns the outputs that the caller connects before the programs
	// that move them run, in the contract's order: run and save outputs, which must
	// be connected, and load outputs, which are dropped unless they are.
	UserOutputs() []contract.Anchor
	// Stream returns the description of the stream with that handle, and whether
	// the executable has one.
	Stream(handle string) (ipu.StreamInfo, bool)
	// Streams returns every stream of the executable, in its order, and behind them the inputs that
	// the file joins in some of these.
	Streams() []ipu.StreamInfo
	// Target returns what the model was compiled for: for [ipu.Manager.Get], to
	// find the device of a session that was made with modelrt.Deferred. Hardware version
	// and device options are those of Poplar's executables; others do not care.
	Target() ipu.Target
	// Device returns the device that the session is on or was on last, nil if there
	// was none yet. One that the session found for itself is detached when the
	// session leaves it: another session that is to share it must leave first. A
	// device that sessions are given is attached for as long as its owner likes.
	Device() ipu.Device
	// Engine returns the engine, for what a back end offers beyond ipu.Engine.
	// Driving it past the session breaks the session's account of its state.
	Engine() ipu.Engine
	// Config returns every option of the session, as it was given or by default.
	Config() Config
	// Stats returns the session's statistics. It may be called at any time, also
	// after Close; its numbers may be of different moments.
	Stats() Stats
	// Traces returns the traces of the last requests, oldest first: of up to 256,
	// and of none without the option [Timed].
	Traces() []Trace

	// Shutdown lets nobody in any more ([ErrClosed]), waits until those that were let
	// in before have ended, and what modelrt.QueueManager.Run finds in the queues is
	// computed, and closes. If ctx ends first it closes all the same, which ends
	// them, and returns ctx's error.
	Shutdown(ctx context.Context) error
	// Close stops what is under way and releases everything: requests that are
	// computing or waiting fail with [ErrClosed], unless they end before they
	// notice. It returns when none is left, and may be called from any goroutine,
	// any number of times; every call returns the same error. It must not be
	// called by a stream or an [Observer] during a run, for which it would wait.
	//
	// If save programs are to run ([SaveOnUnbind], or a generated SaveAtClose), the
	// request that is computing ends in peace first. [Session.Stop], which may be
	// called meanwhile, gives that up.
	Close() error

	Own(seal.Mark) any
}
