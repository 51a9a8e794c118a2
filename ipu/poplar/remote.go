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

// writeRemote writes what is connected to remote buffers, on an engine that was loaded.
func (e *Engine) writeRemote() error {
	for i := range e.streams {
		s := &e.streams[i]
		r, ok := s.end.(*remote)
		if !ok {
			continue
		}
		if err := e.writeBlocks(s.info, r.host.Constant()); err != nil {
			return err
		}
		if r, ok := r.host.(ipu.Releaser); ok {
			r.Release()
		}
	}
	return nil
}

func (e *Engine) writeBlocks(info ipu.StreamInfo, data []byte) error {
	handle := C.CString(info.Handle)
	defer C.free(unsafe.Pointer(handle))
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(data))
	size := info.Bytes / info.Blocks
	for k := range info.Blocks {
		var err C.plr_err
		code := C.plr_remote_write(e.c, handle, C.uint64_t(k), unsafe.Pointer(unsafe.SliceData(data[k*size:])), &err)
		if err := failure(code, &err, fmt.Sprintf("remote buffer %q, block %d of %d", info.Handle, k, info.Blocks)); err != nil {
			return err
		}
	}
	return nil
}
