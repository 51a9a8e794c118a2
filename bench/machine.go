package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	xcpu "golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/popefgen/popefgen/ipu/cpu"
)

// machine is what the measurements were made on, and what it can do at
// most.
type machine struct {
	peak float64 // float32 operations a second of one thread, the best measured
	both float64 // of two threads at the same time
	busy float64 // processors that others kept busy when the measurements began
}

// newMachine looks at what others do before anything is measured.
func newMachine() *machine {
	m := &machine{}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &m.busy) // where there is none, 0
	}
	m.measure()
	return m
}

// measure measures the peaks again, keeps the best and returns the one of one
// thread.
func (m *machine) measure() float64 {
	one := cpu.Peak(1)
	m.peak = max(m.peak, one)
	m.both = max(m.both, cpu.Peak(2))
	return one
}

// String describes the machine without naming it.
func (m *machine) String() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // where there is none, less is known
	field := func(name string) string {
		for line := range strings.Lines(string(info)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
				return strings.TrimSpace(v)
			}
		}
		return "unknown"
	}
	return fmt.Sprintf("%s/%s, %s family %s, kernels on the %s path (AVX-512 %s, VNNI %s), %d cores; measured peak %.0f GFLOP/s on one thread, %.0f on two; %.1f threads of others in the minute before",
		runtime.GOOS, runtime.GOARCH, field("vendor_id"), field("cpu family"), cpu.Path(),
		yes(xcpu.X86.HasAVX512F), yes(xcpu.X86.HasAVX512VNNI), runtime.NumCPU(), m.peak/1e9, m.both/1e9, m.busy)
}

// warning says what to make of measurements on a machine that others used, ""
// if it was quiet.
func (m *machine) warning() string {
	if m.busy < 1 {
		return ""
	}
	return " **The machine was not quiet:** what takes milliseconds, and everything on two threads, says little."
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// goVersion returns the version of Go, as in "1.26.0".
func goVersion() string { return strings.TrimPrefix(runtime.Version(), "go") }

// processorTime returns the processor time of the current thread, which what
// others do on the machine does not add to.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
