package cpu

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// beds is where workers sleep, each until there is a token for it.
//
// They sleep in the system's own queue: a goroutine that waits for a channel
// wakes up in the queue of the processor that woke it, which is at work, and
// until another one has come to take it from there much more time passes than
// the system needs to go on with a thread.
type beds struct{ tokens atomic.Uint32 }

// The operations of the system call futex on memory of one process.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

// init makes room for so many workers.
func (b *beds) init(int) {}

// sleep waits for a token and takes it.
func (b *beds) sleep() {
	for {
		if n := b.tokens.Load(); n == 0 {
			// Whether it was woken, interrupted or too late, the tokens tell.
			_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&b.tokens)), futexWait, 0, 0, 0, 0)
		} else if b.tokens.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// wake adds a token, for one worker.
func (b *beds) wake() {
	b.tokens.Add(1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&b.tokens)), futexWake, 1)
}

// giveWay lets other threads have the core.
func giveWay() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
