package core

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// script is a model whose requests say what happens: it answers the number that it was given, and one more.
func script(replicas int, before func(ctx context.Context) error) *testmodel.Model {
	m := testmodel.Identity(oip.Uint32, 4, 1)
	m.Described.Name = "script"
	m.Replicas, m.Before = replicas, before
	m.Compute = func(in, out [][]byte) {
		for i := 0; i < len(in[0]); i += 4 {
			binary.LittleEndian.PutUint32(out[0][i:], binary.LittleEndian.Uint32(in[0][i:])+1)
		}
	}
	return m
}

// ask sends one number to the model script and checks the answer. set may change the request.
func ask(ctx context.Context, c *Core, n uint32, set func(*Call)) error {
	v, err := c.Lookup([]byte("script"), nil)
	if err != nil {
		return err
	}
	defer v.Release()
	call := v.Get()
	defer v.Put(call)
	i, _, err := call.Input([]byte("INPUT0"), []byte("UINT32"), []int64{1, 1})
	if err != nil {
		return err
	}
	mem, err := call.Memory.Input(i, []int64{1, 1})
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(mem, n)
	if set != nil {
		set(call)
	}
	if err := call.Done(); err != nil {
		return err
	}
	if err := v.Run(ctx, call); err != nil {
		return err
	}
	data, _ := call.Memory.Output(0)
	if got := binary.LittleEndian.Uint32(data); len(data) != 4 || got != n+1 {
		return fmt.Errorf("%d was answered with %d", n, got)
	}
	return nil
}

func codeIs(t *testing.T, want oip.Code, err error) *oip.Error {
	t.Helper()
	var e *oip.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Code, "%v", err)
	return e
}

func load(t *testing.T, c *Core, m oip.Model, l Load) *Version {
	t.Helper()
	v, err := c.Load(t.Context(), m, l)
	require.NoError(t, err)
	return v
}

// blocked is a model whose requests compute until something is received from the channel.
func blocked(t *testing.T, l Limits, replicas int) (*Core, *Version, *testmodel.Model, chan struct{}) {
	t.Helper()
	next := make(chan struct{})
	m := script(replicas, func(context.Context) error { <-next; return nil })
	c := New()
	c.SetLimits("", l)
	return c, load(t, c, m, Load{Cold: true}), m, next
}

// until waits for something that another goroutine brings about.
func until(t *testing.T, what func() bool) {
	t.Helper()
	require.Eventually(t, what, time.Minute, time.Millisecond/4)
}

// run runs a test in a time of its own, which passes when nobody can go on.
func run(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// TestAdmission: as many compute as the limit says, as many wait, and the next is refused at once with a time to
// come again; a place that a caller leaves is free.
func TestAdmission(t *testing.T) {
	for _, test := range []struct {
		name               string
		limits             Limits
		replicas           int
		computing, waiting int
	}{
		{"defaults", Limits{}, 2, 2, 8},
		{"given", Limits{Computing: 3, Waiting: 2}, 8, 3, 2},
		{"nobody waits", Limits{Computing: 1, Waiting: -1}, 8, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, v, m, next := blocked(t, test.limits, test.replicas)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			var gone atomic.Int64
			for i := range test.computing + test.waiting {
				all.Go(func() {
					if err := ask(ctx, c, uint32(i), nil); err != nil {
						codeIs(t, oip.Canceled, err)
						gone.Add(1)
					}
				})
			}
			until(t, func() bool {
				s := v.Statistics()
				return s.Computing == test.computing && s.Waiting == test.waiting && m.Runs.Load() == int64(test.computing)
			})
			e := codeIs(t, oip.Exhausted, v.Refusal())
			require.Positive(t, e.RetryAfter)
			require.Contains(t, e.Text, "'script'")
			codeIs(t, oip.Exhausted, ask(t.Context(), c, 1, nil))
			require.EqualValues(t, 1, v.Statistics().Failed[REST][oip.Exhausted])
			require.EqualValues(t, 2, v.Statistics().Refused)
			cancel()
			until(t, func() bool { return gone.Load() == int64(test.waiting) })
			require.Zero(t, v.Statistics().Waiting)
			close(next)
			all.Wait()
			require.NoError(t, v.Refusal())
			require.NoError(t, ask(t.Context(), c, 5, nil))
			require.EqualValues(t, test.computing+1, m.Runs.Load(), "requests whose caller is gone reached the model")
			s := v.Statistics()
			require.Zero(t, s.InFlight+s.Computing+s.Waiting)
		})
	}
}

