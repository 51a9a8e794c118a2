// Package reloaded keeps what files say while they may be replaced: certificates, tokens. It starts no
// goroutine: whoever asks has the files looked at, at most once in an interval.
package reloaded

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Interval is how old an answer is at most before the files are looked at again.
const Interval = time.Second

// maxBytes is the most that one of the files may have.
const maxBytes = 1 << 20

// unsettled is how long a file may still be written without its time changing: file systems count in ticks.
const unsettled = 100 * time.Millisecond

// Value is what some files say. Its methods may be called from any goroutine.
type Value[T any] struct {
	paths  []string
	parse  func(contents [][]byte) (T, error)
	failed func(error)
	now    func() time.Time

	current atomic.Pointer[T]
	next    atomic.Int64 // when to look again, in nanoseconds of Unix
	mu      sync.Mutex   // of what follows, and of loading
	seen    []os.FileInfo
	settled bool
	said    string // the last failure that was reported
}

// Open reads the files and returns what parse makes of their contents, in the order of the paths. Later failures, which leave the last
// value that could be read, go to failed, each once; it is called by whoever asks for the value and may not be nil.
func Open[T any](parse func(contents [][]byte) (T, error), failed func(error), paths ...string) (*Value[T], error) {
	v := &Value[T]{paths: paths, parse: parse, failed: failed, now: time.Now}
	if err := v.load(); err != nil {
		return nil, err
	}
	v.next.Store(v.now().Add(Interval).UnixNano())
	return v, nil
}

// Get returns what the files say. If it is an interval since they were looked at, and they changed, they are read again. It
// does not allocate otherwise.
func (v *Value[T]) Get() T {
	now := v.now()
	if due := v.next.Load(); now.UnixNano() >= due && v.next.CompareAndSwap(due, now.Add(Interval).UnixNano()) {
		v.Look()
	}
	return *v.current.Load()
}

// Look reads the files again if they changed, now.
func (v *Value[T]) Look() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.settled && v.same() {
		return
	}
	said := ""
	if err := v.load(); err != nil {
		if said = err.Error(); said != v.said {
			v.failed(err)
		}
	}
	v.said = said
}

// same reports whether the files are those that were read last.
func (v *Value[T]) same() bool {
	for i, path := range v.paths {
		info, err := os.Stat(path)
		if err != nil || !os.SameFile(info, v.seen[i]) || info.Size() != v.seen[i].Size() || !info.ModTime().Equal(v.seen[i].ModTime()) {
			return false
		}
	}
	return true
}

// load reads the files. They count as seen only if they could be parsed: of a pair that is replaced one after the other the first
// does not fit, and is read again with the second.
func (v *Value[T]) load() error {
	seen := make([]os.FileInfo, len(v.paths))
	contents := make([][]byte, len(v.paths))
	settled := true
	for i, path := range v.paths {
		info, err := os.Stat(path) // before reading: what is written between the two shows in the next stat
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() > maxBytes {
			return fmt.Errorf("%s: found %s of %d bytes, expected a file of at most %d", path, info.Mode(), info.Size(), maxBytes)
		}
		if contents[i], err = os.ReadFile(path); err != nil {
			return err
		}
		seen[i] = info
		settled = settled && v.now().Sub(info.ModTime()) > unsettled
	}
	value, err := v.parse(contents)
	if err != nil {
		v.settled = false
		return err
	}
	v.seen, v.settled = seen, settled
	v.current.Store(&value)
	return nil
}
