package build

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrNoBuilder is the error of calls whose Builder is nil or was not made by [New].
var ErrNoBuilder = errors.New("no Builder: make one with build.New")

// Error is one mistake in the building of a model.
type Error struct {
	File string // of the call, outside of this package
	Line int
	Call string // what was called, such as "Conv"
	Err  error
}

// Error returns the text, such as "net.go:14: Conv: …".
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d: %s: %v", filepath.Base(e.File), e.Line, e.Call, e.Err)
}

// Unwrap returns what was wrong.
func (e *Error) Unwrap() error { return e.Err }

// most is how many mistakes are kept; what follows is counted.
const most = 100

// place is where a call was made.
type place struct {
	call string
	pcs  []uintptr
}

// deepest is how many callers are searched for one outside of this package.
const deepest = 24

// here returns the place of the call that is under way.
func here(call string) place {
	var pcs [deepest]uintptr
	n := runtime.Callers(2, pcs[:])
	return place{call, append([]uintptr(nil), pcs[:n]...)}
}

// error returns a mistake at the place: in the innermost caller from outside of this package.
func (p place) error(err error) *Error {
	e := &Error{Call: p.call, Err: err}
	frames := runtime.CallersFrames(p.pcs)
	for len(p.pcs) > 0 {
		f, more := frames.Next()
		if e.File, e.Line = f.File, f.Line; !strings.HasPrefix(f.Function, own+".") || !more {
			break
		}
	}
	return e
}

const own = "github.com/popefgen/popefgen/onnx/build"

// fail keeps a mistake.
func (b *Builder) fail(p place, format string, args ...any) {
	if len(b.errs) >= most {
		b.more++
		return
	}
	b.errs = append(b.errs, p.error(fmt.Errorf(format, args...)))
}

// Err returns all mistakes so far, each an [*Error], joined in the order of the calls; nil if there are none.
func (b *Builder) Err() error {
	if !b.usable() {
		return ErrNoBuilder
	}
	errs := b.errs
	if b.more > 0 {
		errs = append(errs[:len(errs):len(errs)], fmt.Errorf("and %d more", b.more))
	}
	return errors.Join(errs...)
}
