package rt

import (
	"fmt"
	"log/slog"
	"strconv"

	"github.com/popefgen/popefgen/ipu"
)

// Option is an option of a generated package's Open, or of [NewSession].
type Option func(*options)

type options struct {
	files         []string
	bytes         []byte
	given         string // the option that named another model
	privateCopy   bool
	backend       string
	device        ipu.Device
	deferred      bool
	manager       *ipu.Manager
	request       ipu.Request // id, options and waiting
	engine        []ipu.Option
	lookAhead     string
	concurrent    bool
	timed         bool
	skipHashCheck bool
	dataPolicy    DataPredicate
	wrapFeeds     bool
	saveOnUnbind  bool
	narrowed      string // the last option that says how to look for a device
	autoReset     bool
	replicas      int // of a runner
	devices       map[int]ipu.Device
	frozen        []Weight
	batching      BatchPolicy
	observer      Observer
	logger        *slog.Logger
	read          *content
	err           error // the first bad value
}

// content is what has been read of a model's files, so that replicas have it in
// common where the files are not mapped into memory too.
type content struct {
	executable []byte
	tensors    map[string][]byte
}

func newOptions(opts []Option) (*options, error) {
	o := &options{manager: &ipu.Manager{}, replicas: 1, logger: environmentLogger(), read: &content{tensors: map[string][]byte{}}}
	for _, opt := range opts {
		opt(o)
	}
	switch {
	case o.device != nil && o.deferred:
		o.fail("Deferred: %w: it goes with Bind, not with WithDevice", ErrOption)
	case (o.device != nil || o.deferred) && o.narrowed != "":
		o.fail("%s: %w: no device is looked for", o.narrowed, ErrOption)
	}
	return o, o.err
}

// WithModelFile makes Open load the model from files instead of what the
// package would take. A model may be spread over several files: one with the
// executable, one with the weights. It must have the package's contract.
func WithModelFile(paths ...string) Option {
	return func(o *options) {
		o.files, o.bytes, o.given = paths, nil, "WithModelFile"
		if len(paths) == 0 {
			o.fail("WithModelFile: %w: no file", ErrOption)
		}
	}
}

// WithPrivateCopy makes Open read the model's files into memory of the process's
// own, instead of mapping them. Without it they are used in place: a file that
// somebody writes over or cuts off meanwhile changes answers, or ends the process
// by a signal (SIGBUS), which no recover catches. Replacing a file by a rename
// is harmless either way. The copy takes as much memory as the files have bytes,
// and the time to read them.
func WithPrivateCopy() Option { return func(o *options) { o.privateCopy = true } }

// WithModelBytes makes Open take the model from b instead of what the package
// would take. b must not change until Close; weights are used in place. The
// model must have the package's contract.
func WithModelBytes(b []byte) Option {
	return func(o *options) {
		o.files, o.bytes, o.given = nil, b, "WithModelBytes"
		if len(b) == 0 {
			o.fail("WithModelBytes: %w: no bytes", ErrOption)
		}
	}
}

// WithBackend chooses the back end by name, such as "cpu" or "poplar". Without
// it and [WithDevice] it is "cpu" if that is registered, else the only one
// that is.
func WithBackend(name string) Option {
	return func(o *options) { o.backend = name }
}

// Deferred makes a session without a device, which [Session.Bind] then gives
// it. Without this option a session takes a device and loads the executable
// when it is made, and makes no session if that fails.
func Deferred() Option {
	return func(o *options) { o.deferred = true }
}

// WithWait says how long to wait while every device that fits is taken.
// Without it there is one attempt.
func WithWait(w ipu.Wait) Option {
	return func(o *options) { o.request.Wait, o.narrowed = w, "WithWait" }
}

// WithDeviceID takes the device of that id of the back end and no other.
func WithDeviceID(id int) Option {
	return func(o *options) { o.request.ID, o.narrowed = &id, "WithDeviceID" }
}

// WithDeviceOption adds a device option, in the back end's own words, to those
// of the model.
func WithDeviceOption(name, value string) Option {
	return func(o *options) {
		o.request.Options = append(o.request.Options, ipu.Option{Name: name, Value: value})
		o.narrowed = "WithDeviceOption"
	}
}

// WithManager makes m find the device and, if it has back ends of its own, the
// back end.
func WithManager(m *ipu.Manager) Option {
	return func(o *options) {
		if m == nil {
			o.fail("WithManager: %w: nil manager", ErrOption)
			return
		}
		o.manager = m
	}
}

// WithDevice chooses the device, and with it the back end. It is attached if
// need be and stays attached after Close: it belongs to the caller. Sessions
// may share a device: each leaves it to the one that runs next, unless it is
// one that any number can use at a time, as a CPU is.
func WithDevice(d ipu.Device) Option {
	return func(o *options) {
		o.device = d
		if d == nil {
			o.fail("WithDevice: %w: nil device", ErrOption)
		}
	}
}

