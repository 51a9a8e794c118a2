package rt_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// trap panics once after it was armed, if it gets there.
type trap struct{ armed, sprung atomic.Bool }

func (p *trap) step() {
	if p != nil && p.armed.CompareAndSwap(true, false) {
		p.sprung.Store(true)
		panic("ouch")
	}
}

// caught checks that err is what became of the trap's panic.
func (p *trap) caught(t *testing.T, err error) {
	t.Helper()
	require.True(t, p.sprung.Load(), "nothing panicked")
	require.ErrorIs(t, err, rt.ErrPanic)
	var panicked *rt.PanicError
	require.ErrorAs(t, err, &panicked)
	require.Equal(t, "ouch", panicked.Value)
	require.Contains(t, string(panicked.Stack), "guard_test.go", "the stack leads to who panicked")
}

// guardBackends are an engine in the caller's goroutine, and a device.
func guardBackends(t *testing.T, test func(t *testing.T, v variant, opts ...modelrt.SessionOption)) {
	t.Run("cpu", func(t *testing.T) {
		test(t, variant{"cpu", portable, file(t, affineMetadata(), affinePortable(t), affineData), nil})
	})
	t.Run("device", func(t *testing.T) {
		sys, v := tested(t, 1)
		test(t, v, rt.WithManager(sys.Manager()))
	})
}

// trapped is a stream over a buffer with a trap in one of its methods.
type trapped struct {
	ipu.Direct
	at   string
	trap *trap
}

func (s *trapped) step(method string) {
	if s.at == method {
		s.trap.step()
	}
}

func (s *trapped) Fetch(ctx context.Context, b []byte) error {
	s.step("Fetch")
	return s.Direct.Fetch(ctx, b)
}

func (s *trapped) Prefetch(b []byte) bool { s.step("Prefetch"); return s.Direct.Prefetch(b) }
func (s *trapped) Complete()              { s.step("Complete"); s.Direct.Complete() }
func (s *trapped) InvalidatePrefetched() {
	s.step("InvalidatePrefetched")
	s.Direct.InvalidatePrefetched()
}
func (s *trapped) Memory(ctx context.Context) ([]byte, error) {
	s.step("Memory")
	return s.Direct.Memory(ctx)
}

// memory is a stream that hands out the same memory again and again.
type memory struct {
	data   []byte
	output bool
}

func (m memory) Fetch(_ context.Context, b []byte) error {
	if !m.output {
		copy(b, m.data)
	}
	return nil
}

func (m memory) Prefetch(b []byte) bool                 { copy(b, m.data); return true }
func (m memory) Complete()                              {}
func (m memory) InvalidatePrefetched()                  {}
func (m memory) Memory(context.Context) ([]byte, error) { return m.data, nil }

// lent is memory that stays, with traps.
type lent struct{ trapped }

func (l *lent) Constant() []byte { l.step("Constant"); return l.Direct.(memory).data }
func (l *lent) Release()         { l.step("Release") }

