package rt_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// soakTime is how long TestSoak lasts: what POPEFGEN_SOAK says, as "2m" in
// make soak, or else a moment.
func soakTime(t *testing.T) time.Duration {
	if s := os.Getenv("POPEFGEN_SOAK"); s != "" {
		d, err := time.ParseDuration(s)
		require.NoError(t, err, "POPEFGEN_SOAK is a duration")
		return d
	}
	if testing.Short() {
		return time.Second
	}
	return 3 * time.Second
}

// TestSoak lets 64 goroutines make requests of every kind, some of which they
// abandon, to runners whose devices fail, hang, are stopped, reset, repaired and
// taken away by each other, and whose weights change, while another session's
// queues are fed, flushed and reset. Every answer must belong to its request,
// and none may be lost, computed twice or given for a reason that there was not;
// memory stays the same, and no goroutine is left.
func TestSoak(t *testing.T) {
	before := goleak.IgnoreCurrent()
	d := soakTime(t)
	s := newSoak(t)
	s.storm(d / 4)
	warm := heap()
	s.storm(d * 3 / 4)
	end := heap()
	t.Logf("heap %d KB after warming up, %d KB at the end", warm>>10, end>>10)
	require.LessOrEqual(t, end, warm+warm/4+1<<20, "memory grows")
	s.report(d >= 20*time.Second)
	s.calm()
	s.close()
	goleak.VerifyNone(t, before)
}

// heap returns the bytes of the heap that are in use.
func heap() uint64 {
	var m runtime.MemStats
	for range 3 { // finalizers too
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// soak is everything that TestSoak runs. The model computes y = w·x + b. Each
// sample ever asked for has an odd number x of its own, w is a power of two, and
// b and w's sign are a runner's own, so that a result tells which sample, which
// weights and which runner it comes from.
type soak struct {
	t       *testing.T
	sys     *testSystem
	runners []*soaked
	queued  *soakQueue

	numbers atomic.Uint32
	used    [soakNumbers]atomic.Uint32 // how often a test device computed a number

	count [numSoakCounts]atomic.Int64
	over  atomic.Bool // the storm
}

const (
	soakers     = 64
	soakNumbers = 1 << 20 // more than there are at a time
)

// What is counted.
const (
	soakRun = iota
	soakSubmit
	soakSamples
	soakQueueRequest
	soakRight
	soakCanceled
	soakAbandoned
	soakRefused
	soakDevice
	soakStopped
	soakInjected
	soakUpdate
	soakHandOver
	soakReset
	soakFlushed
	soakFault
	soakStop
	soakRepair
	soakQueueReset
	soakQueueFailure
	numSoakCounts
)

var soakNames = [numSoakCounts]string{"run", "submit", "samples", "queue requests", "right", "canceled", "abandoned", "refused", "device errors",
	"stopped", "injected errors", "weight updates", "hand-overs", "resets", "padded batches", "faults", "stops", "repairs", "queue resets", "queue failures"}

// soaked is one runner.
type soaked struct {
	*Runner
	name     string
	replicas int
	counted  bool // its device tells what it computes
	sign     float32
	weights  [3][]byte // of the versions, modulo their number

	begun, done atomic.Int64 // versions of the weights: the newest that may be, and must be, in use
}

var errSoak = errors.New("injected")

// newSoak opens the runners: "pair" has two replicas on devices 0 and 1,
// "guest" shares device 0 with it, and "host" computes on the cpu.
func newSoak(t *testing.T) *soak {
	s := &soak{t: t}
	s.sys = newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, 3), Functions: map[string]iputest.Function{"affine": s.affine}})
	script := iputest.Script{
		Streams: []iputest.Stream{
			iputest.In("h2d_x", "f32", 2), iputest.Out("anchor_d2h_y", "f32", 2),
			iputest.In("h2d_w", "f32", 2), iputest.In("h2d_b", "f32", 2), iputest.Out("weight_d2h_w", "f32", 2),
		},
		Programs: []iputest.Program{
			{Index: loadProgram, Steps: []iputest.Step{iputest.Read("h2d_w"), iputest.Read("h2d_b")}},
			{Index: mainProgram, Steps: []iputest.Step{iputest.Repeat(DeviceIterations,
				iputest.Read("h2d_x"),
				iputest.Call("affine", []string{"h2d_w", "h2d_x", "h2d_b"}, []string{"anchor_d2h_y"}),
				iputest.Write("anchor_d2h_y"),
			)}},
			{Index: saveProgram, Steps: []iputest.Step{
				iputest.Call("copy", []string{"h2d_w"}, []string{"weight_d2h_w"}), iputest.Write("weight_d2h_w"),
			}},
		},
	}
	d0, d1 := s.sys.Device(0), s.sys.Device(1)
	on := []rt.RunnerOption{rt.WithManager(s.sys.Manager()), rt.AutoReset(), rt.WithObserver(s.observe)}
	model := file(t, affineMetadata(), script.Executable(), affineData)
	s.open("pair", 2, true, 1, model, append(on, rt.WithReplicas(2), rt.WithReplicaDevices(map[int]ipu.Device{0: d0, 1: d1}),
		rt.WithBatching(rt.BatchPolicy{Linger: 50 * time.Microsecond}), rt.Timed())...)
	s.open("guest", 1, true, -1, model, append(on, rt.WithDevice(d0))...)
	s.open("host", 1, false, 2, file(t, affineMetadata(), affinePortable(t), affineData),
		rt.WithBackend(portable), rt.WithObserver(s.observe), rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever, Quiet: 20 * time.Microsecond}))
	s.queued = newSoakQueue(s)
	return s
}

