package iputest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/popefgen/popefgen/ipu"
)

// Script is an executable for the test device: what its programs read, compute
// and write. [Script.Encode] gives the bytes, which can stand wherever an
// executable can, such as in a PopEF file: they are [ipu.TestMagic] followed
// by the script as JSON.
//
// The device has one tensor for each stream, of the stream's size, by the same
// name. All are zero when the engine has been loaded, and keep their values
// between programs.
type Script struct {
	Streams  []Stream  `json:"streams,omitempty"`
	Programs []Program `json:"programs,omitempty"`

	// What the device must offer. Zero values ask for nothing.
	NumIPUs       int  `json:"num_ipus,omitempty"`
	Version       int  `json:"version,omitempty"`
	Tiles         int  `json:"tiles,omitempty"` // of each IPU
	RemoteBuffers bool `json:"remote_buffers,omitempty"`

	// PackageHash is compared with [Config.PackageHash] when an engine is
	// made.
	PackageHash string `json:"package_hash,omitempty"`
}

// Stream is one stream of a script.
type Stream struct {
	Handle string  `json:"handle"`
	Output bool    `json:"output,omitempty"` // device to host
	Type   string  `json:"type"`             // such as "f32", "u8", "i64", "bool"
	Shape  []int64 `json:"shape,omitempty"`
	// Depth is how many transfers of an input may be prefetched and not yet
	// complete; 0 is 1.
	Depth int `json:"depth,omitempty"`
	// Speculative inputs are also prefetched past the end of a program, as if
	// it ran again. What was prefetched stays for the next program that reads
	// the stream.
	Speculative bool `json:"speculative,omitempty"`
}

// In returns an input stream.
func In(handle, elem string, shape ...int64) Stream {
	return Stream{Handle: handle, Type: elem, Shape: shape}
}

// Out returns an output stream.
func Out(handle, elem string, shape ...int64) Stream {
	return Stream{Handle: handle, Output: true, Type: elem, Shape: shape}
}

// Program is one program of a script.
type Program struct {
	Index int    `json:"index"`
	Name  string `json:"name,omitempty"`
	Steps []Step `json:"steps,omitempty"`
}

// Step is one step of a program. Functions of this package make the steps.
type Step struct {
	Do     string        `json:"do"`
	Stream string        `json:"stream,omitempty"`
	Func   string        `json:"func,omitempty"`
	In     []string      `json:"in,omitempty"`
	Out    []string      `json:"out,omitempty"`
	Count  int64         `json:"count,omitempty"`
	For    time.Duration `json:"for,omitempty"`
	Steps  []Step        `json:"steps,omitempty"`
}

// The names of steps.
const (
	doRead     = "read"
	doWrite    = "write"
	doCall     = "call"
	doRepeat   = "repeat"
	doWait     = "wait"
	doHang     = "hang"
	doPrefetch = "prefetch"
	doDiscard  = "discard"
)

// Read moves one transfer of an input from the host to the device.
func Read(handle string) Step { return Step{Do: doRead, Stream: handle} }

// Write moves one transfer of an output from the device to the host.
func Write(handle string) Step { return Step{Do: doWrite, Stream: handle} }

// Call computes: function is one of [Config.Functions] or built in, and gets
// the tensors of the streams in and out.
func Call(function string, in, out []string) Step {
	return Step{Do: doCall, Func: function, In: in, Out: out}
}

// Repeat repeats steps n times.
func Repeat(n int64, steps ...Step) Step { return Step{Do: doRepeat, Count: n, Steps: steps} }

// Wait passes time on the system's clock.
func Wait(d time.Duration) Step { return Step{Do: doWait, For: d} }

// HangUp never ends: the program must be stopped.
func HangUp() Step { return Step{Do: doHang} }

// Prefetch asks the host for up to n further transfers of an input ahead of
// time, whatever its depth and the engine's options are, until it refuses.
func Prefetch(handle string, n int64) Step {
	return Step{Do: doPrefetch, Stream: handle, Count: n}
}

