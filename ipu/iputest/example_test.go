package iputest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
)

// bytesStream moves the same bytes at every transfer.
type bytesStream []byte

func (s bytesStream) Fetch(ctx context.Context, buf []byte) error { copy(buf, s); return nil }
func (s bytesStream) Prefetch(buf []byte) bool                    { return copy(buf, s) == len(buf) }
func (s bytesStream) Complete()                                   {}
func (s bytesStream) InvalidatePrefetched()                       {}

// printer prints what arrives.
type printer struct{}

func (printer) Fetch(ctx context.Context, buf []byte) error {
	fmt.Printf("arrived: %q\n", buf)
	return nil
}
func (printer) Prefetch([]byte) bool  { return false }
func (printer) Complete()             {}
func (printer) InvalidatePrefetched() {}

// A device that runs a program, fails, is loaded again and works.
func Example() {
	ctx := context.Background()
	sys := iputest.New(iputest.Config{Functions: map[string]iputest.Function{
		"reverse": func(in, out [][]byte) error {
			for i, b := range in[0] {
				out[0][len(in[0])-1-i] = b
			}
			return nil
		},
	}})
	script := iputest.Script{
		Streams: []iputest.Stream{iputest.In("text", "u8", 4), iputest.Out("reply", "u8", 4)},
		Programs: []iputest.Program{{Index: 1, Name: "main", Steps: []iputest.Step{
			iputest.Read("text"),
			iputest.Call("reverse", []string{"text"}, []string{"reply"}),
			iputest.Write("reply"),
		}}},
	}
	sys.Inject(iputest.OnTransfer("reply").Nth(2), &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset})

	// What is under test: it finds a device and drives an engine.
	device, err := sys.Manager().Get(ctx, ipu.Request{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer device.Detach()
	engine, err := sys.NewEngine(ipu.EngineConfig{Name: "reverse", Executable: script.Executable()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	err = errors.Join(
		engine.Connect("text", bytesStream("abcd")), engine.Connect("reply", printer{}),
		engine.Load(ctx, device),
		engine.Run(ctx, 1),
	)
	fmt.Println("first run:", err)
	err = engine.Run(ctx, 1)
	fmt.Println("second run:", err)
	if ipu.Reloadable(err) {
		err = errors.Join(engine.Load(ctx, device), engine.Run(ctx, 1))
	}
	fmt.Println("third run:", err)

	fmt.Println()
	for _, line := range sys.Trace(iputest.EventLoad, iputest.EventPrefetch, iputest.EventDeliver, iputest.EventFault) {
		fmt.Println(line)
	}
	// Output:
	// arrived: "dcba"
	// first run: <nil>
	// second run: run program 1: stream "reply": recoverable error (needs IPU_RESET)
	// arrived: "dcba"
	// third run: <nil>
	//
	// reverse: load on 0
	// reverse: prefetch "text" #1
	// reverse: deliver "reply" #1
	// reverse: prefetch "text" #2
	// reverse: fault "reply": recoverable error (needs IPU_RESET)
	// reverse: load on 0
	// reverse: prefetch "text" #1
	// reverse: deliver "reply" #1
}

// A test that waits for a device which is busy, without waiting.
func ExampleClock() {
	sys := iputest.New(iputest.Config{}) // its clock passes as soon as anybody sleeps
	sys.OccupyFor(0, 40*ipu.DefaultSleep)
	_, err := sys.Manager().Get(context.Background(), ipu.Request{Wait: ipu.Wait{Strategy: ipu.WaitForever}})
	fmt.Println(err, len(sys.Clock().Slept()))
	// Output: <nil> 40
}