// WithThreads limits the threads that the cpu back end computes with, 1 or
// more. It is the engine option "threads".
func WithThreads(n int) Option {
	return func(o *options) {
		if n < 1 {
			o.fail("WithThreads: %w: %d threads, want 1 or more", ErrOption, n)
		}
		o.engine = append(o.engine, ipu.Option{Name: "threads", Value: strconv.Itoa(n)})
	}
}

// WithEngineOption adds an engine option, in the back end's own words. It
// comes after those of the model and so overrides them.
func WithEngineOption(name, value string) Option {
	return func(o *options) { o.engine = append(o.engine, ipu.Option{Name: name, Value: value}) }
}

// WithLookAhead limits how many points at which host and device meet Poplar
// prepares in advance; without it Poplar decides. 0 avoids the deadlock of a
// model with prefetching and several device iterations where a request has not
// enough data for all of them. It is Poplar's engine option
// streamCallbacks.maxLookahead; executables of other formats look nowhere
// ahead, and ignore it.
func WithLookAhead(points uint) Option {
	return func(o *options) { o.lookAhead = strconv.FormatUint(uint64(points), 10) }
}

// WithDataPolicy decides, for each input whose data is in the model's files,
// whether to use that data or to leave the input to the caller. Without it all
// data is used.
func WithDataPolicy(p DataPredicate) Option {
	return func(o *options) { o.dataPolicy = p }
}

// WrapFeeds makes a feed in the model's files start over after its last tensor.
// Without it the run that asks for more fails with [ErrEndOfData].
func WrapFeeds() Option {
	return func(o *options) { o.wrapFeeds = true }
}

// SaveOnUnbind makes a session run its save programs before it leaves its
// device: on Unload, Bind, Close, and when another session takes the device. It
// does so if the model has save programs, the load programs have run, and the
// session was not stopped. Its save outputs must be connected by then.
func SaveOnUnbind() Option {
	return func(o *options) { o.saveOnUnbind = true }
}

// WithObserver makes a session tell f what happens to it, see [Observer].
func WithObserver(f Observer) Option {
	return func(o *options) { o.observer = f }
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
	return func(o *options) { o.logger = l }
}

// Concurrent lets any number of goroutines call Run, Submit and Save at the
// same time: they are served one after the other, in the order in which they
// came. Without it a second call during a first one fails with
// [ErrConcurrent].
func Concurrent() Option {
	return func(o *options) { o.concurrent = true }
}

// WithReplicas makes a runner of n independent replicas of the model, each with
// an engine and a device of its own: a request goes to the one that is least
// busy, unless the caller names one. Requests may then come from any number of
// goroutines, as with [Concurrent]. A model with a state has one in each
// replica.
func WithReplicas(n int) Option {
	return func(o *options) {
		if n < 1 || n > maxReplicas {
			o.fail("WithReplicas: %w: %d replicas, want 1 to %d", ErrOption, n, maxReplicas)
		}
		o.replicas = n
	}
}

const maxReplicas = 1 << 10

// WithReplicaDevices chooses the devices of some of a runner's replicas, by
// their numbers from 0. The others find one for themselves. Those given belong
// to the caller, as with [WithDevice].
func WithReplicaDevices(devices map[int]ipu.Device) Option {
	return func(o *options) { o.devices = devices }
}

// AutoReset makes a session load the executable again, before the next request,
// after a program failed in a way that this repairs: an application error, or a
// recoverable one whose action is IPU_RESET. The request under way and those in
// the queue fail with a [*DeviceError]; later ones wait. Without it they fail
// too, until [Session.Reload].
func AutoReset() Option {
	return func(o *options) { o.autoReset = true }
}

// WithData gives an input the same data at every transfer, in place of the data
// in the model's files, or of what requests would give: generated code has a
// typed form of this for run inputs. anchor is the input's name or its stream
// handle. data must not change until Close.
func WithData(anchor string, data []byte) Option {
	return func(o *options) { o.frozen = append(o.frozen, Weight{Anchor: anchor, Data: data}) }
}

// Freeze is [WithData] for generated code.
func Freeze[T any](anchor string, t *T) Option { return WithData(anchor, bytesOf(t)) }

// WithBatching says how a generated RunSamples makes up batches.
func WithBatching(p BatchPolicy) Option {
	return func(o *options) {
		o.batching = p
		if err := p.check(); err != nil {
			o.fail("WithBatching: %w", err)
		}
	}
}

// Timed makes [Stats] measure how long requests take, and [Session.Traces] say
// where the time went. It costs about 200 ns a request, for reading the clock
// four times, and about 75 KB for each replica.
func Timed() Option {
	return func(o *options) { o.timed = true }
}

// SkipHashCheck makes an engine run an executable that was compiled by another
// version of Poplar than the one that runs.
func SkipHashCheck() Option {
	return func(o *options) { o.skipHashCheck = true }
}

func (o *options) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}