// Discard throws away what was prefetched of an input.
func Discard(handle string) Step { return Step{Do: doDiscard, Stream: handle} }

// ErrScript is what errors about malformed scripts wrap.
var ErrScript = errors.New("bad script")

// Encode checks the script and returns it as an executable. The error wraps
// [ErrScript].
func (s Script) Encode() ([]byte, error) {
	if _, err := s.plan(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScript, err)
	}
	return append([]byte(ipu.TestMagic), b...), nil
}

// Executable is Encode for scripts that are known to be good: it panics if
// this one is not.
func (s Script) Executable() []byte {
	b, err := s.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

// DecodeScript reads an executable that Encode wrote. The error wraps
// [ErrScript].
func DecodeScript(b []byte) (Script, error) {
	s, err := decode(b)
	if err == nil {
		_, err = s.plan()
	}
	if err != nil {
		return Script{}, err
	}
	return s, nil
}

func decode(b []byte) (Script, error) {
	rest, ok := bytes.CutPrefix(b, []byte(ipu.TestMagic))
	if !ok {
		return Script{}, fmt.Errorf("%w: it does not begin with %q", ErrScript, ipu.TestMagic)
	}
	var s Script
	d := json.NewDecoder(bytes.NewReader(rest))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Script{}, fmt.Errorf("%w: %w", ErrScript, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Script{}, fmt.Errorf("%w: something follows it", ErrScript)
	}
	return s, nil
}

// The limits of a script, so that a hostile one costs little.
const (
	maxBytes     = 1 << 30 // of all streams
	maxDepth     = 1 << 10 // of prefetching
	maxNesting   = 64
	maxTransfers = 1 << 20 // of all programs
)

// elementBytes is the size of an element by the name of its type.
var elementBytes = map[string]int64{
	"bool": 1, "i8": 1, "u8": 1, "f8e4m3": 1, "f8e5m2": 1, "f16": 2, "bf16": 2, "i16": 2, "u16": 2,
	"f32": 4, "i32": 4, "u32": 4, "f64": 8, "i64": 8, "u64": 8,
}

// plan is a script made ready.
type plan struct {
	streams  []ipu.StreamInfo
	index    map[string]int // of streams, by handle
	programs []programPlan  // ascending by index
}

// programPlan is one program made ready.
type programPlan struct {
	ipu.ProgramInfo
	steps     []Step
	transfers []int // streams in the order in which a run moves them; nil if not known yet
	moves     []int // the streams that it moves, each once
}

// bytes returns the size of one transfer.
func (s Stream) bytes() (int64, error) {
	n, ok := elementBytes[s.Type]
	if !ok {
		return 0, fmt.Errorf("stream %q: unknown type %q, want one such as \"f32\"", s.Handle, s.Type)
	}
	for _, d := range s.Shape {
		if d < 0 || d > 0 && n > maxBytes/d {
			return 0, fmt.Errorf("stream %q: bad shape %v, want at most %d bytes in all", s.Handle, s.Shape, maxBytes)
		}
		n *= d
	}
	return n, nil
}

// plan checks a script and makes it ready.
func (s Script) plan() (*plan, error) {
	p := &plan{index: map[string]int{}}
	total := int64(0)
	fail := func(format string, args ...any) (*plan, error) {
		return nil, fmt.Errorf("%w: %w", ErrScript, fmt.Errorf(format, args...))
	}
	for i, st := range s.Streams {
		n, err := st.bytes()
		if err != nil {
			return fail("%w", err)
		}
		if total += n; total > maxBytes {
			return fail("its streams have more than %d bytes", maxBytes)
		}
		if _, ok := p.index[st.Handle]; ok {
			return fail("two streams are called %q", st.Handle)
		}
		if st.Depth < 0 || st.Depth > maxDepth {
			return fail("stream %q: depth %d, want 0 to %d", st.Handle, st.Depth, maxDepth)
		}
		p.index[st.Handle] = i
		direction := ipu.HostToDevice
		if st.Output {
			direction = ipu.DeviceToHost
		}
		p.streams = append(p.streams, ipu.StreamInfo{
			Handle: st.Handle, Direction: direction, Bytes: int(n), Type: st.Type, Shape: slices.Clone(st.Shape),
		})
	}
	if s.NumIPUs < 0 || s.Version < 0 || s.Tiles < 0 {
		return fail("it needs %d IPUs of version %d with %d tiles, want 0 or more", s.NumIPUs, s.Version, s.Tiles)
	}
	all := 0
	for _, pr := range s.Programs {
		if pr.Index < 0 {
			return fail("program %d: the index is negative", pr.Index)
		}
		q := programPlan{ProgramInfo: ipu.ProgramInfo{Index: pr.Index, Name: pr.Name}, steps: pr.Steps}
		transfers, err := s.check(p, pr.Steps, 0)
		if err != nil {
			return fail("program %d: %w", pr.Index, err)
		}
		if all += len(transfers); all > maxTransfers {
			return fail("its programs move more than %d transfers", maxTransfers)
		}
		q.transfers = transfers
		q.moves = slices.Compact(slices.Sorted(slices.Values(transfers)))
		p.programs = append(p.programs, q)
	}
	slices.SortStableFunc(p.programs, func(a, b programPlan) int { return a.Index - b.Index })
	for i, q := range p.programs {
		if i > 0 && p.programs[i-1].Index == q.Index {
			return fail("two programs have the index %d", q.Index)
		}
		for _, st := range q.moves {
			p.streams[st].Programs = append(p.streams[st].Programs, q.Index)
		}
	}
	return p, nil
}

// check checks steps and returns the streams that they move, in order.
func (s Script) check(p *plan, steps []Step, nesting int) ([]int, error) {
	if nesting > maxNesting {
		return nil, fmt.Errorf("steps are nested more than %d deep", maxNesting)
	}
	var moved []int
	for _, step := range steps {
		if err := s.checkNames(p, step); err != nil {
			return nil, err
		}
		switch step.Do {
		case doRead, doWrite:
			moved = append(moved, p.index[step.Stream])
		case doRepeat:
			body, err := s.check(p, step.Steps, nesting+1)
			if err != nil {
				return nil, err
			}
			if n := int64(len(body)); n > 0 && step.Count > maxTransfers/n {
				return nil, fmt.Errorf("it moves more than %d transfers", maxTransfers)
			} else if n > 0 {
				moved = append(moved, slices.Repeat(body, int(step.Count))...)
			}
		}
		if len(moved) > maxTransfers {
			return nil, fmt.Errorf("it moves more than %d transfers", maxTransfers)
		}
	}
	return moved, nil
}

// checkNames checks one step by itself.
func (s Script) checkNames(p *plan, step Step) error {
	names := slices.Concat(step.In, step.Out)
	switch step.Do {
	case doRead, doWrite, doPrefetch, doDiscard:
		names = append(names, step.Stream)
	case doCall, doRepeat, doWait, doHang:
	default:
		return fmt.Errorf("unknown step %q", step.Do)
	}
	for _, name := range names {
		if _, ok := p.index[name]; !ok {
			return fmt.Errorf("%s: there is no stream %q", step.Do, name)
		}
	}
	if i, ok := p.index[step.Stream]; ok && step.Do != doCall && s.Streams[i].Output != (step.Do == doWrite) {
		return fmt.Errorf("%s: stream %q goes the other way", step.Do, step.Stream)
	}
	if step.Count < 0 || step.Do == doPrefetch && step.Count > maxDepth {
		return fmt.Errorf("%s: count %d is out of range", step.Do, step.Count)
	}
	if step.For < 0 || step.For > math.MaxInt64/4 {
		return fmt.Errorf("%s: it takes %v", step.Do, step.For)
	}
	return nil
}