// TestStreamPanics lets every method of a stream panic, in every program. A run
// that meets it fails, and the next one works.
func TestStreamPanics(t *testing.T) {
	ctx := context.Background()
	doing := map[string]struct {
		handle string
		do     func(rt.Session) error
	}{
		"load": {"h2d_b", func(s rt.Session) error { return s.Load(ctx) }},
		"run":  {"h2d_x", func(s rt.Session) error { return s.Run(ctx) }},
		"take": {"anchor_d2h_y", func(s rt.Session) error { return s.RunPrograms(ctx, mainProgram) }},
		"save": {"weight_d2h_w", func(s rt.Session) error { return s.Save(ctx) }},
	}
	guardBackends(t, func(t *testing.T, v variant, opts ...modelrt.SessionOption) {
		sprung := map[string]bool{}
		for name, d := range doing {
			for _, method := range []string{"Fetch", "Prefetch", "Complete", "Memory", "InvalidatePrefetched", "Constant", "Release", "connect: Constant"} {
				method, connecting := strings.CutPrefix(method, "connect: ")
				s, _, _ := v.ready(t, opts...)
				require.NoError(t, s.Load(ctx))
				p := &trap{}
				stream := ipu.Stream(&trapped{memory{floats(1, 2), d.handle != "h2d_x"}, method, p})
				if method == "Fetch" || method == "Prefetch" { // not Direct, which would not be fetched
					stream = struct{ ipu.Stream }{stream}
				}
				if d.handle == "h2d_b" {
					stream = &lent{trapped{memory{floats(10, 20), false}, method, p}}
					if method == "Fetch" || method == "Prefetch" {
						stream = struct{ ipu.Stream }{stream}
					}
				}
				p.armed.Store(connecting)
				err := s.Connect(ctx, d.handle, stream)
				if err == nil {
					p.armed.Store(true)
					err = d.do(s)
				}
				if p.sprung.Load() {
					sprung[method] = true
					p.caught(t, err)
				} else {
					require.NoError(t, err)
				}
				p.armed.Store(false)
				if p.sprung.Load() {
					require.NoError(t, s.Connect(ctx, d.handle, stream))
				}
				require.NoError(t, d.do(s), "%s, %s: the session is of no use any more", name, method)
				require.NoError(t, s.Close())
			}
		}
		require.Subset(t, slices.Collect(maps.Keys(sprung)), []string{"Fetch", "Complete"})
		if v.backend == "cpu" {
			require.Subset(t, slices.Collect(maps.Keys(sprung)), []string{"Memory", "Constant"})
		} else {
			require.Subset(t, slices.Collect(maps.Keys(sprung)), []string{"Prefetch"})
		}
	})
}

// TestObserverPanics lets observers and loggers panic at every event: the call
// that met it fails, and the session works on.
func TestObserverPanics(t *testing.T) {
	ctx := context.Background()
	for kind := rt.EventKind(0); kind.String() != "unknown event"; kind++ {
		for _, who := range []string{"observer", "logger"} {
			t.Run(who+" at "+kind.String(), func(t *testing.T) {
				p := &trap{}
				p.armed.Store(true)
				var listener rt.Option
				if who == "observer" {
					listener = rt.WithObserver(func(e rt.Event) {
						if e.Kind == kind {
							p.step()
						}
					})
				} else {
					listener = rt.WithLogger(slog.New(trapHandler{slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: rt.LevelTrace}), kind.String(), p}))
				}
				sys, v := tested(t, 1)
				d, err := sys.Manager().Get(ctx, ipu.Request{Backend: sys.Name()})
				require.NoError(t, err)
				var met []error
				no := func(err error) {
					if err != nil {
						met = append(met, err)
					}
				}
				m := load(t, v.model)
				open := func() rt.Session {
					s, err := modelrt.NewSession(ctx, m, rt.WithManager(sys.Manager()), rt.WithDevice(d), rt.AutoReset(), listener)
					no(err)
					return s
				}
				s := open()
				if s == nil {
					s = open()
				}
				buffers(t, s)
				no(s.Load(ctx))
				no(s.Run(ctx))
				no(s.Save(ctx))
				no(s.UpdateWeights(ctx, rt.Weight{Anchor: "h2d_b", Data: floats(1, 2)}))
				ended, cancel := context.WithCancel(ctx)
				cancel()
				if err := s.Run(ended); errors.Is(err, rt.ErrPanic) || kind == rt.EventRefused {
					no(err)
				}
				no(s.Stop())
				no(s.Reload(ctx))
				other, err := modelrt.NewSession(ctx, m, rt.WithManager(sys.Manager()), rt.WithDevice(d))
				require.NoError(t, err, "another session is no part of it")
				require.NoError(t, other.Close())
				no(s.Run(ctx))
				sys.Inject(iputest.OnRun(mainProgram), &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset, Message: "it broke"})
				if err := s.Run(ctx); errors.Is(err, rt.ErrPanic) {
					no(err)
				}
				no(s.Run(ctx))
				no(s.Unload(ctx))
				no(s.Reload(ctx))
				if kind == rt.EventFlushed {
					flushPanics(t, v, listener, p)
					require.NoError(t, s.Close())
					return
				}
				require.NoError(t, s.Run(ctx))
				no(s.Close())
				require.Len(t, met, 1)
				p.caught(t, met[0])
			})
		}
	}
}

