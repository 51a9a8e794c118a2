package rt_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
	"github.com/popefgen/popefgen/rt/ring"
)

// subjectOf is what an error's text begins with: the file, and the replica if
// there are several.
var subjectOf = regexp.MustCompile(`^(affine\.popef: (replica \d(, replica \d)*: )?|package affine: )`)

// faults returns what is wrong with an error's text.
func faults(err error, of *regexp.Regexp) []string {
	var out []string
	text := err.Error()
	if at := strings.Index(text, "\ngoroutine "); at >= 0 {
		text = text[:at] // the stack of a panic
	}
	if text == "" || text != strings.TrimSpace(text) {
		out = append(out, "it is empty, or has spaces around it")
	}
	head := of.FindString(text)
	if head == "" {
		out = append(out, "it does not begin with what it is about, "+of.String())
	}
	rest := strings.TrimPrefix(text, head)
	if first, _ := utf8.DecodeRuneInString(rest); unicode.IsUpper(first) && !regexp.MustCompile(`^(Inputs|Outputs|SaveOutputs|LoadInputs|With|SingleCaller|Deferred)`).MatchString(rest) {
		out = append(out, "it does not begin in lower case")
	}
	said := map[string]bool{}
	for _, clause := range regexp.MustCompile(`: |; |\n`).Split(text, -1) {
		if clause = strings.TrimSpace(clause); said[clause] {
			out = append(out, fmt.Sprintf("it says %q twice", clause))
		}
		said[clause] = true
	}
	if n := strings.Count(text, "affine.popef"); n > 1 {
		out = append(out, fmt.Sprintf("it names the model %d times", n))
	}
	for _, odd := range []string{"%!", "<nil>", ": :", "  ", "&{"} {
		if strings.Contains(strings.ReplaceAll(text, "\n  ", "\n"), odd) {
			out = append(out, fmt.Sprintf("it contains %q", odd))
		}
	}
	return out
}

// walk is a runner in some state, with all that belongs to it.
type walk struct {
	ctx     context.Context
	sys     *testSystem
	r       *Runner
	s       rt.Session            // of the runner
	m       *modelrt.QueueManager // of own; nil for calls that need none
	own     rt.Session            // not of the runner
	devices []ipu.Device
	panics  atomic.Bool // of the observer, where there is one
}

// panicking is an observer that panics once the state is made.
func panicking(w *walk) []rt.Option {
	return []rt.Option{rt.WithObserver(func(rt.Event) {
		if w.panics.Load() {
			panic("ouch")
		}
	})}
}

// newWalk opens a runner with so many replicas, and a session of its own.
func newWalk(t *testing.T, v variant, m *popef.Model, replicas int, opts func(*walk) []rt.Option) *walk {
	w := &walk{ctx: context.Background(), sys: newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, 4)})}
	runner := []rt.RunnerOption{rt.WithManager(w.sys.Manager()), rt.WithReplicas(replicas)}
	session := []modelrt.SessionOption{rt.WithManager(w.sys.Manager())}
	if opts != nil {
		for _, o := range opts(w) {
			runner, session = append(runner, o), append(session, o)
		}
	}
	for i := range 4 {
		w.devices = append(w.devices, w.sys.Device(i))
	}
	var err error
	w.r, err = Open(w.ctx, affineSpec(t), &LoadInputs{B: &B{[2]float32{10, 20}}}, genrt.Source{Name: "affine.popef", Bytes: v.model}, runner...)
	require.NoError(t, err)
	w.s = w.r.Replica(replicas - 1)
	w.own, err = modelrt.NewSession(w.ctx, m, session...)
	require.NoError(t, err)
	buffers(t, w.own)
	require.NoError(t, w.own.Load(w.ctx))
	return w
}

// close ends what a call has left.
func (w *walk) close() {
	w.panics.Store(false)
	_, _ = w.r.Close(), w.own.Close()
}

func (w *walk) eachSession(f func(rt.Session)) {
	for i := range w.r.Config().Replicas {
		f(w.r.Replica(i))
	}
	f(w.own)
}

