package iputest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

// loadedOn makes an engine and loads it onto a new device.
func loadedOn(t testing.TB, sys *System, s Script, options ...ipu.Option) *Engine {
	t.Helper()
	e := newEngine(t, sys, s, options...)
	require.NoError(t, e.Load(context.Background(), attached(t, sys, 0)))
	return e
}

// transfers are the events that tell how data moves.
var transfers = []EventKind{EventFetch, EventPrefetch, EventDeliver, EventComplete, EventInvalidate}

// reads is a program that reads x n times.
func reads(x Stream, n int64, more ...Step) Script {
	x.Handle, x.Type, x.Shape = "x", "u8", []int64{4}
	return Script{
		Streams:  []Stream{x, Out("y", "u8", 4)},
		Programs: []Program{{Index: 1, Steps: append([]Step{Repeat(n, Read("x"))}, more...)}, {Index: 2, Steps: []Step{Write("y")}}},
	}
}

func TestPrefetch(t *testing.T) {
	lookahead := func(n string) []ipu.Option { return []ipu.Option{{Name: "streamCallbacks.maxLookahead", Value: n}} }
	tests := []struct {
		name    string
		script  Script
		options []ipu.Option
		items   []string
		want    []string
	}{
		{"depth 1", reads(Stream{}, 2), nil, []string{"aaaa", "bbbb"}, []string{
			`prefetch "x" #1`, `complete "x" #1`, `prefetch "x" #2`, `complete "x" #2`,
		}},
		{"depth 2, no further than the program", reads(Stream{Depth: 2}, 3), nil, []string{"aaaa", "bbbb", "cccc", "dddd"}, []string{
			`prefetch "x" #1`, `prefetch "x" #2`, `complete "x" #1`, `prefetch "x" #3`, `complete "x" #2`, `complete "x" #3`,
		}},
		{"speculative", reads(Stream{Depth: 2, Speculative: true}, 1), nil, []string{"aaaa", "bbbb", "cccc", "dddd"}, []string{
			`prefetch "x" #1`, `prefetch "x" #2`, `complete "x" #1`, `prefetch "x" #3`,
		}},
		{"speculative, refused", reads(Stream{Depth: 4, Speculative: true}, 1), nil, []string{"aaaa"}, []string{
			`prefetch "x" #1`, `prefetch "x" #2: refused`, `complete "x" #1`, `prefetch "x" #2: refused`,
		}},
		{"refused", reads(Stream{Depth: 3}, 2), nil, []string{"aaaa"}, []string{
			`prefetch "x" #1`, `prefetch "x" #2: refused`, `complete "x" #1`, `prefetch "x" #2: refused`, `fetch "x" #2`, `complete "x" #2`,
		}},
		{"switched off", reads(Stream{Depth: 3}, 1), []ipu.Option{{Name: "exchange.enablePrefetch", Value: "false"}}, []string{"aaaa"}, []string{
			`fetch "x" #1`, `complete "x" #1`,
		}},
		{"look-ahead 0", reads(Stream{Depth: 3}, 1), lookahead("0"), []string{"aaaa"}, []string{`fetch "x" #1`, `complete "x" #1`}},
		{"look-ahead 2", reads(Stream{Depth: 9}, 4), lookahead("2"), []string{"aaaa", "bbbb", "cccc", "dddd"}, []string{
			`prefetch "x" #1`, `prefetch "x" #2`, `complete "x" #1`, `prefetch "x" #3`, `complete "x" #2`, `prefetch "x" #4`, `complete "x" #3`, `complete "x" #4`,
		}},
		{"look-ahead unlimited", reads(Stream{Depth: 2}, 2), lookahead("unlimited"), []string{"aaaa", "bbbb"}, []string{
			`prefetch "x" #1`, `prefetch "x" #2`, `complete "x" #1`, `complete "x" #2`,
		}},
		{"by script, and thrown away", reads(Stream{}, 0, Prefetch("x", 2), Discard("x"), Discard("x"), Read("x")), lookahead("0"), []string{"aaaa", "bbbb"}, []string{
			`prefetch "x" #1`, `prefetch "x" #2`, `invalidate "x"`, `fetch "x" #1`, `complete "x" #1`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sys := New(Config{})
			e := loadedOn(t, sys, tt.script, tt.options...)
			connectAll(t, e, tt.items...)
			require.NoError(t, e.Run(context.Background(), 1))
			for i := range tt.want {
				tt.want[i] = "model: " + tt.want[i]
			}
			require.Empty(t, cmp.Diff(tt.want, sys.Trace(transfers...)))
			require.Equal(t, tt.items[min(len(tt.items), len(sys.Events(EventComplete)))-1], string(e.Tensor("x")))
		})
	}
}