// flushPanics runs a batch that is not full.
func flushPanics(t *testing.T, v variant, listener rt.Option, p *trap) {
	sys := newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, 1)})
	r := v.open(t, rt.WithManager(sys.Manager()), listener)
	x, y := someSamples(1, 1)
	p.caught(t, r.RunSamples(context.Background(), x, y))
	require.NoError(t, r.RunSamples(context.Background(), x, y))
}

type trapHandler struct {
	slog.Handler
	message string
	trap    *trap
}

func (h trapHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.trap.step()
	}
	return nil
}

// TestCallbackPanics lets every other function panic that callers give.
func TestCallbackPanics(t *testing.T) {
	ctx := context.Background()
	queues := func(t *testing.T, s rt.Session, c modelrt.QueueConfig) *modelrt.QueueManager {
		m, err := modelrt.NewQueueManager(ctx, s, c)
		require.NoError(t, err)
		return m
	}
	only := func(handles ...string) modelrt.CallbackPredicate {
		return func(a modelrt.Anchor) modelrt.CallbackPolicy {
			if slices.Contains(handles, a.Handle) {
				return modelrt.BindUser
			}
			return modelrt.SkipBind
		}
	}
	small := modelrt.QueueConfig{Batch: func(modelrt.Anchor) int { return 1 }, RingSize: func(modelrt.Anchor) int { return 4 }, Inputs: only("h2d_x"), Outputs: only("anchor_d2h_y")}
	// feed enqueues what one run takes and gives.
	feed := func(t *testing.T, m *modelrt.QueueManager, in modelrt.InputData, out modelrt.OutputData) {
		in.Data, out.Data = floats(1, 2, 3, 4), make([]byte, 16)
		require.NoError(t, m.Inputs()[0].Enqueue(ctx, in))
		require.NoError(t, m.Outputs()[0].Enqueue(ctx, out))
	}
	again := func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		require.NoError(t, m.ResetAll(ctx))
		feed(t, m, modelrt.InputData{}, modelrt.OutputData{})
		require.NoError(t, s.Run(ctx))
	}
	table := map[string]func(t *testing.T, s rt.Session, p *trap){
		"Callback.OnFetch": func(t *testing.T, s rt.Session, p *trap) {
			require.NoError(t, modelrt.SetCallback(ctx, s, "h2d_x", func(context.Context, []byte) error { p.step(); return nil }))
			p.caught(t, s.Run(ctx))
			require.NoError(t, s.Run(ctx))
		},
		"Callback.OnPrefetch": func(t *testing.T, s rt.Session, p *trap) {
			require.NoError(t, s.Connect(ctx, "h2d_x", &modelrt.Callback{OnFetch: func(context.Context, []byte) error { p.step(); return nil }, OnPrefetch: func([]byte) bool { p.step(); return false }}))
			p.caught(t, s.Run(ctx))
			require.NoError(t, s.Run(ctx))
		},
		"Callback.OnComplete": func(t *testing.T, s rt.Session, p *trap) {
			require.NoError(t, s.Connect(ctx, "h2d_x", &modelrt.Callback{OnFetch: func(context.Context, []byte) error { return nil }, OnComplete: p.step}))
			p.caught(t, s.Run(ctx))
			require.NoError(t, s.Run(ctx))
		},
		"Callback.OnInvalidate": func(t *testing.T, s rt.Session, p *trap) {
			// It is called by engines that fetch ahead, and must end nothing else.
			require.NoError(t, s.Connect(ctx, "h2d_x", &modelrt.Callback{OnFetch: func(context.Context, []byte) error { return nil }, OnPrefetch: func([]byte) bool { return true }, OnInvalidate: p.step}))
			require.NoError(t, s.Run(ctx))
			require.NoError(t, s.Reload(ctx))
			require.NoError(t, s.Run(ctx))
		},
		"Factory": func(t *testing.T, s rt.Session, p *trap) {
			factory := func(modelrt.Anchor) ipu.Stream { p.step(); return nil }
			p.caught(t, modelrt.HandleInputs(ctx, s, factory, nil, false))
			require.NoError(t, modelrt.HandleOutputs(ctx, s, factory, nil, false))
		},
		"Predicate": func(t *testing.T, s rt.Session, p *trap) {
			policy := func(modelrt.Anchor) modelrt.CallbackPolicy { p.step(); return modelrt.SkipBind }
			p.caught(t, modelrt.HandleOutputs(ctx, s, func(modelrt.Anchor) ipu.Stream { return nil }, policy, false))
			p.armed.Store(true)
			data := rt.WithDataPolicy(func(modelrt.Anchor) rt.DataPolicy { p.step(); return rt.UseFileData })
			opts := []modelrt.SessionOption{modelrt.Deferred(), data}
			_, err := modelrt.NewSession(ctx, s.Model(), opts...)
			p.caught(t, err)
		},
		"RingSize": func(t *testing.T, s rt.Session, p *trap) {
			c := small
			c.RingSize = func(modelrt.Anchor) int { p.step(); return 4 }
			_, err := modelrt.NewQueueManager(ctx, s, c)
			p.caught(t, err)
			queues(t, s, c)
		},
		"QueueConfig.Batch": func(t *testing.T, s rt.Session, p *trap) {
			c := small
			c.Batch = func(modelrt.Anchor) int { p.step(); return 1 }
			_, err := modelrt.NewQueueManager(ctx, s, c)
			p.caught(t, err)
			queues(t, s, c)
		},
		"QueueConfig.OnTimeout": func(t *testing.T, s rt.Session, p *trap) {
			c := small
			c.Timeout, c.OnTimeout = time.Millisecond, func(m *modelrt.QueueManager, q *modelrt.InputQueue) { p.step(); modelrt.FlushOnTimeout(m, q) }
			m := queues(t, s, c)
			p.caught(t, s.Run(ctx))
			again(t, s, m)
		},
		"InputData.OnReadStart": func(t *testing.T, s rt.Session, p *trap) {
			m := queues(t, s, small)
			feed(t, m, modelrt.InputData{OnReadStart: p.step}, modelrt.OutputData{})
			p.caught(t, s.Run(ctx))
			again(t, s, m)
		},
		"InputData.OnReadComplete": func(t *testing.T, s rt.Session, p *trap) {
			m := queues(t, s, small)
			feed(t, m, modelrt.InputData{OnReadComplete: p.step}, modelrt.OutputData{})
			p.caught(t, s.Run(ctx))
			again(t, s, m)
		},
		"InputData.OnDone": func(t *testing.T, s rt.Session, p *trap) {
			m := queues(t, s, small)
			feed(t, m, modelrt.InputData{OnDone: func(error) { p.step() }}, modelrt.OutputData{})
			p.caught(t, s.Run(ctx))
			again(t, s, m)
			for _, drop := range []func() error{func() error { return m.ResetAll(ctx) }, m.Inputs()[0].Reset, s.Close} {
				require.NoError(t, m.ResetAll(ctx))
				told := 0
				p.armed.Store(true)
				feed(t, m, modelrt.InputData{OnDone: func(error) { told++; p.step() }}, modelrt.OutputData{})
				require.NoError(t, m.Inputs()[0].Enqueue(ctx, modelrt.InputData{Data: floats(1, 2), OnDone: func(error) { told++ }}))
				p.caught(t, drop())
				require.Equal(t, 2, told, "the others are called all the same")
			}
		},
		"OutputData.OnWriteComplete": func(t *testing.T, s rt.Session, p *trap) {
			m := queues(t, s, small)
			feed(t, m, modelrt.InputData{}, modelrt.OutputData{OnWriteComplete: p.step})
			p.caught(t, s.Run(ctx))
			again(t, s, m)
		},
		"OutputData.OnDone": func(t *testing.T, s rt.Session, p *trap) {
			m := queues(t, s, small)
			feed(t, m, modelrt.InputData{}, modelrt.OutputData{OnDone: func(error) { p.step() }})
			p.caught(t, s.Run(ctx))
			again(t, s, m)
		},
	}
	elsewhere := map[string]string{
		"Observer": "TestObserverPanics", "Option": "made by this package alone", "Config.DataPolicy": "what the predicates give", "Config.OnTimeout": "called in the goroutine of who reads the ring",
	}
	var want []string
	for name := range functionsOfCallers(t) {
		if elsewhere[name] == "" {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	require.Empty(t, cmp.Diff(want, slices.Sorted(maps.Keys(table))), "every function that callers give belongs in this table")
	guardBackends(t, func(t *testing.T, v variant, opts ...modelrt.SessionOption) {
		for name, test := range table {
			t.Run(name, func(t *testing.T) {
				s, err := modelrt.NewSession(ctx, load(t, v.model), append([]modelrt.SessionOption{rt.WithBackend(v.backend)}, opts...)...)
				require.NoError(t, err)
				buffers(t, s)
				require.NoError(t, s.Load(ctx))
				p := &trap{}
				p.armed.Store(true)
				test(t, s, p)
				if name != "Callback.OnInvalidate" {
					require.True(t, p.sprung.Load())
				}
				if err := s.Close(); name == "InputData.OnDone" {
					p.caught(t, err)
				} else {
					require.NoError(t, err)
				}
			})
		}
	})
}

// functionsOfCallers returns the exported types of functions and fields of such
// types.
func functionsOfCallers(t *testing.T) map[string]bool {
	all := map[string]bool{}
	var files []string
	for _, room := range []string{"*.go", "modelrt/*.go", "ring/*.go"} {
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
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.TypeSpec)
			if !ok || !s.Name.IsExported() {
				return true
			}
			switch typ := s.Type.(type) {
			case *ast.FuncType:
				all[s.Name.Name] = true
			case *ast.StructType:
				for _, field := range typ.Fields.List {
					if _, ok := field.Type.(*ast.FuncType); !ok {
						continue
					}
					for _, name := range field.Names {
						if name.IsExported() {
							all[s.Name.Name+"."+name.Name] = true
						}
					}
				}
			}
			return true
		})
	}
	return all
}

// TestSubmittedPanics lets requests of a runner meet a panic, made in every way.
func TestSubmittedPanics(t *testing.T) {
	ctx := context.Background()
	for _, how := range []string{"run", "submit", "samples"} {
		t.Run(how, func(t *testing.T) {
			p := &trap{}
			sys, v := tested(t, 1)
			r := v.open(t, rt.WithManager(sys.Manager()))
			// The runner's own streams don't panic, so one of them is replaced.
			require.NoError(t, r.Session().Connect(ctx, "anchor_d2h_y", &trapped{memory{make([]byte, 8), true}, "Complete", p}))
			request := func() error {
				in, out := NewInputs(), NewOutputs()
				switch how {
				case "submit":
					ticket, err := r.Submit(ctx, in, out)
					require.NoError(t, err)
					return ticket.Wait(ctx)
				case "samples":
					x, y := someSamples(1, 1)
					return r.RunSamples(ctx, x, y)
				}
				return r.Run(ctx, in, out)
			}
			p.armed.Store(true)
			p.caught(t, request())
			require.NoError(t, request())
			require.NoError(t, r.Close())
		})
	}
}
