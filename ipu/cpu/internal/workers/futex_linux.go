package workers

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// semaphore is a counting semaphore on a futex: workers sleep on it, each until
// there is a token for it.
//
// They sleep in the system's own queue: a goroutine that waits for a channel
// wakes up in the queue of the processor that woke it, which is at work, and
// until another one has come to take it from there much more time passes than
// the system needs to go on with a thread.
//
// Where other programs have all cores, however little they may claim of them, the
// system lets a woken worker wait for the very core that the one who woke it
// computes on, and not for the other one. So a worker that finds itself there
// leaves it.
type semaphore struct {
	tokens atomic.Uint32
	waker  atomic.Uint32 // the core of who woke the last worker
}

// The operations of the system call futex on memory of one process.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

// init makes room for so many workers.
func (s *semaphore) init(int) {}

// wait sleeps until there is a token and takes it.
func (s *semaphore) wait() {
	for {
		if n := s.tokens.Load(); n == 0 {
			// Whether it was woken, interrupted or too late, the tokens tell.
			_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&s.tokens)), futexWait, 0, 0, 0, 0)
		} else if s.tokens.CompareAndSwap(n, n-1) {
			leave(s.waker.Load())
			return
		}
	}
}

// post adds a token and wakes one worker for it.
func (s *semaphore) post() {
	s.waker.Store(core())
	s.tokens.Add(1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&s.tokens)), futexWake, 1)
}

// giveWay lets other threads have the core.
func giveWay() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// core returns the number of the core that it runs on.
func core() (n uint32) {
	_, _, _ = syscall.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&n)), 0, 0)
	return n
}

// leave moves the calling thread to another core if it is on the given one and may
// run on others: for a moment that core is none of its own.
func leave(here uint32) {
	if core() != here {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil || all.Count() < 2 {
		return
	}
	others := all
	others.Clear(int(here))
	if unix.SchedSetaffinity(0, &others) == nil {
		// Where it may run again is where it might before, so this does not fail.
		_ = unix.SchedSetaffinity(0, &all)
	}
}
