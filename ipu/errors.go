package ipu

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of the host's side of the contract, for errors.Is.
var (
	// ErrCallback: a stream's Fetch failed, which ended the program.
	ErrCallback = errors.New("stream callback failed")
	// ErrStopped: the engine was stopped and must be loaded again.
	ErrStopped = errors.New("engine stopped")
	// ErrNotLoaded: the engine has not been loaded onto a device.
	ErrNotLoaded = errors.New("engine not loaded")
	// ErrUnconnected: a program moves a stream that nothing is connected to.
	ErrUnconnected = errors.New("stream not connected")
	// ErrUnknownStream: the executable has no stream of that handle.
	ErrUnknownStream = errors.New("unknown stream")
	// ErrUnknownProgram: the executable has no program of that index.
	ErrUnknownProgram = errors.New("unknown program")
	// ErrWrongBackend: the back end can't run executables of this format.
	ErrWrongBackend = errors.New("executable is for another back end")
	// ErrUnknownBackend: no back end of that name is registered.
	ErrUnknownBackend = errors.New("unknown back end")
	// ErrClosed: the engine or device was closed.
	ErrClosed = errors.New("closed")
	// ErrBusy: another call is using the engine or device.
	ErrBusy = errors.New("busy")
	// ErrNoDevice: no device fits, or every one that fits is taken.
	ErrNoDevice = errors.New("no device")
	// ErrNotAttached: the device must be attached first.
	ErrNotAttached = errors.New("device not attached")
)

// ErrorKind classifies what a device or its driver reported. The kinds mirror
// the exceptions of Poplar (poplar/exceptions.hpp).
type ErrorKind uint8

// The kinds of device error.
const (
	KindOther            ErrorKind = iota // any poplar_error without a kind of its own
	KindRuntime                           // runtime_error
	KindApplication                       // application_runtime_error: the program itself failed, such as a floating-point exception
	KindSystem                            // system_runtime_error
	KindRecoverable                       // recoverable_runtime_error: see [Error.Recovery]
	KindUnrecoverable                     // unrecoverable_runtime_error: the hardware needs repair
	KindUnknown                           // unknown_runtime_error: the state of the hardware is unknown
	KindStreamConnection                  // stream_connection_error
	KindInvalidOption                     // invalid_option
	KindMemory                            // stream_memory_allocation_error, graph_memory_allocation_error
	KindPackageHash                       // the executable was compiled by another Poplar
	numKinds
)

var kinds = [numKinds]struct {
	words  string
	parent ErrorKind
}{
	KindOther:            {words: "device error"},
	KindRuntime:          {words: "runtime error"},
	KindApplication:      {"application error", KindRuntime},
	KindSystem:           {"system error", KindRuntime},
	KindRecoverable:      {"recoverable error", KindSystem},
	KindUnrecoverable:    {"unrecoverable error", KindSystem},
	KindUnknown:          {"error of unknown cause", KindSystem},
	KindStreamConnection: {words: "stream connection error"},
	KindInvalidOption:    {words: "invalid option"},
	KindMemory:           {words: "out of memory"},
	KindPackageHash:      {words: "package hash mismatch"},
}

// String returns the kind in words, such as "recoverable error".
func (k ErrorKind) String() string {
	if k < numKinds {
		return kinds[k].words
	}
	return fmt.Sprintf("device error %d", uint8(k))
}

// kindError is the sentinel of one kind.
type kindError ErrorKind

func (e kindError) Error() string { return ErrorKind(e).String() }

// Sentinels of the kinds of device error. errors.Is(err, ErrSystem) holds for
// its recoverable, unrecoverable and unknown errors too, and ErrRuntime for
// those and application errors, as in Poplar's hierarchy.
var (
	ErrRuntime          error = kindError(KindRuntime)
	ErrApplication      error = kindError(KindApplication)
	ErrSystem           error = kindError(KindSystem)
	ErrRecoverable      error = kindError(KindRecoverable)
	ErrUnrecoverable    error = kindError(KindUnrecoverable)
	ErrUnknown          error = kindError(KindUnknown)
	ErrStreamConnection error = kindError(KindStreamConnection)
	ErrInvalidOption    error = kindError(KindInvalidOption)
	ErrMemory           error = kindError(KindMemory)
	ErrPackageHash      error = kindError(KindPackageHash)
)

// AssertionError says that a program met a value other than the one that its
// executable was made for, such as the condition of an If of which only one
// branch could be compiled. The run has no results. The engine is as good as
// before: the next run may have values that fit.
type AssertionError struct {
	Message string // what was assumed, and what to do where that does not hold
}

// Error returns the message.
func (e *AssertionError) Error() string { return e.Message }

// Recovery is what repairs a device after a recoverable error. It mirrors
// poplar::RecoveryAction.
type Recovery uint8

// The recovery actions.
const (
	RecoveryNone   Recovery = iota // nothing was named
	IPUReset                       // load the engine again
	LinkReset                      // reset the links between IPUs
	PartitionReset                 // reset the partition
	FullReset                      // reset, or power-cycle, the machine
)

var recoveries = [...]string{"", "IPU_RESET", "LINK_RESET", "PARTITION_RESET", "FULL_RESET"}

// String returns Poplar's name of the action, such as "IPU_RESET", and "" for
// none.
func (r Recovery) String() string {
	if int(r) < len(recoveries) {
		return recoveries[r]
	}
	return fmt.Sprintf("recovery action %d", uint8(r))
}

// ParseRecovery returns the action that Poplar calls name, and RecoveryNone
// for a name that is not known.
func ParseRecovery(name string) Recovery {
	for i, n := range recoveries {
		if n == name {
			return Recovery(i)
		}
	}
	return RecoveryNone
}

// Error is an error that a device or its driver reported.
type Error struct {
	Kind     ErrorKind
	Recovery Recovery // for KindRecoverable
	Op       string   // what was being done, such as "run program 1"
	Message  string   // the device's own words; may be empty
	Err      error    // the cause, if it is another error
}

// Error returns "op: kind (needs action): message: cause", without what is
// empty, and without the kind of a cause that has the same.
func (e *Error) Error() string { return strings.Join(e.parts(nil), ": ") }

func (e *Error) parts(outer *Error) []string {
	kind := e.Kind.String()
	if e.Recovery != RecoveryNone {
		kind += " (needs " + e.Recovery.String() + ")"
	}
	if outer != nil && outer.Kind == e.Kind && outer.Recovery == e.Recovery {
		kind = ""
	}
	parts := make([]string, 0, 4)
	for _, s := range []string{e.Op, kind, e.Message} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	switch cause := e.Err.(type) {
	case nil:
	case *Error:
		parts = append(parts, cause.parts(e)...)
	default:
		parts = append(parts, cause.Error())
	}
	return parts
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of the error's kind or of a kind
// that includes it.
func (e *Error) Is(target error) bool {
	want, ok := target.(kindError)
	if !ok {
		return false
	}
	for k := e.Kind; k != KindOther && k < numKinds; k = kinds[k].parent {
		if k == ErrorKind(want) {
			return true
		}
	}
	return false
}

// Reloadable reports whether loading the engine again is what repairs err: it
// is an application error, or a recoverable one whose action is IPU_RESET.
// Every other device error is fatal to the engine.
func Reloadable(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Kind == KindApplication || e.Kind == KindRecoverable && e.Recovery == IPUReset
}
