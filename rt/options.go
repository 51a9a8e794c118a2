package rt

import (
	"log/slog"
	"strconv"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt/internal/settings"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// Option is an option of runners and of the sessions of package modelrt alike.
type Option interface {
	RunnerOption
	Session(*settings.Of[Config])
}

// RunnerOption is an option of a generated package's Open. Its methods are for
// this module.
type RunnerOption interface{ Runner(*settings.Of[Config]) }

// The two kinds of option.
type (
	forBoth   func(*settings.Of[Config])
	forRunner func(*settings.Of[Config])
)

func (f forBoth) Session(o *settings.Of[Config])  { f(o) }
func (f forBoth) Runner(o *settings.Of[Config])   { f(o) }
func (f forRunner) Runner(o *settings.Of[Config]) { f(o) }

// WithModelFile makes Open load the model from files instead of what the
// package would take. A model may be spread over several files: one with the
// executable, one with the weights. It must have the package's contract.
func WithModelFile(paths ...string) RunnerOption {
	return forRunner(func(o *settings.Of[Config]) {
		o.Config.ModelFiles, o.Config.ModelBytes = paths, nil
		if len(paths) == 0 {
			o.Fail("WithModelFile: %w: no file", ErrOption)
		}
	})
}

// WithPrivateCopy makes Open read the model's files into memory of the process's
// own, instead of mapping them. Without it they are used in place: a file that
// somebody writes over or cuts off meanwhile changes answers, or ends the process
// by a signal (SIGBUS), which no recover catches. Replacing a file by a rename
// is harmless either way. The copy takes as much memory as the files have bytes,
// and the time to read them.
func WithPrivateCopy() Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.PrivateCopy = true })
}

// WithModelBytes makes Open take the model from b instead of what the package
// would take. b must not change until Close; weights are used in place. The
// model must have the package's contract.
func WithModelBytes(b []byte) RunnerOption {
	return forRunner(func(o *settings.Of[Config]) {
		o.Config.ModelFiles, o.Config.ModelBytes = nil, b
		if len(b) == 0 {
			o.Fail("WithModelBytes: %w: no bytes", ErrOption)
		}
	})
}

// BackendVariable names the back end of sessions and runners that [WithBackend] and [WithDevice] do not choose.
const BackendVariable = "POPEFGEN_BACKEND"

// WithBackend chooses the back end by name, such as "cpu" or "poplar". Without
// it and [WithDevice] it is the one that the environment names ([BackendVariable]), "cpu" if that is registered, else the only one
// that is.
func WithBackend(name string) Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.Backend = name })
}

// WithWait says how long to wait while every device that fits is taken.
// Without it there is one attempt.
func WithWait(w ipu.Wait) Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.Wait, o.Narrowed = w, "WithWait" })
}

// WithDeviceID takes the device of that id of the back end and no other.
func WithDeviceID(id int) Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.DeviceID, o.Narrowed = &id, "WithDeviceID" })
}

// WithDeviceOption adds a device option, in the back end's own words, to those
// of the model.
func WithDeviceOption(name, value string) Option {
	return forBoth(func(o *settings.Of[Config]) {
		o.Config.DeviceOptions = append(o.Config.DeviceOptions, ipu.Option{Name: name, Value: value})
		o.Narrowed = "WithDeviceOption"
	})
}

// WithSimulation makes a simulated device, an "ipu_model", in place of one that is looked for: each session or replica has one of its
// own. IPUs and version are the model's where s leaves them open, and so is the back end [WithBackend]'s. A program that is too large for it
// is refused, with the arithmetic ([ipu.ErrMemory]), and so is one that needs more IPUs, or remote buffers ([ipu.ErrNoDevice]). What it computes is what its
// back end computes elsewhere.
func WithSimulation(s ipu.Simulation) Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.Simulation, o.Narrowed = &s, "WithSimulation" })
}

