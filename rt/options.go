package rt

import (
	"fmt"
	"strconv"

	"github.com/popefgen/popefgen/ipu"
)

// Option is an option of a generated package's Open, or of [NewSession].
type Option func(*options)

type options struct {
	files         []string
	bytes         []byte
	given         string // the option that named another model
	backend       string
	device        ipu.Device
	engine        []ipu.Option
	concurrent    bool
	timed         bool
	skipHashCheck bool
	err           error // the first bad value
}

func newOptions(opts []Option) (*options, error) {
	o := &options{}
	for _, opt := range opts {
		opt(o)
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

// WithDevice chooses the device, and with it the back end. It is attached if
// need be and stays attached after Close: it belongs to the caller.
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

// Concurrent lets any number of goroutines call Run, Submit and Save at the
// same time: they are served one after the other, in the order in which they
// came. Without it a second call during a first one fails with
// [ErrConcurrent].
func Concurrent() Option {
	return func(o *options) { o.concurrent = true }
}

// Timed makes [Stats] measure how long requests take. It costs about 50 ns a
// request, for reading the clock twice.
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
