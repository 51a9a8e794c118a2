//go:build poplar && poplarfake && linux && cgo

package poplar

/*
#cgo CXXFLAGS: -std=c++17 -O1 -I${SRCDIR}/..
#cgo CFLAGS: -I${SRCDIR}/..
#include <stdlib.h>
#include <poplar/fake.h>

char *fakeGoDescribe(void *exe, size_t size, char **why);
uint64_t fakeGoOpen(void *exe, size_t size, char **why);
char *fakeGoLoad(uint64_t engine);
char *fakeGoRun(uint64_t engine, unsigned program, void *context);
void fakeGoStop(uint64_t engine);
void fakeGoClose(uint64_t engine);

static char *describe(const void *exe, size_t size, char **why) { return fakeGoDescribe((void *)exe, size, why); }
static uint64_t open_(const void *exe, size_t size, char **why) { return fakeGoOpen((void *)exe, size, why); }
static const fake_compute functions = {describe, open_, fakeGoLoad, fakeGoRun, fakeGoStop, fakeGoClose};
static void use(void) { fake_register(&functions); }
*/
import "C"

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/cgo"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

func init() { C.use() }

// Computer computes one executable for the fake, with an engine of another back end.
type Computer struct {
	engine  ipu.Engine
	device  ipu.Device
	context unsafe.Pointer // of the run under way

	mu     sync.Mutex
	cancel context.CancelFunc // of what is under way
}

// offered are the computers that no engine of the fake has taken, by number.
var (
	offered sync.Map
	offers  atomic.Int64
)

const offer = "computer "

// Offer returns an executable that an engine computes, once. What the engine asks of its streams is asked of those of
// Poplar, call by call; the fake itself does not look ahead. The engine is the fake's from now on, which closes it.
func Offer(e ipu.Engine) (*Computer, []byte, error) {
	c := &Computer{engine: e}
	streams := e.Streams()
	for _, s := range streams {
		if err := c.Reconnect(s.Handle); err != nil {
			return nil, nil, errors.Join(err, e.Close())
		}
	}
	n := offers.Add(1)
	offered.Store(n, c)
	var b bytes.Buffer
	b.WriteString("GC_EXE_FAKE\n")
	for _, s := range streams {
		way := "in"
		if s.Direction == ipu.DeviceToHost {
			way = "out"
		}
		fmt.Fprintf(&b, "stream %s %s %d depth 0\n", Escape(s.Handle), way, s.Bytes)
	}
	for _, p := range e.Programs() {
		fmt.Fprintf(&b, "program %d %s\n", p.Index, Escape(p.Name))
		for _, s := range streams {
			if slices.Contains(s.Programs, p.Index) {
				fmt.Fprintf(&b, "%s %s\n", map[ipu.Direction]string{ipu.HostToDevice: "read", ipu.DeviceToHost: "write"}[s.Direction], Escape(s.Handle))
			}
		}
		b.WriteString("end\n")
	}
	fmt.Fprintf(&b, "data\n%s%d", offer, n)
	return c, b.Bytes(), nil
}

// Reconnect connects a stream of the engine to that of Poplar: again when Poplar's is about to change, so that the engine
// throws away what it has of the one before.
func (c *Computer) Reconnect(handle string) error {
	i := slices.IndexFunc(c.engine.Streams(), func(s ipu.StreamInfo) bool { return s.Handle == handle })
	return c.engine.Connect(handle, straight{wire{c, i}})
}

// straight makes the calls of a device's streams to Poplar's callbacks.
type straight struct{ wire }

func (w straight) call(what C.int, buf []byte) C.int {
	if w.c.context == nil { // nothing ran yet
		return 0
	}
	return C.fake_call(w.c.context, C.uint32_t(w.number), what, unsafe.Pointer(unsafe.SliceData(buf)), C.size_t(len(buf)))
}

func (w straight) Fetch(_ context.Context, buf []byte) error {
	if w.call(C.FAKE_FETCH, buf) < 0 {
		return errTransfer
	}
	return nil
}

func (w straight) Prefetch(buf []byte) bool { return w.call(C.FAKE_PREFETCH, buf) > 0 }
func (w straight) Complete()                { w.call(C.FAKE_COMPLETE, nil) }
func (w straight) InvalidatePrefetched()    { w.call(C.FAKE_INVALIDATE, nil) }

// Use says which device of its own the engine is loaded onto from now on.
func (c *Computer) Use(d ipu.Device) { c.device = d }

// connect connects the engine's streams to the fake's.
func (c *Computer) connect() error {
	for i, s := range c.engine.Streams() {
		if err := c.engine.Connect(s.Handle, wire{c, i}); err != nil {
			return errors.Join(err, c.engine.Close())
		}
	}
	return nil
}

// begin returns the context of a load, which stop ends.
func (c *Computer) begin() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
	return ctx, cancel
}

// stop ends what is under way.
func (c *Computer) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.engine.Stop() // of an engine that is not loaded: the context ends its load
	if c.cancel != nil {
		c.cancel()
	}
}

// wire is a stream between a portable executable and the fake.
type wire struct {
	c      *Computer
	number int
}

var errTransfer = errors.New("the transfer failed")

// Fetch moves one transfer. What went wrong is known to the fake, which throws it again.
func (w wire) Fetch(_ context.Context, buf []byte) error {
	if C.fake_transfer(w.c.context, C.uint32_t(w.number), unsafe.Pointer(unsafe.SliceData(buf)), C.size_t(len(buf))) != 0 {
		return errTransfer
	}
	return nil
}

