package popart

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Class is what kind of error an [Error] is, as PopART's exceptions are.
type Class uint8

// The classes of errors. Each but the first is a [ErrPopART] as well.
const (
	ClassError    Class = iota // popart::error: what the caller asks for can't be done
	ClassRuntime               // popart::runtime_error: a device or a program failed
	ClassInternal              // popart::internal_error: a mistake of the package
)

// classError is the sentinel of a class.
type classError string

func (e classError) Error() string { return string(e) }

// Sentinels of the classes, for errors.Is.
var (
	ErrPopART   error = classError("popart error")
	ErrRuntime  error = classError("popart runtime error")
	ErrInternal error = classError("popart internal error")
)

// What can be wrong, for errors.Is.
var (
	// ErrDataFlow: a DataFlow has numbers that don't fit each other, or an anchor that is no tensor of the model.
	ErrDataFlow = errors.New("wrong data flow")
	// ErrOption: an option, or an optimizer's value, can't be.
	ErrOption = errors.New("wrong option")
	// ErrNotPrepared: PrepareDevice has to be called first.
	ErrNotPrepared = errors.New("the device is not prepared: call PrepareDevice first")
	// ErrOffline: the device was made with ConnectNever, to compile for and not to run on.
	ErrOffline = errors.New("the device is offline: it was made with ConnectNever, take one that connects")
	// ErrWeightsNotLoaded: a training session runs before its weights are on the device.
	ErrWeightsNotLoaded = errors.New("the weights are not on the device: call WeightsFromHost first")
	// ErrConstantWeights: weights are to be changed that Options.ConstantWeights says stay as they are.
	ErrConstantWeights = errors.New("the weights are constant: set Options.VariableWeights")
	// ErrReplacement: an optimizer does not fit the compiled one.
	ErrReplacement = errors.New("not a valid replacement")
	// ErrTensor: a name is no input, anchor or weight; or one that is needed is missing.
	ErrTensor = errors.New("wrong tensor")
	// ErrSize: an array has another number of elements than a step moves.
	ErrSize = errors.New("wrong number of elements")
	// ErrType: an array has another element type than the tensor.
	ErrType = errors.New("wrong element type")
	// ErrNilBuffer: a callback returned no memory where it has to.
	ErrNilBuffer = errors.New("no buffer")
	// ErrClosed: the session was closed.
	ErrClosed = errors.New("the session is closed")
)

// Error is an error of this package.
type Error struct {
	Class Class
	Doing string // what was being done, as in "run"
	Err   error  // what is wrong
}

// Error returns what was being done, and what is wrong.
func (e *Error) Error() string { return "popart: " + e.Doing + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of the error's class, or ErrPopART.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrPopART:
		return true
	case ErrRuntime:
		return e.Class == ClassRuntime
	case ErrInternal:
		return e.Class == ClassInternal
	}
	return false
}

// fail returns err as an error of a class, or as it is if it is one of this package already.
func fail(class Class, doing string, err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Class: class, Doing: doing, Err: err}
}

// guard calls f; its error is one of [ClassError] unless f says another class, a panic one of [ClassInternal].
func guard(doing string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Class: ClassInternal, Doing: doing, Err: fmt.Errorf("panic: %v\n%s", v, debug.Stack())}
		}
	}()
	return fail(ClassError, doing, f())
}

// wrong returns an error that wraps one of the sentinels.
func wrong(what error, format string, args ...any) error {
	return fmt.Errorf("%w: %s", what, fmt.Sprintf(format, args...))
}
