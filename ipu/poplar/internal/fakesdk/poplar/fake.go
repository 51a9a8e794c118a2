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
void fakeGoClose(uint64_t engine);

static char *describe(const void *exe, size_t size, char **why) { return fakeGoDescribe((void *)exe, size, why); }
static uint64_t open_(const void *exe, size_t size, char **why) { return fakeGoOpen((void *)exe, size, why); }
static const fake_compute functions = {describe, open_, fakeGoLoad, fakeGoRun, fakeGoClose};
static void use(void) { fake_register(&functions); }
*/
import "C"

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/cgo"
	"strings"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

func init() { C.use() }

// computer runs one portable executable for the fake.
type computer struct {
	engine  *cpu.Engine
	device  ipu.Device
	context unsafe.Pointer // of the run under way
}

// wire is a stream between a portable executable and the fake.
type wire struct {
	c      *computer
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
	c, err := guarded(func() (*computer, error) { return newComputer(bytes.Clone(unsafe.Slice((*byte)(exe), int(size)))) })
	if err != nil {
		*why = C.CString(err.Error())
		return 0
	}
	return C.uint64_t(cgo.NewHandle(c))
}

func newComputer(exe []byte) (*computer, error) {
	e, err := cpu.New(ipu.EngineConfig{Name: "fake IPU", Executable: exe})
	if err != nil {
		return nil, err
	}
	c := &computer{engine: e}
	for i, s := range e.Streams() {
		if err := e.Connect(s.Handle, wire{c, i}); err != nil {
			return nil, errors.Join(err, e.Close())
		}
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

func of(engine C.uint64_t) *computer { return cgo.Handle(engine).Value().(*computer) }

// answer returns the text of an error for C, which frees it; NULL if there is none.
func answer(_ struct{}, err error) *C.char {
	if err != nil {
		return C.CString(err.Error())
	}
	return nil
}

//export fakeGoLoad
func fakeGoLoad(engine C.uint64_t) *C.char {
	return answer(guarded(func() (struct{}, error) {
		c := of(engine)
		return struct{}{}, c.engine.Load(context.Background(), c.device)
	}))
}

//export fakeGoRun
func fakeGoRun(engine C.uint64_t, program C.uint, run unsafe.Pointer) *C.char {
	return answer(guarded(func() (struct{}, error) {
		c := of(engine)
		c.context = run
		return struct{}{}, c.engine.Run(context.Background(), int(program))
	}))
}

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