// TestPriority: requests of priority 1 go before the others, each line in order of arrival.
func TestPriority(t *testing.T) {
	c, v, m, next := blocked(t, Limits{Computing: 1, Waiting: 16}, 1)
	var order []uint32 // written by the one that computes
	compute := m.Compute
	m.Compute = func(in, out [][]byte) {
		order = append(order, binary.LittleEndian.Uint32(in[0]))
		compute(in, out)
	}
	var all sync.WaitGroup
	for i, priority := range []uint64{0, 0, 2, 1, 0, 1} {
		all.Go(func() {
			if err := ask(t.Context(), c, uint32(i), func(c *Call) { c.Priority = priority }); err != nil {
				t.Error(err)
			}
		})
		until(t, func() bool { s := v.Statistics(); return s.Computing+s.Waiting == i+1 })
	}
	close(next)
	all.Wait()
	require.Equal(t, []uint32{0, 3, 5, 1, 2, 4}, order)
}

// TestDeadlines: the earliest of the deadlines counts, and a request whose time is over does not reach the model: neither one that is
// over as it comes, nor one that waits.
func TestDeadlines(t *testing.T) {
	soon := 20 * time.Millisecond
	for _, test := range []struct {
		name   string
		limits Limits
		set    func(*Call)
		ctx    func() (context.Context, context.CancelFunc)
	}{
		{name: "default", limits: Limits{Timeout: soon}},
		{name: "parameter", set: func(c *Call) { c.Timeout = soon }},
		{name: "transport", set: func(c *Call) { c.Timeout = time.Hour; c.Deadline = time.Now().Add(soon) }},
		{name: "context", ctx: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), soon)
		}},
	} {
		run(t, test.name, func(t *testing.T) {
			test.limits.Computing, test.limits.Waiting = 1, 4
			c, v, m, next := blocked(t, test.limits, 1)
			ctx, cancel := context.Background(), context.CancelFunc(func() {})
			first := make(chan error, 1)
			go func() { first <- ask(ctx, c, 1, nil) }()
			until(t, func() bool { return m.Runs.Load() == 1 })
			if test.ctx != nil {
				ctx, cancel = test.ctx()
			}
			defer cancel()
			codeIs(t, oip.Deadline, ask(ctx, c, 2, test.set))
			require.Zero(t, v.Statistics().Waiting)
			if test.ctx == nil { // over as it comes
				codeIs(t, oip.Deadline, ask(ctx, c, 3, func(c *Call) {
					if test.set != nil {
						test.set(c)
					}
					time.Sleep(soon * 3 / 2)
				}))
			} else {
				codeIs(t, oip.Deadline, ask(ctx, c, 3, nil))
			}
			close(next)
			require.NoError(t, <-first)
			require.EqualValues(t, 1, m.Runs.Load())
		})
	}
}

// TestContextOfCall: what a model computes with ends with the request's time and with its caller, also for what was derived from it, and
// not before.
func TestContextOfCall(t *testing.T) {
	x := &callContext{}
	late := time.Now().Add(time.Hour)
	type key struct{}
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 5))
	x.begin(parent, late, &follower{})
	require.Equal(t, 5, x.Value(key{}))
	d, ok := x.Deadline()
	require.True(t, ok)
	require.Equal(t, late, d)
	require.NoError(t, x.Err())
	derived, stop := context.WithCancel(x)
	defer stop()
	select {
	case <-x.Done():
		t.Fatal("it is done")
	default:
	}
	cancel()
	<-derived.Done()
	require.ErrorIs(t, x.Err(), context.Canceled)
	require.False(t, x.end())
	x = &callContext{}
	x.begin(t.Context(), time.Now().Add(10*time.Millisecond), &follower{})
	<-x.Done()
	require.ErrorIs(t, x.Err(), context.DeadlineExceeded)
	require.False(t, x.end())
	x = &callContext{}
	x.begin(t.Context(), time.Now().Add(-time.Millisecond), &follower{})
	require.ErrorIs(t, x.Err(), context.DeadlineExceeded)
	require.True(t, x.end(), "nobody derived anything from it")
	x.begin(t.Context(), time.Now().Add(-time.Millisecond), &follower{})
	require.ErrorIs(t, x.Err(), context.DeadlineExceeded)
	<-x.Done()
	require.False(t, x.end(), "somebody may have")
	x = &callContext{}
	x.begin(t.Context(), late, &follower{})
	derived, stop = context.WithCancel(x)
	defer stop()
	x.end()
	<-derived.Done() // it does not outlive the request

	x = &callContext{}
	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	x.begin(short, late, &follower{}) // the parent knows sooner
	d, _ = x.Deadline()
	require.True(t, d.Before(late))
	require.Equal(t, short.Done(), x.Done())
	require.False(t, x.end())

	x = &callContext{}
	x.begin(parent, late, &follower{})
	derived, stop = context.WithTimeout(x, 5*time.Millisecond)
	defer stop()
	x.end() // while the timer of derived ends it, which reads x
	<-derived.Done()
}