func TestPrefetchedDataIsKeptAndThrownAway(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{})
	e := loadedOn(t, sys, reads(Stream{Depth: 3, Speculative: true}, 1))
	x, _ := connectAll(t, e, "1111", "2222", "3333", "4444", "5555", "6666", "7777")
	invalidated := func() int { defer sys.ClearLog(); return len(sys.Events(EventInvalidate)) }

	require.NoError(t, e.Run(ctx, 1))
	require.NoError(t, e.Run(ctx, 2), "which reads nothing")
	require.NoError(t, e.Run(ctx, 1))
	require.Equal(t, "2222", string(e.Tensor("x")))
	require.Equal(t, 3, x.ahead)
	require.Zero(t, invalidated())

	require.NoError(t, e.Connect("x", x))
	require.Equal(t, 1, invalidated(), "by connecting again")
	require.Zero(t, x.ahead)
	require.NoError(t, e.Run(ctx, 1))
	require.Equal(t, "3333", string(e.Tensor("x")), "the oldest that is not complete")

	require.NoError(t, e.Load(ctx, e.device))
	require.Equal(t, 1, invalidated(), "by loading")
	require.Equal(t, "\x00\x00\x00\x00", string(e.Tensor("x")))
	require.NoError(t, e.Run(ctx, 1))

	sys.Inject(OnRun(2), errors.New("no"))
	require.Error(t, e.Run(ctx, 2))
	require.Equal(t, 1, invalidated(), "by an error")
	require.NoError(t, e.Run(ctx, 1))
	require.Equal(t, "5555", string(e.Tensor("x")))
}

