package ipu

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrPanic: code that the host gave (a stream, an observer, a factory, …), or a
// kernel, panicked. The error is a [*PanicError].
var ErrPanic = errors.New("panic")

// PanicError is a panic that became an error.
type PanicError struct {
	Value any    // what was panicked with
	Stack []byte // of the goroutine that panicked
}

// NewPanicError returns the error for what recover returned. A [*PanicError],
// which went from one goroutine to another, stays as it is.
func NewPanicError(v any) *PanicError {
	if p, ok := v.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: v, Stack: debug.Stack()}
}

// NewExitError returns the error for code that ended its goroutine by
// [runtime.Goexit], as FailNow of package testing does, for a deferred function
// that finds out: nothing can keep the goroutine, so whatever it was to do for
// others has to be done there.
func NewExitError() *PanicError {
	return NewPanicError("the goroutine was ended by runtime.Goexit")
}

// Error returns the value and the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Is reports whether target is [ErrPanic].
func (e *PanicError) Is(target error) bool { return target == ErrPanic }

// Unwrap returns the value if it is an error, such as a runtime error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Guard makes a panic the error of the function that defers it:
//
//	func call(f func()) (err error) {
//		defer ipu.Guard(&err)
//		f()
//		return nil
//	}
//
// Every call of code that is not this module's own stands under it, or under
// what recovers in its way, so that a mistake there costs one request and not
// the process.
func Guard(err *error) {
	if v := recover(); v != nil {
		*err = NewPanicError(v)
	}
}
