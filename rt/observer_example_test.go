package rt_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// metrics counts what happens to sessions with package expvar; any other
// library of metrics is used in the same way. Its variables may be published
// under the names that a program likes.
type metrics struct {
	Open     expvar.Int   // sessions
	Running  expvar.Int   // requests that have an engine
	Requests expvar.Map   // that have ended, by result
	Seconds  expvar.Float // that they took
	Padded   expvar.Int   // batches that were not full
	Resets   expvar.Int
}

func (m *metrics) observe(e rt.Event) {
	switch e.Kind {
	case rt.EventOpened:
		if e.Err == nil {
			m.Open.Add(1)
		}
	case rt.EventClosed:
		m.Open.Add(-1)
	case rt.EventRequestBegun:
		m.Running.Add(1)
	case rt.EventRequestDone:
		m.Running.Add(-1)
		m.Requests.Add(result(e.Err), 1)
		m.Seconds.Add(e.Took.Seconds())
	case rt.EventRefused:
		m.Requests.Add("refused", 1)
	case rt.EventFlushed:
		m.Padded.Add(1)
	case rt.EventReset:
		m.Resets.Add(1)
	}
}

func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}

// Metrics of a session, with package expvar in place of a metrics library.
func ExampleWithObserver() {
	m := &metrics{}
	m.Requests.Init()
	ctx := context.Background()
	sys := newSystem(iputest.Config{})
	session, err := modelrt.NewSession(ctx, echoModel(), rt.WithManager(sys.Manager()), rt.WithObserver(m.observe), rt.Timed(), rt.AutoReset())
	if err != nil {
		fmt.Println(err)
		return
	}
	modelrt.SetCallback(ctx, session, "h2d_x", func(_ context.Context, buf []byte) error { clear(buf); return nil })
	modelrt.SetCallback(ctx, session, "d2h_y", func(context.Context, []byte) error { return nil })
	sys.Inject(iputest.OnRun(1).Nth(3), &ipu.Error{Kind: ipu.KindApplication})
	for range 5 {
		session.Run(ctx)
	}
	fmt.Println("open", m.Open.Value(), "running", m.Running.Value(), "resets", m.Resets.Value())
	session.Close()
	session.Run(ctx)
	fmt.Println("open", m.Open.Value(), "requests", m.Requests.String(), "time passed:", m.Seconds.Value() > 0)
	// Output:
	// open 1 running 0 resets 1
	// open 0 requests {"failed": 1, "ok": 4, "refused": 1} time passed: true
}

// echoModel is a model for the test device, which delivers its input.
func echoModel() *popef.Model {
	info := popef.TensorInfo{DataType: popef.U8, Shape: []int64{4}}
	meta := popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, Executable: "echo", DeviceIterations: 1, ProgramFlow: popef.ProgramFlow{Main: []uint32{1}},
		Anchors: []popef.Anchor{
			{Name: "x", Handle: "h2d_x", Type: popef.Input, Info: info, Programs: []uint32{1}},
			{Name: "y", Handle: "d2h_y", Type: popef.Output, Info: info, Programs: []uint32{1}},
		},
	}
	script := iputest.Script{
		Streams: []iputest.Stream{iputest.In("h2d_x", "u8", 4), iputest.Out("d2h_y", "u8", 4)},
		Programs: []iputest.Program{{Index: 1, Steps: []iputest.Step{
			iputest.Read("h2d_x"), iputest.Call("copy", []string{"h2d_x"}, []string{"d2h_y"}), iputest.Write("d2h_y"),
		}}},
	}
	var file popeftest.Buffer
	w := popef.NewWriter(&file)
	exe, err := w.CreateExecutable("echo", false)
	if err == nil {
		_, err = exe.Write(script.Executable())
	}
	var model *popef.Model
	if err = errors.Join(err, w.WriteMetadata(&meta), exe.Close(), w.Close()); err == nil {
		model, err = popef.LoadBytes("echo.popef", file.Bytes())
	}
	if err != nil {
		panic(err)
	}
	return model
}
