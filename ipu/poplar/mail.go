//go:build poplar && linux && cgo

package poplar

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// mail is the memory through which Go tells an engine's thread what to do. It is C's.
type mail struct {
	asked, now, cWaits *uint32
	queue              []uint32
}

func newMail(m *C.plr_mail) mail {
	return mail{asked: word(&m.asked), now: word(&m.now), cWaits: word(&m.c_waits), queue: unsafe.Slice(word(&m.queue[0]), C.PLR_QUEUE)}
}

// word is a number of C's as atomic functions want it.
func word(p *C.uint32_t) *uint32 { return (*uint32)(p) }

// publish stores a number before anything is read after it: each side tells the other what it has done or will do, and then
// looks whether the other waits or is done. A store would do, but under the race detector a store may pass the loads behind it.
func publish(at *uint32, v uint32) { atomic.SwapUint32(at, v) }

// send has the engine's thread carry out the command of a slot, after those that were sent before. One goroutine at a time
// may call it.
func (m *mail) send(slot int) {
	k := atomic.LoadUint32(m.asked)
	m.queue[k%C.PLR_QUEUE] = uint32(slot)
	publish(m.asked, k+1)
	if atomic.LoadUint32(m.cWaits) != 0 && atomic.SwapUint32(m.cWaits, 0) != 0 {
		wake(m.cWaits)
	}
}

// Operations of futexes in memory that no other process shares.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

// wake wakes who waits at a futex. It is a system call, without cgo.
func wake(flag *uint32) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(flag)), futexWake, 1, 0, 0, 0)
}

// brief is how long a goroutine waits for a command in a system call, before it is parked: a short request then costs no
// switch of goroutines. Others get its processor meanwhile where Go sees that they need it. A shorter one cost
// more where it was measured: with 200 µs a request took 1.45 times as long as in C++, in place of 1.21.
const brief = time.Millisecond

// seat is a slot as Go sees it: the command, and who waits for its end, one goroutine at a time.
type seat struct {
	c                      *C.plr_run
	failed, ended, goWaits *uint32
	event                  *os.File    // a counter that C writes to when somebody waits for it
	count                  [8]byte     // what is read of it
	soon                   *time.Timer // stopped but for when somebody waits

	mu   sync.Mutex // guards gone, and the memory while kick uses it
	gone bool       // the memory is about to be freed
}

// open makes what a seat needs before its first command.
func (s *seat) open() error {
	if s.event != nil {
		return nil
	}
	fd, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if errno != 0 {
		return fmt.Errorf("make an event counter: %w", errno)
	}
	s.event = os.NewFile(fd, "eventfd") // whose reader takes up no thread
	s.c.event = C.int32_t(fd)
	s.soon = time.AfterFunc(time.Hour, s.kick)
	s.soon.Stop()
	return nil
}

// leave has a timer that comes late leave the memory alone.
func (s *seat) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
}

func (s *seat) close() error {
	if s.event == nil {
		return nil
	}
	return s.event.Close()
}

// ready reports whether the command has ended.
func (s *seat) ready() bool { return atomic.LoadUint32(s.ended) != 0 }

// kick has who waits look again, unless the engine is closed.
func (s *seat) kick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	switch atomic.SwapUint32(s.goWaits, C.PLR_NOBODY) {
	case C.PLR_AT_FUTEX:
		wake(s.goWaits)
	case C.PLR_AT_EVENT:
		one := [8]byte{1}
		_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(s.c.event), uintptr(unsafe.Pointer(&one)), 8)
	}
}

// rest waits for the end of the command for a short time, and reports whether it has come.
func (s *seat) rest() bool {
	publish(s.goWaits, C.PLR_AT_FUTEX)
	if s.ready() {
		return true
	}
	limit := syscall.NsecToTimespec(brief.Nanoseconds())
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(s.goWaits)), futexWait, C.PLR_AT_FUTEX, uintptr(unsafe.Pointer(&limit)), 0, 0)
	return s.ready()
}

// park waits until C or kick wakes it.
func (s *seat) park() {
	if _, err := s.event.Read(s.count[:]); err != nil {
		time.Sleep(time.Millisecond) // it can't be read: what is waited for is looked at now and then
	}
}
