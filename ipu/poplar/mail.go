//go:build poplar && linux && cgo

package poplar

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// mail is the memory through which Go tells an engine's thread what to do, and it Go when it is done. It is C's.
type mail struct {
	asked, command, program, failed, ended, result, goWaits, cWaits *uint32
}

func newMail(e *C.plr_engine) mail {
	m := C.plr_engine_mail(e)
	word := func(p unsafe.Pointer) *uint32 { return (*uint32)(p) }
	return mail{
		asked: word(unsafe.Pointer(&m.asked)), command: word(unsafe.Pointer(&m.command)), program: word(unsafe.Pointer(&m.program)),
		failed: word(unsafe.Pointer(&m.failed)), ended: word(unsafe.Pointer(&m.ended)), result: word(unsafe.Pointer(&m.result)),
		goWaits: word(unsafe.Pointer(&m.go_waits)), cWaits: word(unsafe.Pointer(&m.c_waits)),
	}
}

// send has the engine's thread begin a command.
func (m *mail) send(command, program uint32) {
	atomic.StoreUint32(m.command, command)
	atomic.StoreUint32(m.program, program)
	atomic.AddUint32(m.asked, 1)
	wake(m.cWaits)
}

// ready reports whether the command under way has ended.
func (m *mail) ready() bool { return atomic.LoadUint32(m.ended) == atomic.LoadUint32(m.asked) }

// wake wakes the C side if it waits at a flag. It is a system call, without cgo.
func wake(flag *uint32) {
	if atomic.LoadUint32(flag) != 0 && atomic.SwapUint32(flag, 0) != 0 {
		const wakePrivate = 1 | 128 // FUTEX_WAKE_PRIVATE
		_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(flag)), wakePrivate, 1, 0, 0, 0)
	}
}

// newEvent makes what C wakes Go by: an event counter, whose reader takes up no thread.
func newEvent() (*os.File, int, error) {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return nil, 0, fmt.Errorf("make an event counter: %w", errno)
	}
	return os.NewFile(fd, "eventfd"), int(fd), nil
}

// poll tells the engine's Go side, until its event counter is closed, that C has something for it.
func (e *Engine) poll() {
	defer close(e.polled)
	var count [8]byte
	for {
		if _, err := e.event.Read(count[:]); err != nil {
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			return // closed
		}
		select {
		case e.wake <- struct{}{}:
		default: // it has not looked yet
		}
	}
}