// hang makes every engine busy for ever, and lets calls wait for a short time.
func (w *walk) hang(t *testing.T) {
	w.sys.Inject(iputest.OnRun(mainProgram).Always(), iputest.ErrHang)
	n := 0
	w.eachSession(func(s rt.Session) {
		go s.RunPrograms(context.Background(), mainProgram)
		n++
		rttest.Eventually(t, func() bool { return len(w.sys.Events(iputest.EventFault)) == n }, "it hangs")
	})
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Millisecond)
	t.Cleanup(cancel)
	w.ctx = ctx
}

// walkStates are states of a runner and its sessions, and what every error of
// a request is there; nil if requests may succeed.
var walkStates = []struct {
	name string
	opts func(w *walk) []rt.Option
	make func(t *testing.T, w *walk)
	is   error
}{
	{name: "open", make: func(*testing.T, *walk) {}},
	{name: "closed", is: rt.ErrClosed, make: func(t *testing.T, w *walk) { require.NoError(t, errors.Join(w.r.Close(), w.own.Close())) }},
	{name: "shut down", is: rt.ErrClosed, make: func(t *testing.T, w *walk) {
		require.NoError(t, errors.Join(w.r.Shutdown(context.Background()), w.own.Shutdown(context.Background())))
	}},
	{name: "cancelled", is: context.Canceled, make: func(t *testing.T, w *walk) {
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		w.ctx = ctx
	}},
	{name: "stopped", is: rt.ErrStopped, make: func(t *testing.T, w *walk) {
		w.eachSession(func(s rt.Session) { require.NoError(t, s.Stop()) })
	}},
	{name: "unloaded", is: rt.ErrUnbound, make: func(t *testing.T, w *walk) {
		w.eachSession(func(s rt.Session) { require.NoError(t, s.Unload(w.ctx)) })
	}},
	{name: "device broken", is: rt.ErrDevice, make: func(t *testing.T, w *walk) {
		w.sys.Inject(iputest.OnRun().Always(), &ipu.Error{Kind: ipu.KindUnrecoverable, Message: "it broke"})
		w.eachSession(func(s rt.Session) { require.ErrorIs(t, s.Load(w.ctx), rt.ErrDevice) })
	}},
	{name: "device fails", is: rt.ErrDevice, make: func(t *testing.T, w *walk) {
		w.sys.Inject(iputest.OnRun().Always(), &ipu.Error{Kind: ipu.KindApplication, Message: "it broke"})
	}},
	{name: "resetting fails", opts: func(*walk) []rt.Option { return []rt.Option{rt.AutoReset()} }, is: ipu.ErrMemory, make: func(t *testing.T, w *walk) {
		remove := w.sys.Inject(iputest.OnRun().Always(), &ipu.Error{Kind: ipu.KindApplication, Message: "it broke"})
		w.eachSession(func(s rt.Session) { require.ErrorIs(t, s.Load(w.ctx), rt.ErrDevice) })
		remove()
		w.sys.Inject(iputest.OnLoad().Always(), &ipu.Error{Kind: ipu.KindMemory, Message: "it broke"})
	}},
	{name: "loading fails", is: rt.ErrUnbound, make: func(t *testing.T, w *walk) {
		w.sys.Inject(iputest.OnLoad().Always(), &ipu.Error{Kind: ipu.KindMemory, Message: "too little"})
		w.eachSession(func(s rt.Session) { require.ErrorIs(t, s.Reload(w.ctx), ipu.ErrMemory) })
	}},
	{name: "attaching fails", is: rt.ErrUnbound, make: func(t *testing.T, w *walk) {
		w.sys.Inject(iputest.OnAttach().Always(), errors.New("no permission"))
		w.eachSession(func(s rt.Session) { require.Error(t, s.Reload(w.ctx)) })
	}},
	{name: "device taken", is: rt.ErrUnbound, make: func(t *testing.T, w *walk) {
		w.eachSession(func(s rt.Session) { require.NoError(t, s.Unload(w.ctx)) })
		for i := range w.devices {
			w.sys.Occupy(i)
		}
	}},
	{name: "transfers fail", make: func(t *testing.T, w *walk) {
		w.sys.Inject(iputest.OnTransfer("h2d_x").Always(), errors.New("the camera is unplugged"))
	}},
	{name: "streams fail", is: ipu.ErrCallback, make: func(t *testing.T, w *walk) {
		w.eachSession(func(s rt.Session) {
			for _, handle := range []string{"h2d_x", "h2d_b", "weight_d2h_w"} {
				require.NoError(t, modelrt.SetCallback(w.ctx, s, handle, func(context.Context, []byte) error { return errors.New("the camera is unplugged") }))
			}
		})
	}},
	{name: "streams panic", is: rt.ErrPanic, make: func(t *testing.T, w *walk) {
		w.eachSession(func(s rt.Session) {
			for _, handle := range []string{"h2d_x", "h2d_b", "weight_d2h_w"} {
				require.NoError(t, modelrt.SetCallback(w.ctx, s, handle, func(context.Context, []byte) error { panic("ouch") }))
			}
		})
	}},
	{name: "observer panics", opts: panicking, is: rt.ErrPanic,
		make: func(t *testing.T, w *walk) { w.panics.Store(true) }},
	{name: "observer panics, device fails", opts: panicking, is: rt.ErrPanic,
		make: func(t *testing.T, w *walk) {
			w.panics.Store(true)
			w.sys.Inject(iputest.OnRun().Always(), &ipu.Error{Kind: ipu.KindApplication, Message: "it broke"})
		}},
	{name: "saving fails", opts: func(*walk) []rt.Option { return []rt.Option{rt.SaveOnUnbind()} }, make: func(t *testing.T, w *walk) {
		w.sys.Inject(iputest.OnRun(saveProgram).Always(), &ipu.Error{Kind: ipu.KindUnknown, Message: "it broke"})
	}},
	{name: "overloaded", opts: func(*walk) []rt.Option { return []rt.Option{rt.WithMaxWaiting(0)} }, make: func(t *testing.T, w *walk) { w.hang(t) }},
}