func (w wire) Prefetch([]byte) bool  { return false }
func (w wire) Complete()             {}
func (w wire) InvalidatePrefetched() {}

// Describe returns a portable executable in the words of the fake (executable.cpp), without its data.
func Describe(exe []byte) (string, error) {
	e, err := encoding.Decode(exe)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("GC_EXE_FAKE\n")
	for _, s := range e.Streams {
		way := "in"
		if s.Direction == graph.DeviceToHost {
			way = "out"
		}
		fmt.Fprintf(&b, "stream %s %s %d depth 2\n", Escape(s.Handle), way, s.Type.Bytes())
	}
	var steps func(all []graph.Step)
	steps = func(all []graph.Step) {
		for _, s := range all {
			switch s.Kind {
			case graph.CopyIn:
				fmt.Fprintf(&b, "read %s\n", Escape(e.Streams[s.Stream].Handle))
			case graph.CopyOut:
				fmt.Fprintf(&b, "write %s\n", Escape(e.Streams[s.Stream].Handle))
			case graph.Repeat:
				fmt.Fprintf(&b, "repeat %d\n", s.Count)
				steps(s.Body)
				b.WriteString("end\n")
			case graph.Call: // it moves nothing
			}
		}
	}
	for _, p := range e.Programs {
		fmt.Fprintf(&b, "program %d %s\n", p.Index, Escape(p.Name))
		steps(p.Steps)
		b.WriteString("end\n")
	}
	return b.String(), nil
}

// Escape writes a name as texts of the fake have it.
func Escape(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' || c == '.' || c == '-' || c == '/' || c == ':' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

//export fakeGoDescribe
func fakeGoDescribe(exe unsafe.Pointer, size C.size_t, why **C.char) *C.char {
	text, err := guarded(func() (string, error) { return Describe(unsafe.Slice((*byte)(exe), int(size))) })
	if err != nil {
		*why = C.CString(err.Error())
		return nil
	}
	return C.CString(text)
}

//export fakeGoOpen
func fakeGoOpen(exe unsafe.Pointer, size C.size_t, why **C.char) C.uint64_t {
	c, err := guarded(func() (*Computer, error) { return open(bytes.Clone(unsafe.Slice((*byte)(exe), int(size)))) })
	if err != nil {
		*why = C.CString(err.Error())
		return 0
	}
	return C.uint64_t(cgo.NewHandle(c))
}

// open returns the computer of an executable.
func open(exe []byte) (*Computer, error) {
	if number, ok := bytes.CutPrefix(exe, []byte(offer)); ok {
		n, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil {
			return nil, err
		}
		c, ok := offered.LoadAndDelete(n)
		if !ok {
			return nil, fmt.Errorf("computer %d is unknown, or taken by another engine", n)
		}
		return c.(*Computer), nil
	}
	e, err := cpu.New(ipu.EngineConfig{Name: "fake IPU", Executable: exe})
	if err != nil {
		return nil, err
	}
	c := &Computer{engine: e}
	if err := c.connect(); err != nil {
		return nil, err
	}
	b, err := ipu.Lookup(cpu.Name)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	all, err := b.Devices(context.Background())
	if err == nil {
		c.device = all[0]
		_, err = c.device.Attach()
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return c, nil
}

func of(engine C.uint64_t) *Computer { return cgo.Handle(engine).Value().(*Computer) }

// effects are the exceptions of the kinds of errors, in the words of the script of faults.
var effects = map[ipu.ErrorKind]string{
	ipu.KindRuntime: "runtime", ipu.KindApplication: "application", ipu.KindSystem: "system", ipu.KindRecoverable: "recoverable",
	ipu.KindUnrecoverable: "unrecoverable", ipu.KindUnknown: "unknown", ipu.KindStreamConnection: "stream_connection",
	ipu.KindInvalidOption: "invalid_option", ipu.KindMemory: "graph_memory",
}

// answer returns an error for C, which frees it, as an exception and its text; NULL if there is none. What is no error of
// a device is the exception otherwise.
func answer(err error, otherwise string) *C.char {
	if err == nil {
		return nil
	}
	var own *ipu.Error
	switch {
	case !errors.As(err, &own):
		return C.CString(otherwise + "\n" + err.Error())
	case own.Message != "":
		return C.CString(effects[own.Kind] + ":" + own.Recovery.String() + "\n" + own.Message)
	}
	return C.CString(effects[own.Kind] + ":" + own.Recovery.String() + "\n" + err.Error())
}

//export fakeGoLoad
func fakeGoLoad(engine C.uint64_t) *C.char {
	_, err := guarded(func() (struct{}, error) {
		c := of(engine)
		ctx, cancel := c.begin()
		defer cancel()
		return struct{}{}, c.engine.Load(ctx, c.device)
	})
	return answer(err, "poplar_error")
}

//export fakeGoRun
func fakeGoRun(engine C.uint64_t, program C.uint, run unsafe.Pointer) *C.char {
	_, err := guarded(func() (struct{}, error) {
		c := of(engine)
		c.context = run
		return struct{}{}, c.engine.Run(context.Background(), int(program)) // Stop ends it
	})
	return answer(err, "application")
}

//export fakeGoStop
func fakeGoStop(engine C.uint64_t) { of(engine).stop() }

//export fakeGoClose
func fakeGoClose(engine C.uint64_t) {
	c := of(engine)
	cgo.Handle(engine).Delete()
	_ = c.engine.Close() // of an engine that nothing drives: no error
}

// guarded calls f, and makes its panic an error.
func guarded[T any](f func() (T, error)) (v T, err error) {
	defer ipu.Guard(&err)
	return f()
}