// WithManager makes m find the device and, if it has back ends of its own, the
// back end.
func WithManager(m *ipu.Manager) Option {
	return forBoth(func(o *settings.Of[Config]) {
		if m == nil {
			o.Fail("WithManager: %w: nil manager", ErrOption)
			return
		}
		o.Config.Manager = m
	})
}

// WithDevice chooses the device, and with it the back end. It is attached if
// need be and stays attached after Close: it belongs to the caller. Sessions
// may share a device: each leaves it to the one that runs next, unless it is
// one that any number can use at a time, as a CPU is.
func WithDevice(d ipu.Device) Option {
	return forBoth(func(o *settings.Of[Config]) {
		o.Config.Device = d
		if d == nil {
			o.Fail("WithDevice: %w: nil device", ErrOption)
		}
	})
}

// WithThreads limits the threads that the cpu back end computes with, 1 or
// more. It is the engine option "threads".
func WithThreads(n int) Option {
	return forBoth(func(o *settings.Of[Config]) {
		if n < 1 {
			o.Fail("WithThreads: %w: %d threads, want 1 or more", ErrOption, n)
		}
		o.Config.EngineOptions = append(o.Config.EngineOptions, ipu.Option{Name: "threads", Value: strconv.Itoa(n)})
	})
}

// WithEngineOption adds an engine option, in the back end's own words. It
// comes after those of the model and so overrides them.
func WithEngineOption(name, value string) Option {
	return forBoth(func(o *settings.Of[Config]) {
		o.Config.EngineOptions = append(o.Config.EngineOptions, ipu.Option{Name: name, Value: value})
	})
}

// WithLookAhead limits how many points at which host and device meet the device
// prepares in advance; without it the back end decides. 0 avoids the deadlock of a
// model with prefetching and several device iterations where a request has not
// enough data for all of them. It is the engine option
// streamCallbacks.maxLookahead, of Poplar and of the simulated devices of the cpu back end ([WithSimulation]); a
// CPU looks nowhere ahead.
func WithLookAhead(points uint) Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.LookAhead = strconv.FormatUint(uint64(points), 10) })
}

// WithDataPolicy decides, for each input whose data is in the model's files,
// whether to use that data or to leave the input to the caller. Without it all
// data is used.
func WithDataPolicy(p func(contract.Anchor) DataPolicy) Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.DataPolicy = p })
}

// WrapFeeds makes a feed in the model's files start over after its last tensor.
// Without it the run that asks for more fails with [ErrEndOfData].
func WrapFeeds() Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.WrapFeeds = true })
}

// SaveOnUnbind makes a session run its save programs before it leaves its
// device: on Unload, Bind, Close, and when another session takes the device. It
// does so if the model has save programs, the load programs have run, and the
// session was not stopped. Its save outputs must be connected by then.
func SaveOnUnbind() Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.SaveOnUnbind = true })
}

// WithObserver makes a session tell f what happens to it, see [Observer].
func WithObserver(f Observer) Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.Observer = f })
}

// WithLogger makes a session log what happens to it, see [Event], with l
// instead of the logger that the environment asks for; nil makes it log
// nothing. What l is not enabled for costs an atomic load or so for each event,
// and no memory.
//
// Errors are logged at [slog.LevelError], resets and requests that failed at
// [slog.LevelWarn], sessions and their devices at [slog.LevelInfo], load and
// save programs and requests that were refused at [slog.LevelDebug], and every
// request at [LevelTrace].
func WithLogger(l *slog.Logger) Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.Logger = l })
}

// SingleCaller says that one goroutine at a time makes requests: a call of Run,
// Save or another method that drives the engine fails with [ErrConcurrent] while
// another one is under way, where it would wait for that one otherwise. It is
// for programs that want to hear of it if they do not keep to that. Submitted
// requests and samples are never in the way.
func SingleCaller() Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.SingleCaller = true })
}

// WithMaxWaiting bounds how many calls wait: at most n for each engine, at most n
// for room in a runner's queue, and at most n with samples for batches. One more
// fails at once with [ErrOverloaded]. 0 lets none wait. Without this option there
// is no bound. Requests in the queue do not count; it has its own.
func WithMaxWaiting(n int) Option {
	return forBoth(func(o *settings.Of[Config]) {
		if n < 0 {
			o.Fail("WithMaxWaiting: %w: %d calls, want 0 or more", ErrOption, n)
		}
		o.Config.MaxWaiting = n
	})
}