// TestErrorsSayEachThingOnce makes every call fail in every state, of a runner
// with one replica and with two, and looks at the texts.
func TestErrorsSayEachThingOnce(t *testing.T) {
	v := variant{"device", "", file(t, affineMetadata(), affinePortable(t), affineData), nil}
	model := load(t, v.model)
	failed := map[string]bool{}
	for _, replicas := range []int{1, 2} {
		for _, state := range walkStates {
			for _, name := range slices.Sorted(maps.Keys(failingCalls)) {
				if state.name == "overloaded" && name == "QueueManager.Run" {
					continue // it returns only once the program that hangs has ended
				}
				for i, call := range failingCalls[name] {
					w := newWalk(t, v, model, replicas, state.opts)
					if strings.Contains(name, "Queue") && !strings.HasPrefix(name, "Session.") {
						var err error
						w.m, err = modelrt.NewQueueManager(w.ctx, w.own, modelrt.QueueConfig{})
						require.NoError(t, err)
					}
					state.make(t, w)
					err := call(w)
					w.close()
					if err == nil {
						if (name == "Runner.Run" || name == "Session.Run") && state.is != nil {
							t.Errorf("%d replicas, %s: %s succeeds", replicas, state.name, name)
						}
						continue
					}
					failed[name] = true
					if (name == "Runner.Run" || name == "Session.Run") && state.is != nil && !errors.Is(err, state.is) {
						t.Errorf("%d replicas, %s: %s: %v is not %v", replicas, state.name, name, err, state.is)
					}
					for _, f := range faults(err, subjectOf) {
						t.Errorf("%d replicas, %s: %s #%d: %s:\n%.600v", replicas, state.name, name, i, f, err)
					}
				}
			}
		}
	}
	requireAllFailed(t, failed, (*Runner)(nil), reflect.TypeFor[rt.Session](), (*modelrt.QueueManager)(nil), (*modelrt.QueueGroup)(nil), (*modelrt.InputQueue)(nil), (*modelrt.OutputQueue)(nil), rt.Ticket{})
}

