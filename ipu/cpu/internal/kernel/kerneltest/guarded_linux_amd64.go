package kerneltest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	slabBytes = 1 << 18 // of one operand, at most
	slabs     = 16
	beside    = 256  // bytes beside an operand that are looked at
	untouched = 0xa5 // in all of them
)

// Guarded is memory for the operands of a function in assembly, each of which
// ends where memory ends that may be touched, or begins where it begins.
type Guarded struct {
	*rand.Rand
	t     testing.TB
	slabs [slabs][]byte
	used  int
	first bool     // operands begin where memory does
	rest  [][]byte // what must stay as it is
}

// newGuarded returns memory between pages that may not be touched.
func newGuarded(t testing.TB) *Guarded {
	m := &Guarded{Rand: rand.New(rand.NewPCG(1, 2)), t: t}
	page := unix.Getpagesize()
	for i := range m.slabs {
		all, err := unix.Mmap(-1, 0, slabBytes+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Munmap(all) })
		require.NoError(t, unix.Mprotect(all[:page], unix.PROT_NONE))
		require.NoError(t, unix.Mprotect(all[page+slabBytes:], unix.PROT_NONE))
		m.slabs[i] = all[page:][:slabBytes]
	}
	return m
}

// At returns guarded memory that holds a copy of an operand's elements.
func At[T any](m *Guarded, elements []T) []T {
	m.t.Helper()
	var one T
	n := len(elements) * int(unsafe.Sizeof(one))
	require.Less(m.t, m.used, slabs, "more operands than there is memory for")
	require.Positive(m.t, n, "an operand of no elements")
	require.LessOrEqual(m.t, n+beside, slabBytes, "an operand is too long")
	slab := m.slabs[m.used]
	m.used++
	at, rest := slab[slabBytes-n:], slab[slabBytes-n-beside:][:beside]
	if m.first {
		at, rest = slab[:n], slab[n:][:beside]
	}
	for i := range rest {
		rest[i] = untouched
	}
	m.rest = append(m.rest, rest)
	to := unsafe.Slice((*T)(unsafe.Pointer(&at[0])), len(elements))
	copy(to, elements)
	return to
}

// Whole returns n small whole numbers, whose sums of products are exact in any
// order. None is zero.
func (m *Guarded) Whole(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(1 + m.IntN(4))
		if m.IntN(2) == 0 {
			x[i] = -x[i]
		}
	}
	return At(m, x)
}

// Bytes returns n bytes.
func (m *Guarded) Bytes(n int) []byte {
	x := make([]byte, n)
	for i := range x {
		x[i] = byte(m.Uint32())
	}
	return At(m, x)
}

// Unset returns memory for n numbers of a result, all the same, and what they
// are now.
func (m *Guarded) Unset(n int) (result, now []float32) {
	now = make([]float32, n)
	for i := range now {
		now[i] = -77.25
	}
	return At(m, now), now
}

// UnsetBytes is [Guarded.Unset] of bytes.
func (m *Guarded) UnsetBytes(n int) (result, now []byte) {
	now = bytes.Repeat([]byte{0x5a}, n)
	return At(m, now), now
}

// run calls f with operands at both ends of memory and reports what it touches
// beyond them.
func (m *Guarded) run(what string, f func(m *Guarded)) {
	m.t.Helper()
	for _, m.first = range []bool{false, true} {
		m.used, m.rest = 0, m.rest[:0]
		if err := caught(func() { f(m) }); err != nil {
			m.t.Fatalf("%s: %v", what, err)
		}
		for _, rest := range m.rest {
			for _, b := range rest {
				if b != untouched {
					m.t.Fatalf("%s writes beside an operand", what)
				}
			}
		}
	}
}

// caught calls f and returns what memory it touches that it may not.
func caught(f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if fault, ok := r.(interface{ Addr() uintptr }); ok {
				err = fmt.Errorf("beyond its memory, at %#x: %v", fault.Addr(), r)
				return
			}
			panic(r)
		}
	}()
	f()
	return nil
}

// Fault calls f, which touches memory that it may not, and returns the stack of
// the goroutine that did.
func (m *Guarded) Fault(f func(m *Guarded)) (stack string) {
	m.t.Helper()
	m.first, m.used, m.rest = false, 0, m.rest[:0]
	err := caught(func() {
		defer func() { stack = string(debug.Stack()) }()
		f(m)
	})
	require.Error(m.t, err, "nothing was touched that may not be")
	return stack
}

// Same compares a result with what a loop computed, element by element. All
// NaN are the same.
func Same[T comparable](m *Guarded, what string, got, want []T) {
	m.t.Helper()
	for i, v := range want {
		if got[i] != v && (got[i] == got[i] || v == v) {
			m.t.Fatalf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], v)
		}
	}
}

// Near is [Same] for results that are rounded.
func Near(m *Guarded, what string, got []float32, want []float64) {
	m.t.Helper()
	for i, v := range want {
		if d := math.Abs(float64(got[i]) - v); !(d <= 4e-6*max(1, math.Abs(v))) {
			m.t.Fatalf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], v)
		}
	}
}