// TestFailure: every kind of error that a model has, as clients see it. Paths and addresses stay in the log.
func TestFailure(t *testing.T) {
	for _, test := range []struct {
		err  error
		code oip.Code
		text string
	}{
		{oip.Errorf(oip.Unimplemented, "as it is"), oip.Unimplemented, "as it is"},
		{fmt.Errorf("around: %w", oip.Errorf(oip.InvalidArgument, "inside")), oip.InvalidArgument, "inside"},
		{context.Canceled, oip.Canceled, "the request to model 'm' was cancelled"},
		{fmt.Errorf("run: %w", context.DeadlineExceeded), oip.Deadline, "the time of the request to model 'm' was over before its answer"},
		{&rt.SizeError{Model: "/secret/m.popef", Field: "Inputs.Tokens.Seq", Reason: "is 200"}, oip.InvalidArgument, "model 'm': Inputs.Tokens.Seq is 200"},
		{fmt.Errorf("/secret: %w", rt.ErrSamples), oip.InvalidArgument, "model 'm' does not take the sizes of the request"},
		{rt.ErrOverloaded, oip.Exhausted, "Exceeds maximum queue size: model 'm' has no room; try again later"},
		{rt.ErrClosed, oip.Unavailable, "model 'm' is closed; try again later"},
		{&rt.DeviceError{Err: errors.New("10.0.0.1")}, oip.Internal, "the device of model 'm' failed"},
		{errors.New("/secret"), oip.Internal, "model 'm' failed"},
	} {
		e := Failure("m", test.err)
		require.Equal(t, test.code, e.Code, "%v", test.err)
		require.Equal(t, test.text, e.Text)
		require.True(t, e == test.err || errors.Is(e, test.err) || errors.Is(test.err, e))
	}
}

// TestPanic: a model that panics, or ends its goroutine, costs that request alone, and its place is free.
func TestPanic(t *testing.T) {
	var what atomic.Int64
	c := New()
	c.SetLimits("script", Limits{Computing: 1, Waiting: -1})
	v := load(t, c, script(1, func(context.Context) error {
		switch what.Load() {
		case 1:
			panic("a hook's mistake")
		case 2:
			runtime.Goexit()
		}
		return nil
	}), Load{})
	what.Store(1)
	e := codeIs(t, oip.Internal, ask(t.Context(), c, 1, nil))
	require.Equal(t, "model 'script' failed", e.Text)
	require.ErrorContains(t, e.Cause, "a hook's mistake")
	require.ErrorContains(t, e.Cause, "core_test.go")
	what.Store(2)
	var all sync.WaitGroup
	all.Go(func() { _ = ask(t.Context(), c, 1, nil) })
	all.Wait()
	what.Store(0)
	require.NoError(t, ask(t.Context(), c, 1, nil))
	s := v.Statistics()
	require.EqualValues(t, 2, s.Failed[REST][oip.Internal])
	require.Zero(t, s.InFlight+s.Computing)
}

// TestAllocations: a request allocates nothing, whether it has deadlines or not, waits or not.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c := New()
	v := load(t, c, script(1, nil), Load{})
	name, input, datatype, shape := []byte("script"), []byte("INPUT0"), []byte("UINT32"), []int64{1, 1}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one := func(timeout time.Duration, run func(call *Call) error) {
		w, err := c.Lookup(name, nil)
		if err != nil || w.Refusal() != nil {
			t.Error(err)
			return
		}
		call := w.Get()
		i, _, err := call.Input(input, datatype, shape)
		if err == nil {
			_, err = call.Memory.Input(i, shape)
		}
		call.Timeout = timeout
		if err == nil {
			err = call.Done()
		}
		if err == nil {
			err = run(call)
		}
		if err != nil {
			t.Error(err)
		}
		w.Put(call)
		w.Release()
	}
	plain := func(call *Call) error { return v.Run(ctx, call) }
	waits := func(call *Call) error { // another one has the place, and leaves while this one waits
		if room, wait := v.gate.take(&Call{}); !room || wait {
			t.Error("no place")
		}
		time.AfterFunc(time.Millisecond/4, v.gate.leave)
		return v.Run(ctx, call)
	}
	for name, f := range map[string]func(){
		"default deadline": func() { one(0, plain) },
		"timeout":          func() { one(time.Second, plain) },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, f), name)
	}
	alone := testing.AllocsPerRun(100, func() {
		_, _ = v.gate.take(&Call{})
		time.AfterFunc(time.Millisecond/4, v.gate.leave)
		for v.gate.busy.Load() > 0 {
			runtime.Gosched()
		}
	})
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { one(time.Second, waits) }), alone, "a request that waits allocates")
}