func (s *soak) open(name string, replicas int, counted bool, sign float32, model []byte, opts ...rt.RunnerOption) {
	r := &soaked{name: name, replicas: replicas, counted: counted, sign: sign}
	for i := range r.weights {
		w := sign * float32(int(1)<<i)
		r.weights[i] = floats(w, w)
	}
	b := r.bias()
	var err error
	r.Runner, err = Open(context.Background(), affineSpec(s.t), &LoadInputs{B: &B{[2]float32{b, b}}}, genrt.Source{Name: name + ".popef", Bytes: model}, opts...)
	require.NoError(s.t, err)
	require.NoError(s.t, r.UpdateWeights(context.Background(), rt.Weight{Anchor: "h2d_w", Data: r.weights[0]}))
	s.runners = append(s.runners, r)
}

func (r *soaked) bias() float32 { return r.sign / 2 }

// affine is what test devices compute.
func (s *soak) affine(in, out [][]byte) error {
	for i := range 2 {
		x := f32s(in[1], i)
		putF32(out[0], i, f32s(in[0], i)*x+f32s(in[2], i))
		if n := uint32(x); n%2 == 1 { // else it is padding
			s.used[n/2].Add(1)
		}
	}
	return nil
}

func (s *soak) observe(e rt.Event) {
	switch e.Kind {
	case rt.EventHandedOver:
		s.count[soakHandOver].Add(1)
	case rt.EventReset:
		s.count[soakReset].Add(1)
	case rt.EventFlushed:
		s.count[soakFlushed].Add(1)
	}
}

// number returns a sample of its own.
func (s *soak) number() float32 {
	n := s.numbers.Add(1) % soakNumbers
	s.used[n].Store(0)
	return float32(2*n + 1)
}

// storm lets everybody loose for a while.
func (s *soak) storm(d time.Duration) {
	s.over.Store(false)
	stuck := time.AfterFunc(d+time.Minute, func() {
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("a request is lost; goroutines:\n%s", buf[:runtime.Stack(buf, true)]))
	})
	defer stuck.Stop()
	var all, trouble sync.WaitGroup
	for range soakers {
		all.Go(func() { (&soaker{soak: s}).work() })
	}
	for _, f := range []func(){s.weather, s.update, s.queued.reset} {
		trouble.Go(f)
	}
	time.Sleep(d)
	s.over.Store(true)
	trouble.Wait() // it leaves everything in order, without which some could not end
	all.Wait()
	s.sys.ClearLog()
}

// update changes weights.
func (s *soak) update() {
	for !s.over.Load() {
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		r := s.runners[rand.IntN(len(s.runners))]
		version := r.begun.Add(1)
		err := r.UpdateWeights(context.Background(), rt.Weight{Anchor: "h2d_w", Data: r.weights[version%int64(len(r.weights))]})
		if err == nil {
			r.done.Store(version)
			s.count[soakUpdate].Add(1)
			continue
		}
		(&soaker{soak: s}).excuse(context.Background(), r, err, false)
	}
}