// requireAllFailed checks that every method that returns an error has failed.
func requireAllFailed(t *testing.T, failed map[string]bool, values ...any) {
	t.Helper()
	skip := map[string]string{"Fetch": "the device side's", "Memory": "the device side's"}
	for _, value := range values {
		typ, ok := value.(reflect.Type)
		if !ok {
			typ = reflect.TypeOf(value)
		}
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			n := m.Type.NumOut()
			if n == 0 || m.Type.Out(n-1) != reflect.TypeFor[error]() || skip[m.Name] != "" {
				continue
			}
			of := typ
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			name, _, _ := strings.Cut(of.Name(), "[")
			if name += "." + m.Name; !failed[name] {
				t.Errorf("%s has not failed in any way: the table of calls needs one", name)
			}
		}
	}
}

// TestErrorsOfPartsSayEachThingOnce does the same with what belongs to no
// session, or fails before there is one.
func TestErrorsOfPartsSayEachThingOnce(t *testing.T) {
	ctx := context.Background()
	v := variant{"device", "", file(t, affineMetadata(), affinePortable(t), affineData), nil}
	model := load(t, v.model)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	newRing := func(size int) *ring.Ring[int] {
		r, err := ring.New(ring.Config[int]{Size: size, Label: "numbers"})
		require.NoError(t, err)
		return r
	}
	invalid := newRing(1)
	invalid.Invalidate()
	pool, err := modelrt.NewRingPool(4, 1)
	require.NoError(t, err)
	_, err = pool.Get()
	require.NoError(t, err)
	free, err := modelrt.NewRingPool(4, 1)
	require.NoError(t, err)
	released, err := free.Get()
	require.NoError(t, err)
	require.NoError(t, released.Release())
	queue := namedQueue{}
	system := func(n int) rt.Option {
		return rt.WithManager(newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, n)}).Manager())
	}
	open := func(source genrt.Source, opts ...rt.RunnerOption) error {
		r, err := Open(ctx, affineSpec(t), &LoadInputs{B: new(B)}, source, append([]rt.RunnerOption{system(1)}, opts...)...)
		if err == nil {
			err = r.Close()
		}
		return err
	}
	session := func(m *popef.Model, opts ...modelrt.SessionOption) error {
		s, err := modelrt.NewSession(ctx, m, append([]modelrt.SessionOption{system(1)}, opts...)...)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	good := genrt.Source{Name: "affine.popef", Bytes: v.model}
	other := func(change func(*popef.Metadata)) []byte {
		meta := affineMetadata()
		change(&meta)
		return file(t, meta, affinePortable(t), affineData)
	}
	dir := t.TempDir()
	torn := filepath.Join(dir, "affine.popef")
	require.NoError(t, os.WriteFile(torn, v.model[:len(v.model)/2], 0o644))
	absent := filepath.Join(dir, "absent.popef")
	opened := v.open(t)
	numbers, poolOf, file := `^ring "numbers": `, `^ring pool: `, `^(package affine: open: .*|open: .*)(affine|absent)\.popef`
	table := map[string][]struct {
		of  string
		err error
	}{
		"Ring.WriteLock":     {{numbers, second(invalid.WriteLock(ctx))}, {numbers, second(fullRing(t, newRing(1)).WriteLock(ended))}},
		"Ring.TryWriteLock":  {{numbers, second(invalid.TryWriteLock())}},
		"Ring.WriteComplete": {{numbers, newRing(1).WriteComplete()}},
		"Ring.Write":         {{numbers, invalid.Write(ctx, 1)}, {numbers, fullRing(t, newRing(2)).Write(ended, 1)}},
		"Ring.AwaitFree":     {{numbers, awaitFree(fullRing(t, newRing(1)), ended)}},
		"Ring.ReadLock":      {{numbers, second(invalid.ReadLock(ctx))}, {numbers, second(newRing(1).ReadLock(ended))}},
		"Ring.TryReadLock":   {{numbers, second(invalid.TryReadLock())}},
		"Ring.ReadComplete":  {{numbers, newRing(1).ReadComplete()}},
		"RingPool.Get":       {{poolOf, second(pool.Get())}},
		"Blob.Release":       {{poolOf, released.Release()}},
		"RawInput.Bind":      {{`^anchor `, genrt.NewRawInput(4).Bind(make([]byte, 3))}},
		"RawOutput.Bind":     {{`^anchor `, genrt.NewRawOutput(4).Bind(make([]byte, 3))}},
		"NewQueuePool":       {{`^pool for queue of anchor "x": `, second(modelrt.NewQueuePool(queue, -1))}},
		"New":                {{numbers, second(ring.New(ring.Config[int]{Label: "numbers"}))}},
		"NewRingPool":        {{poolOf, second(modelrt.NewRingPool(-1, 1))}},
		"NewBuffer":          {{`^buffer for stream "h": `, second(modelrt.NewBuffer(ipu.StreamInfo{Handle: "h", Bytes: 4}, 0))}},
		"RawSamples":         {{`^wrong number of elements: `, second(genrt.RawSamples(make([]byte, 3), 2))}},
		"From":               {{`^anchor "x": `, second(XFrom(make([]float32, 3)))}},
		"Cut":                {{`^anchor "x": `, second(genrt.Cut[float32]("x", make([]float32, 3), 2))}},
		"RunPacked":          {{`^runner: run packed: `, genrt.RunPacked(ctx, new(genrt.Core), []int{1}, []int{1}, nil)}, {`^affine\.popef: run packed: `, genrt.RunPacked(ctx, &opened.core, []int{1}, []int{1}, nil)}},
		"NotFaked":           {{`^Run: `, genrt.NotFaked("Run")}},
		"NewSession": {
			{"", session(model, rt.WithThreads(0))}, {"", session(model, rt.WithPrivateCopy())}, {"", session(model, rt.WithBackend("none"))},
			{"", session(model, system(0))}, {"", session(model, modelrt.Deferred(), rt.WithDevice(mine()))}, {"", second(modelrt.NewSession(ctx, model, rt.WithBackend("cpu"), rt.WithEngineOption("x", "y")))},
			{"", session(model, rt.WithData("nobody", nil))}, {"", session(model, rt.WithObserver(func(rt.Event) { panic("ouch") }))},
			{"", session(load(t, other(func(m *popef.Metadata) { m.ReplicationFactor = 2 })))},
			{"", session(load(t, other(func(m *popef.Metadata) { m.Anchors[1].Info = tensorInfo(3) })))},
			{"", session(load(t, other(func(m *popef.Metadata) { m.Anchors[1].Type = popef.Output })))},
		},
		"OpenSession": {
			{file, second(modelrt.OpenSession(ctx, []string{absent}))}, {file, second(modelrt.OpenSession(ctx, []string{torn}))},
			{`^open: WithThreads: `, second(modelrt.OpenSession(ctx, nil, rt.WithThreads(0)))}, {`^open: `, second(modelrt.OpenSession(ctx, nil))},
		},
		"Open": {
			{file, open(genrt.Source{Path: absent})}, {file, open(genrt.Source{Path: torn})}, {"", open(good, rt.WithThreads(0))},
			{"", open(good, rt.WithReplicas(0))}, {"", open(good, rt.WithReplicas(2))}, {"", open(good, rt.WithReplicaDevices(map[int]ipu.Device{3: mine()}))},
			{"", open(good, rt.WithReplicaDevices(map[int]ipu.Device{0: taken()}))}, {"", open(good, rt.WithModelFile())}, {"", open(good, rt.WithModelBytes(nil))},
			{"", open(genrt.Source{Name: "affine.popef", Bytes: other(func(m *popef.Metadata) { m.Anchors[1].Info = tensorInfo(3) })})},
			{"", open(good, rt.WithBatching(rt.BatchPolicy{Quiet: -1}))}, {"", open(good, rt.WithData("x", floats(1)))},
			{"", open(good, rt.WithOverlap(0))}, {"", open(good, rt.WithOverlap(9))}, {"", open(good, rt.WithPacking(rt.PackPolicy{}))},
			{"", open(good, rt.WithPacking(rt.PackPolicy{Timeout: 1}))}, {"", open(good, rt.WithPacking(rt.PackPolicy{Timeout: 1, Algorithm: 7}))},
			{"", open(good, rt.WithReplicas(2), rt.SingleCaller())}, {"", open(good, rt.WithObserver(func(rt.Event) { panic("ouch") }))},
		},
	}
	failed := map[string]bool{}
	for name, errs := range table {
		for i, e := range errs {
			of := subjectOf
			if e.of != "" {
				of = regexp.MustCompile(e.of)
			}
			if e.err == nil {
				t.Errorf("%s #%d succeeds", name, i)
				continue
			}
			failed[name] = true
			for _, f := range faults(e.err, of) {
				t.Errorf("%s #%d: %s:\n%.600v", name, i, f, e.err)
			}
		}
	}
	// A runner that was never opened.
	var zero Runner
	w := &walk{ctx: ctx, r: &zero}
	for _, name := range slices.Sorted(maps.Keys(failingCalls)) {
		if !strings.HasPrefix(name, "Runner.") {
			continue
		}
		for i, call := range failingCalls[name] {
			if err := call(w); err != nil {
				for _, f := range faults(err, regexp.MustCompile(`^runner: `)) {
					t.Errorf("never opened: %s #%d: %s: %v", name, i, f, err)
				}
			}
		}
	}
	requireAllFailed(t, failed, (*ring.Ring[int])(nil), (*modelrt.RingPool)(nil), (*modelrt.Blob)(nil), (*genrt.RawInput)(nil), (*genrt.RawOutput)(nil))
	others := map[string]bool{}
	for name := range failingCalls {
		if of, name, ok := strings.Cut(name, "."); ok && of == "Session" {
			others[name] = true
		}
	}
	elsewhere := map[string]string{"FileWeights": "only if the file cannot be read after it was opened"}
	for _, name := range exportedFunctions(t) {
		if !failed[name] && elsewhere[name] == "" && !others[name] {
			t.Errorf("rt.%s has not failed in any way: the table needs it", name)
		}
	}
}

