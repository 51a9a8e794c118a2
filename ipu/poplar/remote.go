//go:build poplar && linux && cgo

package poplar

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// remote is a remote buffer, whose data is written whenever the engine is loaded.
type remote struct {
	empty
	host ipu.Constant
}

// again does nothing: it is connected to nothing.
func (*remote) again(*Engine, ipu.StreamInfo, *C.char) error { return nil }

var errRemote = errors.New("it is a remote buffer, whose data has to be there when the engine is loaded, with its size")

func connectRemote(info ipu.StreamInfo, host ipu.Stream) (end, error) {
	if host == nil {
		return nil, nil
	}
	h, ok := host.(ipu.Constant)
	if !ok || len(h.Constant()) != info.Bytes {
		return nil, errRemote
	}
	return &remote{host: h}, nil
}

// writeRemote writes what is connected to remote buffers, on an engine that was loaded by r, unless that is to end.
func (e *Engine) writeRemote(r *run) error {
	for i := range e.streams {
		s := &e.streams[i]
		end, ok := s.end.(*remote)
		if !ok {
			continue
		}
		called := func(f func()) error {
			if err := guarded(func() error { f(); return nil }); err != nil {
				return fmt.Errorf("stream %q: %w: %w", s.info.Handle, ipu.ErrCallback, err)
			}
			return nil
		}
		var data []byte
		if err := called(func() { data = end.host.Constant() }); err != nil {
			return err
		}
		if len(data) != s.info.Bytes {
			return fmt.Errorf("stream %q: %w: %d bytes, want %d", s.info.Handle, errRemote, len(data), s.info.Bytes)
		}
		if err := e.writeBlocks(r, s.info, data); err != nil {
			return err
		}
		if host, ok := end.host.(ipu.Releaser); ok {
			if err := called(host.Release); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) writeBlocks(r *run, info ipu.StreamInfo, data []byte) error {
	handle := C.CString(info.Handle)
	defer C.free(unsafe.Pointer(handle))
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(data))
	size := info.Bytes / info.Blocks
	for k := range info.Blocks {
		if r.stopped.Load() {
			return ipu.ErrStopped
		}
		if err := r.ctx.Err(); err != nil {
			return err
		}
		var err C.plr_err
		code := C.plr_remote_write(e.c, handle, C.uint64_t(k), unsafe.Pointer(unsafe.SliceData(data[k*size:])), &err)
		if err := failure(code, &err, fmt.Sprintf("remote buffer %q, block %d of %d", info.Handle, k, info.Blocks)); err != nil {
			return err
		}
	}
	return nil
}
