// Package ipu is the contract between a host program and whatever executes a
// compiled model: it says what a device, an engine and a stream are, names the
// kinds of error, and keeps the registry of back ends.
//
// The contract mirrors poplar::Engine and poplar::StreamCallback of the Poplar
// SDK: a host connects one [Stream] to every stream handle of an executable,
// loads it onto a [Device], and runs its programs by index. The device side
// pulls and pushes data through the streams, so that one runtime serves a
// device with a clock of its own as well as an engine that computes in the
// caller's goroutine.
package ipu

import "context"

// Direction is the way in which a stream moves data.
type Direction uint8

const (
	// HostToDevice marks an input: the device side fetches from the host.
	HostToDevice Direction = iota
	// DeviceToHost marks an output: the device side delivers to the host.
	DeviceToHost
)

// String returns "host-to-device" or "device-to-host".
func (d Direction) String() string {
	if d == DeviceToHost {
		return "device-to-host"
	}
	return "host-to-device"
}

// StreamInfo describes one stream of an executable.
type StreamInfo struct {
	Handle    string    // what [Engine.Connect] takes; unique in an executable
	Direction Direction // which way it moves data
	Bytes     int       // bytes of one transfer
	Type      string    // element type for messages, such as "f32"
	Shape     []int64   // shape of one transfer; empty for a scalar
	Programs  []int     // indices of the programs that move it, ascending
	Transfers []int64   // for each of Programs, how many transfers a run of it makes; nil if the engine does not know
	// Fields says what stands where in a transfer that has several inputs side by side; nil if it is one
	// tensor, or if the engine does not know.
	Fields []FieldInfo
	// Blocks is, of memory outside the device that programs read (a remote buffer) and no stream, how many equal
	// blocks make up its Bytes; 0 of a stream. It is written when the engine is loaded, and no program moves it.
	Blocks int
}

// FieldInfo describes one of several inputs in the transfers of a stream.
type FieldInfo struct {
	Handle string  // that the input has where it is a stream of its own
	Offset int     // bytes from the beginning of a transfer
	Type   string  // element type, such as "f32"
	Shape  []int64 // empty for a scalar
}

// ProgramInfo describes one program of an executable.
type ProgramInfo struct {
	Index int    // what [Engine.Run] takes
	Name  string // such as "WeightsFromHost"; may be empty
}

// Stream is the host's side of one stream, called by the device side during
// [Engine.Run]; InvalidatePrefetched also during Connect and Load. An engine
// never calls one stream concurrently. Buffers passed to it are valid only
// during the call, and so is the context, which is that of the run or derived
// from it: a stream that waits for something must stop when it ends, and return
// its error. It mirrors poplar::StreamCallback.
type Stream interface {
	// Fetch moves one transfer. For an input it must fill buf; for an output
	// buf holds the data that arrived. len(buf) is [StreamInfo.Bytes]. An
	// error ends the running program with [ErrCallback].
	Fetch(ctx context.Context, buf []byte) error
	// Prefetch may fill buf ahead of time and reports whether it did. It is
	// speculative, for inputs only, and may run several times before Complete.
	Prefetch(buf []byte) bool
	// Complete tells that the oldest fetched or prefetched transfer has been
	// consumed (input) or that an output transfer has ended.
	Complete()
	// InvalidatePrefetched tells that everything prefetched and not yet
	// complete was thrown away: the next transfer starts at the oldest
	// incomplete item.
	InvalidatePrefetched()
}

// Direct is a Stream whose transfers already have host memory. An engine that
// computes on the host reads or writes that memory in place, where its
// alignment allows, instead of calling Fetch.
type Direct interface {
	Stream
	// Memory returns the memory of the next transfer, for which it may wait
	// until ctx ends: the bytes to read for
	// an input, the bytes to fill for an output; its length is
	// [StreamInfo.Bytes]. It stays valid until Complete. A nil slice without
	// an error means that this transfer has no memory: call Fetch.
	Memory(ctx context.Context) ([]byte, error)
}

// Constant is a Direct input whose memory stays valid and unchanged for as
// long as it is connected. An engine may keep using it in place after the
// program that transferred it has ended: a weight in a mapped file is never
// copied.
type Constant interface {
	Direct
	// Constant returns the memory; it is the same at every call.
	Constant() []byte
}

// Releaser is a Constant whose memory costs less while nobody looks at it: a
// part of a mapped file.
type Releaser interface {
	Constant
	// Release tells that the engine has all it needs of the memory in a form
	// of its own, and does not look at it before the next transfer. The memory
	// stays valid.
	Release()
}