// TestAnyPrefetching checks, of random streams and look-ahead, that the device
// gets every item once and in order, and that no more are ahead than may be.
func TestAnyPrefetching(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		depth := 1 + rnd.IntN(4)
		n := int64(1 + rnd.IntN(5))
		s := reads(Stream{Depth: depth, Speculative: rnd.IntN(2) == 0}, n)
		var got []string
		s.Programs[0].Steps[0].Steps = append(s.Programs[0].Steps[0].Steps, Call("note", []string{"x"}, nil))
		sys := New(Config{Name: fmt.Sprint("seed", seed), Functions: map[string]Function{"note": func(in, _ [][]byte) error {
			got = append(got, string(in[0]))
			return nil
		}}})
		e := loadedOn(t, sys, s, ipu.Option{Name: "streamCallbacks.maxLookahead", Value: fmt.Sprint(rnd.IntN(6))})
		var want []string
		var items []string
		for i := range 20 {
			items = append(items, fmt.Sprintf("%04d", i))
		}
		x, _ := connectAll(t, e, items...)
		for run := range 3 {
			for i := range int(n) {
				want = append(want, items[run*int(n)+i])
			}
			require.NoError(t, e.Run(context.Background(), 1))
			require.LessOrEqual(t, x.ahead, depth)
			if rnd.IntN(3) == 0 {
				require.NoError(t, e.Connect("x", x))
			}
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestPoisonedBuffers(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{})
	s := script1()
	e := loadedOn(t, sys, s)
	x, y := connectAll(t, e, "abcd")
	var seen []byte
	y.onFetch = func([]byte) error {
		seen = append([]byte(nil), x.lent...)
		return nil
	}
	require.NoError(t, e.Run(ctx, 1))
	require.Equal(t, "abcd", string(y.got[0]))
	require.Equal(t, []byte{poison, poison, poison, poison}, seen, "while the program goes on")
	require.Equal(t, []byte{poison, poison, poison, poison}, y.lent)
	require.Empty(t, sys.Violations())

	x.lent[2] = 'z'
	require.NoError(t, e.Run(ctx, 1))
	require.Equal(t, "abcd", string(y.got[1]), "what the host wrote too late is not used")
	y.onFetch = func(buf []byte) error { buf[0] = 'z'; return nil }
	require.NoError(t, e.Run(ctx, 1))
	require.Equal(t, []string{
		`model: violation "x" #2: the host wrote to a buffer after the call that lent it`,
		`model: violation "y" #3: the host changed the data of an output`,
	}, sys.Violations())

	// A Fetch that fills only a part of the buffer leaves the poison.
	short := &feed{items: [][]byte{[]byte("ab")}, done: 1}
	require.NoError(t, e.Connect("x", short))
	y.onFetch = nil
	require.NoError(t, e.Run(ctx, 1))
	require.Equal(t, []byte{'a', 'b', poison, poison}, y.got[3])
}

func TestFunctions(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{Functions: map[string]Function{
		"fail":  func([][]byte, [][]byte) error { return errors.New("division by zero") },
		"panic": func([][]byte, [][]byte) error { panic("bug") },
	}})
	script := func(f string, in, out []string) Script {
		return Script{
			Streams:  []Stream{In("a", "f32", 4), In("b", "f32", 2), In("c", "f32", 3), In("d", "u8", 3), In("none", "f32", 0), Out("y", "f32", 4)},
			Programs: []Program{{Index: 0, Steps: []Step{Read("a"), Read("b"), Call(f, in, out), Write("y")}}},
		}
	}
	tests := []struct {
		f       string
		in, out []string
		want    []float32
		err     string
	}{
		{"add", []string{"a", "b"}, []string{"y"}, []float32{11, 22, 13, 24}, ""},
		{"mul", []string{"a", "a"}, []string{"y"}, []float32{1, 4, 9, 16}, ""},
		{"copy", []string{"a"}, []string{"y"}, []float32{1, 2, 3, 4}, ""},
		{"add", []string{"none", "none"}, []string{"none"}, []float32{0, 0, 0, 0}, ""},
		{"copy", []string{"b"}, []string{"y"}, nil, "a result has 16 bytes and the operand 8"},
		{"copy", []string{"a", "b"}, []string{"y"}, nil, "copy: it has 2 operands, want 1"},
		{"add", []string{"a"}, []string{"y"}, nil, "it has 1 operands and 1 results"},
		{"add", []string{"a", "b"}, []string{"d"}, nil, "want 2 and 1 of whole elements"},
		{"add", []string{"a", "c"}, []string{"y"}, nil, "an operand has 12 bytes, which do not divide the 16 of the result"},
		{"mul", []string{"a", "none"}, []string{"y"}, nil, "an operand has 0 bytes"},
		{"fail", nil, nil, nil, `run program 0: function "fail": application error: division by zero`},
		{"panic", nil, nil, nil, "panic: bug"},
	}
	for _, tt := range tests {
		e := newEngine(t, sys, script(tt.f, tt.in, tt.out))
		d := sys.Device(0)
		d.Attach()
		require.NoError(t, e.Load(ctx, d))
		y := &feed{}
		for h, s := range map[string]*feed{"a": {items: [][]byte{vector(1, 2, 3, 4)}}, "b": {items: [][]byte{vector(10, 20)[:8]}}, "y": y} {
			require.NoError(t, e.Connect(h, s))
		}
		err := e.Run(ctx, 0)
		if tt.err != "" {
			require.ErrorContains(t, err, tt.err)
			require.ErrorIs(t, err, ipu.ErrApplication)
			require.NoError(t, e.Load(ctx, d), "loading again repairs it")
		} else {
			require.NoError(t, err)
			require.Equal(t, tt.want, elements(y.got[0]), tt.f)
		}
		require.NoError(t, d.Detach())
	}
	_, err := sys.NewEngine(ipu.EngineConfig{Executable: script("sub", nil, nil).Executable()})
	require.ErrorIs(t, err, ErrScript)
	require.ErrorContains(t, err, `there is no function "sub"`)
}

func TestHangUntilStopped(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{})
	s := script1()
	s.Programs[0].Steps = append(s.Programs[0].Steps, HangUp())
	e := loadedOn(t, sys, s)
	_, y := connectAll(t, e)
	done := make(chan error, 1)
	delivered := make(chan struct{})
	y.onFetch = func([]byte) error { close(delivered); return nil }
	go func() { done <- e.Run(ctx, 1) }()
	<-delivered
	require.ErrorIs(t, e.device.Detach(), ipu.ErrBusy)
	other := newEngine(t, sys, script1())
	require.ErrorIs(t, other.Load(ctx, e.device), ipu.ErrBusy)
	require.NoError(t, e.Stop())
	require.ErrorIs(t, <-done, ipu.ErrStopped)
	require.NoError(t, e.Stop(), "again")
	y.onFetch = nil

	require.NoError(t, e.Load(ctx, e.device))
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.Run(short, 1), context.DeadlineExceeded)
}