// WithReplicas makes a runner of n independent replicas of the model, each with
// an engine and a device of its own: a request goes to the one that is least
// busy, unless the caller names one. A model whose main programs change what its
// load programs set, as one that trains does, is refused ([ErrStateful]): its
// replicas would drift apart.
func WithReplicas(n int) RunnerOption {
	return forRunner(func(o *settings.Of[Config]) {
		if n < 1 || n > maxReplicas {
			o.Fail("WithReplicas: %w: %d replicas, want 1 to %d", ErrOption, n, maxReplicas)
		}
		o.Config.Replicas = n
	})
}

const maxReplicas = 1 << 10

// WithReplicaDevices chooses the devices of some of a runner's replicas, by
// their numbers from 0. The others find one for themselves. Those given belong
// to the caller, as with [WithDevice].
func WithReplicaDevices(devices map[int]ipu.Device) RunnerOption {
	return forRunner(func(o *settings.Of[Config]) { o.Config.ReplicaDevices = devices })
}

// AutoReset makes a session load the executable again, before the next request,
// after a program failed in a way that this repairs: an application error, or a
// recoverable one whose action is IPU_RESET. The request under way and those in
// the queue fail with a [*DeviceError]; later ones wait. Without it they fail
// too, until [Session.Reload].
func AutoReset() Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.AutoReset = true })
}

// WithData gives an input the same data at every transfer, in place of the data
// in the model's files, or of what requests would give: generated code has a
// typed form of this for run inputs. anchor is the input's name or its stream
// handle. data must not change until Close.
func WithData(anchor string, data []byte) Option {
	return forBoth(func(o *settings.Of[Config]) {
		o.Config.Frozen = append(o.Config.Frozen, Weight{Anchor: anchor, Data: data})
	})
}

// Freeze is [WithData] for generated code.
func Freeze[T any](anchor string, t *T) Option { return WithData(anchor, view.Bytes(t)) }

// WithCheckpoint makes Open take what a training model has learnt from the checkpoint at path, which a generated Checkpoint wrote, in
// place of the data in the model's files. A training model goes on where it was saved: weights, state and values of the optimizer, seed and state of random numbers
// are those of the checkpoint, also where LoadInputs give others. Any other model takes its weights, by their names. [ErrCheckpoint] says that the file is
// damaged, or what it and the model differ in. Data that [WithData] gives comes before that of the checkpoint.
func WithCheckpoint(path string) RunnerOption {
	return forRunner(func(o *settings.Of[Config]) {
		o.Config.Checkpoint = path
		if path == "" {
			o.Fail("WithCheckpoint: %w: no file", ErrOption)
		}
	})
}

// WithFiniteLoss makes Step of a training package look at every scalar output, and fail with [ErrNotFinite] where one is infinite or no number. The
// step has updated the weights then: go back to a checkpoint.
func WithFiniteLoss() RunnerOption {
	return forRunner(func(o *settings.Of[Config]) { o.Config.FiniteLoss = true })
}

// WithBatching says how a generated RunSamples makes up batches.
func WithBatching(p BatchPolicy) RunnerOption {
	return forRunner(func(o *settings.Of[Config]) {
		o.Config.Batching = p
		if err := p.check(); err != nil {
			o.Fail("WithBatching: %w", err)
		}
	})
}

// Timed makes [Stats] measure how long requests take, and [Session.Traces] say
// where the time went. It costs about 200 ns a request, for reading the clock
// four times, and about 75 KB for each replica.
func Timed() Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.Timed = true })
}

// SkipHashCheck makes an engine run an executable that was compiled by another
// version of Poplar than the one that runs.
func SkipHashCheck() Option {
	return forBoth(func(o *settings.Of[Config]) { o.Config.SkipHashCheck = true })
}
