//go:build poplar && linux && cgo

package poplar

// #include "shim.h"
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// constant is an input that Poplar reads where it lies: a part of a mapped file, or memory of Go that is pinned.
type constant struct {
	host ipu.Constant
	mem  []byte
	pin  runtime.Pinner
}

func (e *Engine) connectConstant(handle *C.char, host ipu.Constant) (end, error) {
	s := &constant{host: host, mem: host.Constant()}
	s.pin.Pin(unsafe.SliceData(s.mem)) // does nothing to what is not Go's
	if err := s.again(e, ipu.StreamInfo{}, handle); err != nil {
		s.pin.Unpin()
		return nil, err
	}
	return s, nil
}

func (s *constant) again(e *Engine, _ ipu.StreamInfo, handle *C.char) error {
	var err C.plr_err
	return failure(C.plr_connect_memory(e.c, handle, unsafe.Pointer(unsafe.SliceData(s.mem)), C.size_t(len(s.mem)), &err), &err, "")
}

func (s *constant) begin(*run) {}
func (s *constant) reset()     {}
func (s *constant) release()   { s.pin.Unpin() }

// finish tells the host that the data is on the device.
func (s *constant) finish(_ *run, ok bool) error {
	if !ok {
		return nil
	}
	s.host.Complete()
	if r, is := s.host.(ipu.Releaser); is {
		r.Release()
	}
	return nil
}

// empty is the end of a stream without a host's side.
type empty struct{}

func (empty) again(e *Engine, info ipu.StreamInfo, handle *C.char) error {
	return e.connectNull(info, handle)
}
func (empty) begin(*run)              {}
func (empty) finish(*run, bool) error { return nil }
func (empty) reset()                  {}
func (empty) release()                {}
