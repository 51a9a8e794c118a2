//go:build poplar && linux && cgo

package poplar

/*
#cgo CXXFLAGS: -std=c++17 -O2
#cgo poplarfake CXXFLAGS: -I${SRCDIR}/internal/fakesdk -DPLR_TEST_PAUSE
#cgo !poplarfake LDFLAGS: -lpoplar
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// Name is the back end's name in the registry of package ipu.
const Name = "poplar"

func init() {
	if err := checkLayout(); err != nil {
		panic(err.Error())
	}
	ipu.Register(backend{})
}

// backend implements [ipu.Backend].
type backend struct{}

var (
	_ ipu.DeviceLister = backend{}
	_ ipu.Simulator    = backend{}
)

// Name returns "poplar".
func (backend) Name() string { return Name }

// Version returns the version of the Poplar that runs, in its own words.
func Version() string { return C.GoString(C.plr_version()) }

// PackageHash returns the hash of the Poplar that runs, which executables that it compiles have.
func PackageHash() string { return C.GoString(C.plr_package_hash()) }

// Accepts accepts what Poplar compiled.
func (backend) Accepts(f ipu.Format) error {
	switch {
	case f == ipu.FormatPoplar, f == ipu.FormatPortable && runsPortable:
		return nil
	case f == ipu.FormatPortable:
		return fmt.Errorf("%w: it is a portable executable, which IPUs can't run; use the cpu back end", ipu.ErrWrongBackend)
	}
	return fmt.Errorf("%w: its format is %v, and the poplar back end runs executables that Poplar compiled", ipu.ErrWrongBackend, f)
}

// NewEngine reads an executable of Poplar, whose streams and programs the configuration describes.
func (b backend) NewEngine(c ipu.EngineConfig) (ipu.Engine, error) {
	return newEngine(c, func(exe **C.plr_exe, err *C.plr_err) error {
		if e := b.Accepts(ipu.Identify(c.Executable)); e != nil {
			return e
		}
		var pin runtime.Pinner
		defer pin.Unpin()
		pin.Pin(unsafe.SliceData(c.Executable))
		code := C.plr_exe_from_memory(unsafe.Pointer(unsafe.SliceData(c.Executable)), C.size_t(len(c.Executable)), checkHash(c), exe, err)
		return failure(code, err, "read the executable")
	})
}

// OpenFile makes an engine of an executable that is the part of a file from offset on, of size bytes; no part of it is
// read into Go's memory. The configuration is as for other engines, without its Executable.
func OpenFile(path string, offset, size int64, c ipu.EngineConfig) (ipu.Engine, error) {
	if len(c.Executable) > 0 || offset < 0 || size < 0 {
		return nil, fmt.Errorf("make a poplar engine of %s: %d bytes from %d on, and %d bytes of an executable beside it", path, size, offset, len(c.Executable))
	}
	return newEngine(c, func(exe **C.plr_exe, err *C.plr_err) error {
		f, e := os.Open(path)
		if e != nil {
			return e
		}
		defer func() { _ = f.Close() }() // it was only read
		code := C.plr_exe_from_file(C.int32_t(f.Fd()), C.uint64_t(offset), C.uint64_t(size), checkHash(c), exe, err)
		return failure(code, err, "read the executable in "+path)
	})
}

func checkHash(c ipu.EngineConfig) C.int32_t {
	if c.DisableHashCheck {
		return 0
	}
	return 1
}

// newEngine makes an engine of what read reads.
func newEngine(c ipu.EngineConfig, read func(exe **C.plr_exe, err *C.plr_err) error) (ipu.Engine, error) {
	e, err := makeEngine(c, read)
	if err != nil {
		return nil, fmt.Errorf("make a poplar engine: %w", err)
	}
	return e, nil
}

func makeEngine(c ipu.EngineConfig, read func(exe **C.plr_exe, err *C.plr_err) error) (_ *Engine, err error) {
	if c.Context != nil {
		if err := c.Context.Err(); err != nil {
			return nil, err
		}
	}
	streams, programs, err := describe(c)
	if err != nil {
		return nil, err
	}
	var cerr C.plr_err
	var exe *C.plr_exe
	if err := read(&exe, &cerr); err != nil {
		return nil, err
	}
	o := newOptions(c.Options)
	defer o.free()
	e := &Engine{rests: runtime.GOMAXPROCS(0) > 1}
	if err := failure(C.plr_engine_new(exe, o.c, &e.c, &cerr), &cerr, "make the engine"); err != nil {
		return nil, err
	}
	m := C.plr_engine_mail(e.c)
	e.mail = newMail(m)
	for i := range e.seats {
		c := &m.runs[i]
		e.seats[i] = seat{c: c, failed: word(&c.failed), ended: word(&c.ended), goWaits: word(&c.go_waits)}
	}
	if err := e.seats[0].open(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if err := e.setStreams(streams, programs); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// options are options in C's memory.
type options struct{ c C.plr_options }

func newOptions(all []ipu.Option) options {
	var text []byte
	for _, o := range all {
		text = append(append(append(append(text, o.Name...), 0), o.Value...), 0)
	}
	text = append(text, 0)
	return options{C.plr_options{pairs: (*C.char)(C.CBytes(text)), n: C.size_t(len(all))}}
}

func (o options) free() { C.free(unsafe.Pointer(o.c.pairs)) }

// Devices lists the devices that Poplar knows, single IPUs and groups of them.
func (b backend) Devices(ctx context.Context) ([]ipu.Device, error) { return b.DevicesWith(ctx, nil) }
