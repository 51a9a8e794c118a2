//go:build poplar && linux && cgo

package poplar

// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// kinds has the kind for each code of the shim.
var kinds = map[C.int32_t]ipu.ErrorKind{
	C.PLR_STD: ipu.KindOther, C.PLR_POPLAR: ipu.KindOther, C.PLR_RUNTIME: ipu.KindRuntime, C.PLR_APPLICATION: ipu.KindApplication,
	C.PLR_SYSTEM: ipu.KindSystem, C.PLR_RECOVERABLE: ipu.KindRecoverable, C.PLR_UNRECOVERABLE: ipu.KindUnrecoverable,
	C.PLR_UNKNOWN: ipu.KindUnknown, C.PLR_CONNECTION: ipu.KindStreamConnection, C.PLR_OPTION: ipu.KindInvalidOption,
	C.PLR_MEMORY: ipu.KindMemory, C.PLR_HASH: ipu.KindPackageHash,
}

// recoveries has the action for each number of the shim.
var recoveries = map[C.int32_t]ipu.Recovery{
	C.PLR_IPU_RESET: ipu.IPUReset, C.PLR_LINK_RESET: ipu.LinkReset, C.PLR_PARTITION_RESET: ipu.PartitionReset, C.PLR_FULL_RESET: ipu.FullReset,
}

// failure returns the error of a call of the shim, nil for code 0, and frees what it has of C's memory.
func failure(code C.int32_t, e *C.plr_err, doing string) error {
	if code == C.PLR_OK {
		return nil
	}
	defer C.plr_err_clear(e)
	message, class := C.GoString(e.msg), C.GoString(&e._type[0])
	switch code {
	case C.PLR_BUSY:
		return fmt.Errorf("%s: %w: %s", doing, ipu.ErrBusy, message)
	case C.PLR_ARGUMENT:
		return fmt.Errorf("%s: %s", doing, message)
	}
	kind, ok := kinds[code]
	if kind == ipu.KindOther && class != "" { // the class says more than the kind
		message = class + ": " + message
	}
	if !ok {
		message = fmt.Sprintf("code %d of the shim: %s", code, message)
	}
	return &ipu.Error{Kind: kind, Recovery: recoveries[e.recovery], Op: doing, Message: message}
}

// checkLayout compares the memory that Go and C++ share: its layout in the one with that in the other.
func checkLayout() error {
	var there [C.PLR_LAYOUT]C.size_t
	C.plr_layout(&there[0])
	var e C.plr_err
	var d C.plr_devinfo
	var u C.plr_run
	var m C.plr_mail
	var p C.plr_part
	var r C.plr_ring
	here := [C.PLR_LAYOUT]uintptr{
		unsafe.Sizeof(e), unsafe.Offsetof(e.recovery), unsafe.Offsetof(e._type), unsafe.Offsetof(e.msg),
		unsafe.Sizeof(d), unsafe.Offsetof(d._type), unsafe.Offsetof(d.remote_buffers), unsafe.Offsetof(d.arch), unsafe.Offsetof(d.system),
		unsafe.Sizeof(u), unsafe.Offsetof(u.command), unsafe.Offsetof(u.program), unsafe.Offsetof(u.epoch), unsafe.Offsetof(u.event), unsafe.Offsetof(u.number),
		unsafe.Offsetof(u.failed), unsafe.Offsetof(u.ended), unsafe.Offsetof(u.result), unsafe.Offsetof(u.go_waits),
		unsafe.Sizeof(m), unsafe.Offsetof(m.ended), unsafe.Offsetof(m.now), unsafe.Offsetof(m.c_waits), unsafe.Offsetof(m.queue), unsafe.Offsetof(m.runs),
		unsafe.Sizeof(p), unsafe.Offsetof(p.n), unsafe.Offsetof(p.moved), unsafe.Offsetof(p.run), unsafe.Offsetof(p.over),
		unsafe.Sizeof(r), unsafe.Offsetof(r.mail), unsafe.Offsetof(r.look), unsafe.Offsetof(r.fetched), unsafe.Offsetof(r.prefetched), unsafe.Offsetof(r.refused),
		unsafe.Offsetof(r.starved), unsafe.Offsetof(r.parts), C.PLR_SLOTS, C.PLR_QUEUE,
	}
	for i := range here {
		if here[i] != uintptr(there[i]) {
			return fmt.Errorf("ipu/poplar: number %d of the layout of shared memory is %d in Go and %d in C++: they were built from different files", i, here[i], there[i])
		}
	}
	return nil
}