// weather is everything that happens to devices.
func (s *soak) weather() {
	faults := []iputest.Fault{iputest.OnRun(mainProgram), iputest.OnTransfer("h2d_x").Nth(2), iputest.OnTransfer("anchor_d2h_y"), iputest.OnTransfer("d2h_y"),
		iputest.OnRun(loadProgram), iputest.OnTransfer("h2d_w"), iputest.OnLoad()}
	causes := []error{
		&ipu.Error{Kind: ipu.KindApplication}, &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset},
		&ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.LinkReset}, &ipu.Error{Kind: ipu.KindUnknown}, errSoak,
	}
	remove := func() {}
	for !s.over.Load() {
		time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
		r := s.runners[rand.IntN(2)]
		session := r.Replica(rand.IntN(r.replicas))
		switch rand.IntN(6) {
		default:
			s.count[soakFault].Add(1)
			remove()
			remove = s.sys.Inject(faults[rand.IntN(len(faults))], causes[rand.IntN(len(causes))])
		case 4: // a program that never ends
			s.count[soakFault].Add(1)
			remove()
			remove = s.sys.Inject(iputest.OnRun(mainProgram), iputest.ErrHang)
			time.Sleep(time.Millisecond)
			remove() // before the stops: they have to end it
			for _, r := range s.runners[:2] {
				for i := range r.replicas {
					s.stop(r.Replica(i))
				}
			}
			s.queued.stop()
		case 5:
			s.stop(session)
		}
		if rand.IntN(3) > 0 {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
			remove()
			s.mend()
		}
	}
	remove()
	s.mend()
}

func (s *soak) stop(session rt.Session) {
	s.count[soakStop].Add(1)
	if err := session.Stop(); err != nil && !errors.Is(err, rt.ErrStopped) && !errors.Is(err, rt.ErrUnbound) {
		s.t.Errorf("stop: %v", err)
	}
}

// mend makes every device and session of the test system work again.
func (s *soak) mend() {
	ctx := context.Background()
	for range 10 {
		broken := false
		for id := range 2 {
			if s.sys.Broken(id) != nil {
				s.count[soakRepair].Add(1)
				s.sys.Repair(id)
			}
		}
		for _, r := range s.runners[:2] {
			for i := range r.replicas {
				session := r.Replica(i)
				if err := session.Run(ctx); !session.Stopped() && (err == nil || errors.Is(err, rt.ErrNilAnchor)) {
					continue // it runs, though without memory
				}
				broken = true
				if err := session.Reload(ctx); err != nil && !errors.Is(err, errSoak) && !errors.As(err, new(*ipu.Error)) {
					s.t.Errorf("reload: %v", err)
				}
			}
		}
		if !broken {
			return
		}
	}
	s.t.Error("devices could not be mended")
}

// report prints what happened, and fails the test if something did not; if it is
// not long enough for all of it, there must be answers at least.
func (s *soak) report(all bool) {
	for i, name := range soakNames {
		n := s.count[i].Load()
		s.t.Logf("%-16s %d", name, n)
		if n == 0 && (all || i == soakRight) {
			s.t.Errorf("no %s", name)
		}
	}
	if v := s.sys.Violations(); len(v) > 0 {
		s.t.Errorf("violations: %q", v)
	}
}

// calm shows that everybody is well after the storm: every runner answers, with
// the newest weights if the last update succeeded.
func (s *soak) calm() {
	ctx := context.Background()
	for _, r := range s.runners {
		version := r.begun.Add(1)
		w := r.weights[version%int64(len(r.weights))]
		require.NoError(s.t, r.UpdateWeights(ctx, rt.Weight{Anchor: "h2d_w", Data: w}))
		r.done.Store(version)
		k := &soaker{soak: s}
		k.renew()
		for i := range r.replicas {
			k.fill()
			err := r.RunOn(ctx, i, k.in, k.out)
			require.NoError(s.t, err)
			k.check(ctx, r, version, err)
			var saved W
			require.NoError(s.t, r.SaveOn(ctx, i, &SaveOutputs{W: &saved}))
			require.Equal(s.t, f32s(w, 0), saved.Data[0])
		}
	}
}

func (s *soak) close() {
	for _, r := range s.runners {
		require.NoError(s.t, r.Close())
		require.ErrorIs(s.t, r.Run(context.Background(), NewInputs(), NewOutputs()), rt.ErrClosed)
	}
	s.queued.close()
	for id := range 2 {
		require.NoError(s.t, s.sys.Device(id).Detach())
	}
}