func awaitFree(r *ring.Ring[int], ctx context.Context) error { return r.AwaitFree(ctx, r.Ahead(0)) }

func second[T any](_ T, err error) error { return err }

// namedQueue is a queue for what asks no more of it.
type namedQueue struct{ modelrt.Queue }

func (namedQueue) Name() string { return "x" }
func (namedQueue) Info() popef.TensorInfo {
	return popef.TensorInfo{DataType: popef.U8, Shape: []int64{1, 4}}
}

// fullRing fills a ring.
func fullRing(t *testing.T, r *ring.Ring[int]) *ring.Ring[int] {
	for range r.NumBuffers() {
		require.NoError(t, r.Write(context.Background(), 1))
	}
	return r
}

// taken is a device that somebody else holds.
func taken() ipu.Device {
	sys := newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, 1)})
	sys.Occupy(0)
	return sys.Device(0)
}

// exportedFunctions returns the functions of package rt that return an error.
func exportedFunctions(t *testing.T) []string {
	var out []string
	var files []string
	for _, room := range []string{"*.go", "genrt/*.go", "modelrt/*.go", "ring/*.go"} {
		some, err := filepath.Glob(room)
		require.NoError(t, err)
		files = append(files, some...)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results == nil {
				continue
			}
			results := f.Type.Results.List
			if id, ok := results[len(results)-1].Type.(*ast.Ident); ok && id.Name == "error" {
				out = append(out, f.Name.Name)
			}
		}
	}
	return out
}
