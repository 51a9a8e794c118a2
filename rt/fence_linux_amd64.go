//go:build !race

package rt

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The system call membarrier and two of its commands, which package syscall
// does not name.
const (
	sysMembarrier = 324
	passFence     = 1 << 3 // MEMBARRIER_CMD_PRIVATE_EXPEDITED
	registerFence = 1 << 4 // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
)

// fenced says that the process has registered for fences.
var (
	fenced   atomic.Bool
	register sync.Once
)

// canFence reports whether fence works. At first it does not: to register takes
// the kernel some ten milliseconds, which no request waits for.
func canFence() bool {
	register.Do(func() {
		go func() {
			_, _, err := syscall.Syscall(sysMembarrier, registerFence, 0, 0)
			fenced.Store(err == 0)
		}()
	})
	return fenced.Load()
}

// fence makes every processor that runs a thread of this process pass a full
// memory fence: what it stored before is seen by the caller afterwards, and
// what it loads afterwards it loads as the caller left it.
func fence() {
	if _, _, err := syscall.RawSyscall(sysMembarrier, passFence, 0, 0); err != 0 {
		// The kernel grants it to who has registered; a sandbox that the process has
		// entered since may not. A store waits in its processor for microseconds.
		fenced.Store(false)
		time.Sleep(time.Millisecond)
	}
}

// storeQuietly stores v with no fence after it. It is a plain store: Go's
// compiler keeps it between the memory operations around it, an aligned word is
// written as a whole, and amd64 makes stores seen in their order, so that
// whoever sees this one sees all before it.
func storeQuietly(p *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