func TestLatency(t *testing.T) {
	s := script1()
	s.Programs[0].Steps = append(s.Programs[0].Steps, Repeat(3, Wait(time.Second)))
	sys := New(Config{})
	e := loadedOn(t, sys, s)
	connectAll(t, e)
	before := sys.Clock().Now()
	require.NoError(t, e.Run(context.Background(), 1))
	require.Equal(t, 3*time.Second, sys.Clock().Now().Sub(before))

	clock := NewClock()
	sys = New(Config{Clock: clock})
	e = loadedOn(t, sys, s)
	connectAll(t, e)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, 1) }()
	for range 2 {
		require.NoError(t, clock.AwaitSleepers(ctx, 1))
		clock.Advance(time.Second)
	}
	require.NoError(t, clock.AwaitSleepers(ctx, 1))
	require.NoError(t, e.Stop(), "stops what waits")
	require.ErrorIs(t, <-done, ipu.ErrStopped)
}

func TestOptionsReachTheEngine(t *testing.T) {
	options := []ipu.Option{{Name: "target.hostSyncTimeout", Value: "60"}, {Name: "x", Value: ""}}
	e := newEngine(t, New(Config{}), script1(), options...)
	require.Equal(t, options, e.Config().Options)
	require.Equal(t, "model", e.Label())
	for _, o := range []ipu.Option{
		{Name: "exchange.enablePrefetch", Value: "yes"}, {Name: "streamCallbacks.maxLookahead", Value: "-1"}, {Name: "streamCallbacks.multiThreadMode", Value: "many"},
	} {
		_, err := New(Config{}).NewEngine(ipu.EngineConfig{Name: "m", Executable: script1().Executable(), Options: []ipu.Option{o}})
		require.ErrorIs(t, err, ipu.ErrInvalidOption)
		require.ErrorContains(t, err, fmt.Sprintf("make a test engine for \"m\": option %q: invalid option: it does not take %q", o.Name, o.Value))
	}
}

func TestOwnThread(t *testing.T) {
	e := loadedOn(t, New(Config{}), script1(), ipu.Option{Name: "streamCallbacks.multiThreadMode", Value: "dedicated"})
	x, _ := connectAll(t, e)
	x.items = append(x.items, x.items[0])
	x.done = 1 << 20 // no prefetching
	mine := true     // the race detector knows that Run orders the accesses
	x.onFetch = func([]byte) error { mine = false; return nil }
	require.NoError(t, e.Run(context.Background(), 1))
	require.False(t, mine)
}

// Feature 17.
func TestPackageHash(t *testing.T) {
	s := script1()
	s.PackageHash = "aaa"
	config := ipu.EngineConfig{Name: "m", Executable: s.Executable()}
	sys := New(Config{PackageHash: "bbb"})
	_, err := sys.NewEngine(config)
	require.ErrorIs(t, err, ipu.ErrPackageHash)
	require.EqualError(t, err, `make a test engine for "m": read the executable: package hash mismatch: package hash (aaa) differs from the device's (bbb)`)
	config.DisableHashCheck = true
	e, err := sys.NewEngine(config)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	config.DisableHashCheck = false
	e, err = New(Config{PackageHash: "aaa"}).NewEngine(config)
	require.NoError(t, err)
	require.NoError(t, e.Close())
}

func TestLog(t *testing.T) {
	sys := New(Config{})
	e := newEngine(t, sys, script1())
	connectAll(t, e)
	require.NoError(t, e.Load(context.Background(), attached(t, sys, 0)))
	require.NoError(t, e.Run(context.Background(), 1))
	sys.Inject(OnTransfer("y"), errors.New("oh"))
	require.Error(t, e.Run(context.Background(), 1))
	require.NoError(t, e.Stop())
	require.NoError(t, e.Close())
	require.Empty(t, cmp.Diff([]string{
		"model: make", `model: connect "x"`, `model: connect "y"`, "device 0: attach", "model: load on 0",
		"model: run 1", `model: prefetch "x" #1`, `model: complete "x" #1`, "model: call: copy", `model: deliver "y" #1`, `model: complete "y" #1`, "model: done 1",
		"model: run 1", `model: prefetch "x" #2: refused`, `model: fetch "x" #2`, `model: complete "x" #2`, "model: call: copy", `model: fault "y": oh`,
		`model: done 1: stream "y": oh`,
		"model: stop", "model: close",
	}, sys.Trace()))
	events := sys.Events(EventPrefetch)
	require.Equal(t, Event{Kind: EventPrefetch, Time: epoch, Engine: "model", Program: 1, Stream: "x", Transfer: 2, Detail: "refused"}, events[1])
	require.Equal(t, []*Engine{e}, sys.Engines())

	sys.mu.Lock()
	for range 3 * maxEvents {
		sys.record(Event{})
	}
	n := len(sys.events)
	sys.mu.Unlock()
	require.LessOrEqual(t, n, 2*maxEvents)
	require.GreaterOrEqual(t, n, maxEvents)
	sys.ClearLog()
	require.Empty(t, sys.Events())
}