// Engine executes one executable on one device. It mirrors poplar::Engine.
// One goroutine at a time drives it; Stop may be called from any goroutine.
type Engine interface {
	// Streams returns every stream, in the order of the executable.
	Streams() []StreamInfo
	// Programs returns every program, by ascending index.
	Programs() []ProgramInfo
	// Inline reports whether Run computes in the caller's goroutine, so that
	// a host gains nothing by handing requests to another one.
	Inline() bool
	// Connect attaches the host side of the stream named handle, replacing
	// any earlier one. [ErrUnknownStream] if there is no such handle.
	Connect(handle string, s Stream) error
	// Load places the executable on d, which must be attached. All state on
	// the device is lost; loading again is how an engine recovers from Stop.
	Load(ctx context.Context, d Device) error
	// Run runs the program with the given index to its end and blocks.
	// Every stream it moves must be connected ([ErrUnconnected]); the engine
	// must be loaded ([ErrNotLoaded]). If ctx ends first, Run returns an error
	// that wraps ctx.Err(), also while a stream waits. A panic of a stream is an
	// error too ([ErrPanic]), after which the engine works on.
	Run(ctx context.Context, program int) error
	// Stop makes a blocked Run return with [ErrStopped]. Afterwards the
	// engine must be loaded again before it runs.
	Stop() error
	// Close releases everything; the engine can't be used again. Closing
	// twice is allowed.
	Close() error
}

// Device is one device, or one group of devices that works as one. Its methods
// may be called from any goroutine. Enumerating again gives other Devices for
// the same device, only one of which can be attached at a time.
type Device interface {
	// Info describes the device; it does not need to be attached.
	Info() DeviceInfo
	// Attach takes the device for this process in one attempt and reports
	// whether that succeeded; false means that someone else holds it.
	// Attaching a Device that is attached succeeds and changes nothing.
	Attach() (bool, error)
	// Detach gives the device back. Detaching twice is allowed.
	Detach() error
}

// DeviceInfo describes a device.
type DeviceInfo struct {
	ID            int    // unique in its back end
	Backend       string // name of the back end, such as "cpu"
	Kind          string // "cpu", "ipu" or "ipu_model"
	Description   string // for people
	NumIPUs       int    // IPUs in the group; 1 for a CPU
	TilesPerIPU   int    // 0 where tiles have no meaning
	BytesPerTile  int64  // memory of each tile; 0 where tiles have no meaning, or where it is not known
	Version       int    // IPU hardware version 2 or 21; 0 where there is none, -1 where it is not known
	RemoteBuffers bool   // supports memory outside the device that it can reach
	Shared        bool   // any number of engines may be loaded at the same time, as on a CPU; see [Lease]
}

// Option is one engine or device option, handed to the back end unchanged.
type Option struct{ Name, Value string }

// EngineConfig is what an engine is made from.
type EngineConfig struct {
	// Name names the model, for logs and the like. Errors of an engine leave it
	// out: they name the program, stream or node, and the host says of which model.
	Name string
	// Executable is the executable's bytes. They must stay valid and
	// unchanged until the engine is closed: constants are used in place.
	Executable []byte
	// Options are engine options in the back end's own words. The cpu back
	// end knows "threads".
	Options []Option
	// Streams and Programs are what the model's metadata says of them. They are for
	// back ends whose executables do not tell themselves, as Poplar's; others
	// need and read neither.
	Streams  []StreamInfo
	Programs []ProgramInfo
	// Unused, if it is not nil, is called with parts of Executable that the engine
	// holds in a form of its own and hardly ever looks at again: where they are
	// parts of a mapped file they need take up no memory. They stay valid. It
	// may be called from any goroutine.
	Unused func(part []byte)
	// Context, if it is not nil, ends decoding and planning when it is done: the
	// error is its own. The engine does not keep it.
	Context context.Context
	// DisableHashCheck skips the comparison of the executable's Poplar
	// package hash with that of the running Poplar, and of the definitions of operators that a portable executable
	// may tell with those of the engine.
	DisableHashCheck bool
}

// Backend makes devices and engines.
type Backend interface {
	// Name is the back end's name, such as "cpu" or "poplar".
	Name() string
	// Devices enumerates the devices that exist, attached or not.
	Devices(ctx context.Context) ([]Device, error)
	// Accepts returns nil if an executable of this format (see [Format]) can
	// be run, and otherwise an error that wraps [ErrWrongBackend].
	Accepts(f Format) error
	// NewEngine decodes and verifies an executable.
	NewEngine(c EngineConfig) (Engine, error)
}