// TestStatistics: what was counted is what happened.
func TestStatistics(t *testing.T) {
	c := New()
	fail := errors.New("x")
	var failing atomic.Bool
	v := load(t, c, script(2, func(context.Context) error {
		if failing.Load() {
			return fail
		}
		time.Sleep(time.Millisecond)
		return nil
	}), Load{})
	for range 5 {
		require.NoError(t, ask(t.Context(), c, 1, func(c *Call) { c.Received, c.Sent = 100, 10 }))
	}
	failing.Store(true)
	codeIs(t, oip.Internal, ask(t.Context(), c, 1, nil))
	call := v.Get()
	v.Put(call) // its body could not be read
	s := c.Statistics("")[0]
	require.Equal(t, s, c.Statistics("script")[0])
	require.Empty(t, c.Statistics("other"))
	require.EqualValues(t, 5, s.Latency.Count)
	require.EqualValues(t, 5, s.Done[REST])
	require.EqualValues(t, 5, s.Samples)
	require.EqualValues(t, 6, s.Queue.Count)
	require.EqualValues(t, 500, s.Received)
	require.EqualValues(t, 50, s.Sent)
	require.EqualValues(t, 1, s.Failed[REST][oip.Internal])
	require.EqualValues(t, 1, s.Failed[REST][oip.InvalidArgument])
	require.EqualValues(t, 2, s.Failure.Count)
	require.GreaterOrEqual(t, s.Compute.Time, 5*time.Millisecond)
	require.GreaterOrEqual(t, s.Latency.Time, s.Compute.Time+s.Decode.Time+s.Encode.Time)
	require.Equal(t, []Batch{{1, s.Compute.Total}}, s.Batches)
	require.Zero(t, s.Latency.Buckets[0]+s.Latency.Buckets[1]+s.Latency.Buckets[2], "a millisecond at least")
	require.WithinDuration(t, time.Now(), s.Last, time.Minute)
}

type seen struct {
	begun, ended int
	err          error
	value        any
	times        Times
}

type seenKey struct{}

func (s *seen) Begin(ctx context.Context, _ *Version, _ *Call) context.Context {
	s.begun++
	return context.WithValue(ctx, seenKey{}, "trace")
}

func (s *seen) End(ctx context.Context, _ *Version, c *Call, err error) {
	s.ended++
	s.err, s.value, s.times = err, ctx.Value(seenKey{}), c.Times
}

// TestObserver: the model computes with the context that observers made, and they see how each request ended.
func TestObserver(t *testing.T) {
	c := New()
	var s seen
	require.False(t, c.Traced())
	require.True(t, c.ObserveTraces(&s))
	require.False(t, c.ObserveTraces(&s), "who of two begins the span would be open")
	require.True(t, c.Traced())
	var value any
	fail := error(nil)
	v := load(t, c, script(1, func(ctx context.Context) error { value = ctx.Value(seenKey{}); return fail }), Load{})
	require.NoError(t, ask(t.Context(), c, 1, nil))
	require.Equal(t, "trace", value)
	require.Equal(t, "trace", s.value)
	require.NoError(t, s.err)
	at := []time.Time{s.times.Begun, s.times.Queued, s.times.Computing, s.times.Computed, s.times.Ended}
	for i := range at[1:] {
		require.False(t, at[i].IsZero() || at[i+1].Before(at[i]), "%v", at)
	}
	fail = errors.New("x")
	require.Error(t, ask(t.Context(), c, 1, nil))
	require.ErrorIs(t, s.err, fail)
	call := v.Get()
	call.Traceparent, call.Tracestate = "a", "b"
	v.Put(call)
	require.Empty(t, call.Traceparent+call.Tracestate, "the next request is of another trace")
	codeIs(t, oip.InvalidArgument, s.err)
	require.Nil(t, s.value)
	require.Equal(t, seen{begun: 2, ended: 3, err: s.err, times: s.times}, s)
}
