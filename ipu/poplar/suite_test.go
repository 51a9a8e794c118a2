//go:build poplar && linux && cgo

package poplar_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// modelVariable names the file of the model that TestModel runs.
const modelVariable = "POPLAR_MODEL"

func backend(t testing.TB) ipu.Backend {
	b, err := ipu.Lookup(poplar.Name)
	require.NoError(t, err)
	return b
}

// someModel is a model in a session, with memory for all that a caller moves.
type someModel struct {
	rt.Session
	inputs, outputs map[string]*modelrt.Buffer
}

// opened tells that the process has had a device for the model: from then on there has to be one.
var opened bool

// openModel opens a model, of several sizes the first, on a device of its own.
func openModel(t testing.TB, m *popef.Model, opts ...modelrt.SessionOption) *someModel {
	t.Helper()
	if f, err := family.Of(m); err == nil && f != nil {
		m = f.Single(m, 0)
	}
	s, err := modelrt.NewSession(context.Background(), m, opts...)
	if os.Getenv(modelVariable) != "" && !opened && (errors.Is(err, ipu.ErrNoDevice) || errors.Is(err, ipu.ErrWrongBackend)) {
		t.Skip(err)
	}
	require.NoError(t, err)
	opened = true
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	d := &someModel{s, map[string]*modelrt.Buffer{}, map[string]*modelrt.Buffer{}}
	c := s.Contract()
	for i := range c.Anchors {
		switch a := &c.Anchors[i]; {
		case a.Role == contract.RunInput, a.Role == contract.LoadInput, a.Role == contract.Seed && !a.HasData:
			d.connect(t, d.inputs, a)
		case a.Role == contract.RunOutput:
			d.connect(t, d.outputs, a)
		}
	}
	return d
}

func (d *someModel) connect(t testing.TB, to map[string]*modelrt.Buffer, a *contract.Anchor) {
	t.Helper()
	info, ok := d.Stream(a.Handle)
	require.True(t, ok, "the executable has no stream %q, which anchor %q names", a.Handle, a.Name)
	c := d.Contract()
	b, err := modelrt.NewBuffer(info, c.Transfers(a))
	require.NoError(t, err)
	require.NoError(t, d.Connect(context.Background(), a.Handle, b))
	to[a.Handle] = b
}

// fill has the inputs hold what follows from seed alone: small numbers where they are float32, 0 and 1 where they are anything else.
func (d *someModel) fill(seed uint64) {
	for _, handle := range sortedKeys(d.inputs) {
		info, _ := d.Stream(handle)
		data, r := d.inputs[handle].Bytes(), rand.New(rand.NewPCG(seed, 7))
		if info.Type == "f32" {
			for ; len(data) >= 4; data = data[4:] {
				binary.LittleEndian.PutUint32(data, math.Float32bits(float32(r.NormFloat64())))
			}
			continue
		}
		elements := 1
		for _, n := range info.Shape {
			elements *= int(n)
		}
		size := max(1, info.Bytes/max(1, elements))
		clear(data)
		for ; len(data) >= size; data = data[size:] {
			data[0] = byte(r.IntN(2))
		}
	}
}

// run returns what the model answers to the inputs of a seed.
func (d *someModel) run(t testing.TB, seed uint64) map[string][]byte {
	t.Helper()
	d.fill(seed)
	for _, b := range d.outputs { // what is not written shows
		for i := range b.Bytes() {
			b.Bytes()[i] = 0xA5
		}
	}
	require.NoError(t, d.Run(context.Background()))
	return d.answers()
}

// answers returns a copy of the outputs.
func (d *someModel) answers() map[string][]byte {
	all := map[string][]byte{}
	for handle, b := range d.outputs {
		all[handle] = bytes.Clone(b.Bytes())
	}
	return all
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// waiting connects an input that waits until the run's context ends, and returns a channel that is closed when it was asked.
func (d *someModel) waiting(t *testing.T) (handle string, asked chan struct{}) {
	handles := slices.DeleteFunc(sortedKeys(d.inputs), func(h string) bool { return d.Contract().Anchor(h).Role != contract.RunInput })
	if len(handles) == 0 {
		t.Skip("the model has no input of runs")
	}
	asked = make(chan struct{}, 1)
	require.NoError(t, modelrt.SetCallback(t.Context(), d, handles[0], func(ctx context.Context, _ []byte) error {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}))
	return handles[0], asked
}

// begun runs in another goroutine, and returns once an input waits. It gives up after a minute.
func (d *someModel) begun(t *testing.T, ctx context.Context, asked chan struct{}) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	select {
	case <-asked:
	case err := <-ended:
		require.NoError(t, err)
		t.Fatal("the run ended without its input")
	case <-time.After(time.Minute):
		t.Fatal("the input was not asked for within a minute")
	}
	return ended
}

// endOf waits for the end of a run that has to end.
func endOf(t *testing.T, ended chan error) error {
	t.Helper()
	begun := time.Now()
	select {
	case err := <-ended:
		t.Logf("the run ended %v later: %v", time.Since(begun).Round(time.Microsecond), err)
		require.Error(t, err, "a run without its input succeeded")
		return err
	case <-time.After(time.Minute):
		t.Fatal("the run did not end within a minute")
		return nil
	}
}

// modelParts are what is tried with a model on a device. Each begins with nothing open.
var modelParts = []struct {
	name string
	try  func(t *testing.T, m *popef.Model)
}{
	{"streams", func(t *testing.T, m *popef.Model) {
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		t.Logf("device: %s; Poplar %s, package hash %s", d.Device().Info().Description, poplar.Version(), poplar.PackageHash())
		for _, s := range d.Streams() {
			t.Logf("stream %q: %v, %d bytes, programs %v", s.Handle, s.Direction, s.Bytes, s.Programs)
			require.NotEqual(t, "unknown", s.Type, "stream %q is in the executable and not in the metadata", s.Handle)
		}
		open, err := d.Unconnected(t.Context(), mainPrograms(d)...)
		require.NoError(t, err)
		require.Empty(t, open)
	}},
	{"same answers twice", func(t *testing.T, m *popef.Model) {
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		first := d.run(t, 1)
		d.run(t, 2)
		require.Equal(t, first, d.run(t, 1), "a model whose answers follow from its inputs alone")
	}},
	{"same answers after loading again", func(t *testing.T, m *popef.Model) {
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		want := d.run(t, 1)
		require.NoError(t, d.Reload(t.Context()))
		require.Equal(t, want, d.run(t, 1))
		require.NoError(t, d.Unload(t.Context()))
		require.NoError(t, d.Reload(t.Context()))
		require.Equal(t, want, d.run(t, 1))
	}},
	{"same answers through callbacks", func(t *testing.T, m *popef.Model) {
		want := openModel(t, m, rt.WithBackend(poplar.Name))
		answers := want.run(t, 1)
		require.NoError(t, want.Close())
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		for _, all := range []map[string]*modelrt.Buffer{d.inputs, d.outputs} {
			for handle, b := range all {
				require.NoError(t, d.Connect(t.Context(), handle, &modelrt.Callback{OnFetch: b.Fetch, OnPrefetch: b.Prefetch, OnComplete: b.Complete, OnInvalidate: b.InvalidatePrefetched}))
			}
		}
		d.fill(1)
		require.NoError(t, d.Run(t.Context()))
		require.Equal(t, answers, d.answers())
	}},
	{"same answers with transfers ahead of time", func(t *testing.T, m *popef.Model) {
		one := openModel(t, m, rt.WithBackend(poplar.Name))
		want := one.run(t, 1)
		require.NoError(t, one.Close())
		d := openModel(t, m, rt.WithBackend(poplar.Name), rt.WithLookAhead(2))
		for range 3 {
			require.Equal(t, want, d.run(t, 1))
		}
	}},
	{"latency", func(t *testing.T, m *popef.Model) {
		begun := time.Now()
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		opened := time.Since(begun)
		d.run(t, 1)
		t.Logf("open %v, load and first run %v", opened.Round(time.Microsecond), (time.Since(begun) - opened).Round(time.Microsecond))
		var took []time.Duration
		for end := time.Now().Add(time.Second); time.Now().Before(end) || len(took) < 10; {
			at := time.Now()
			require.NoError(t, d.Run(t.Context()))
			took = append(took, time.Since(at))
		}
		slices.Sort(took)
		t.Logf("%d runs: fastest %v, median %v, p99 %v, slowest %v", len(took), took[0], took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
		t.Logf("a run allocates %v times", testing.AllocsPerRun(20, func() { require.NoError(t, d.Run(t.Context())) }))
	}},
	{"a run that is cancelled", func(t *testing.T, m *popef.Model) {
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		want := d.run(t, 1)
		handle, asked := d.waiting(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := d.begun(t, ctx, asked)
		cancel()
		require.ErrorIs(t, endOf(t, ended), context.Canceled)
		d.again(t, handle, want)
	}},
	{"a run that is stopped", func(t *testing.T, m *popef.Model) {
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		want := d.run(t, 1)
		handle, asked := d.waiting(t)
		ended := d.begun(t, t.Context(), asked)
		require.NoError(t, d.Stop())
		require.ErrorIs(t, endOf(t, ended), ipu.ErrStopped)
		d.again(t, handle, want)
	}},
	{"an input that fails", func(t *testing.T, m *popef.Model) {
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		want := d.run(t, 1)
		handle, _ := d.waiting(t)
		broken := errors.New("there is no data")
		require.NoError(t, modelrt.SetCallback(t.Context(), d, handle, func(context.Context, []byte) error { return broken }))
		ended := make(chan error, 1)
		go func() { ended <- d.Run(t.Context()) }()
		require.ErrorIs(t, endOf(t, ended), broken)
		d.again(t, handle, want)
	}},
	{"closing while it runs", func(t *testing.T, m *popef.Model) {
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		want := d.run(t, 1)
		id := d.Device().Info().ID
		_, asked := d.waiting(t)
		ended := d.begun(t, t.Context(), asked)
		require.NoError(t, d.Close())
		require.ErrorIs(t, endOf(t, ended), rt.ErrClosed)
		next := openModel(t, m, rt.WithBackend(poplar.Name), rt.WithDeviceID(id))
		require.Equal(t, want, next.run(t, 1), "the next to get the device")
	}},
	{"a device that is taken", func(t *testing.T, m *popef.Model) {
		d := openModel(t, m, rt.WithBackend(poplar.Name))
		all, err := backend(t).Devices(t.Context())
		require.NoError(t, err)
		i := slices.IndexFunc(all, func(o ipu.Device) bool { return o.Info().ID == d.Device().Info().ID })
		require.GreaterOrEqual(t, i, 0, "the device is not among those that there are")
		ok, err := all[i].Attach()
		require.NoError(t, err)
		require.False(t, ok, "it was attached twice")
		require.NoError(t, d.Close())
		ok, err = all[i].Attach()
		require.NoError(t, err)
		require.True(t, ok, "it was not given back")
		require.NoError(t, all[i].Detach())
	}},
	{"another package hash", func(t *testing.T, m *popef.Model) {
		exe, err := m.Executable()
		require.NoError(t, err)
		changed, hash := bytes.Clone(exe), poplar.PackageHash()
		at := bytes.Index(changed, []byte(hash))
		if hash == "" || at < 0 {
			t.Skipf("the executable does not have the package hash %q as text", hash)
		}
		changed[at] ^= 1 // another digit
		_, err = backend(t).NewEngine(ipu.EngineConfig{Name: "changed", Executable: changed})
		require.ErrorIs(t, err, ipu.ErrPackageHash)
		t.Log(err)
	}},
	{"an executable that is cut short", func(t *testing.T, m *popef.Model) {
		exe, err := m.Executable()
		require.NoError(t, err)
		_, err = backend(t).NewEngine(ipu.EngineConfig{Name: "cut", Executable: exe[:len(exe)/2]})
		require.Error(t, err)
		t.Log(err)
	}},
	{"an option that nobody knows", func(t *testing.T, m *popef.Model) {
		_, err := modelrt.NewSession(t.Context(), m, rt.WithBackend(poplar.Name), rt.WithEngineOption("popefgen.noSuchOption", "1"))
		require.ErrorIs(t, err, ipu.ErrInvalidOption)
		t.Log(err)
	}},
	{"what opening and closing leave", func(t *testing.T, m *popef.Model) {
		once := func() {
			d := openModel(t, m, rt.WithBackend(poplar.Name))
			d.run(t, 1)
			require.NoError(t, d.Close())
		}
		held := func() (files, threads int) {
			f, err := os.ReadDir("/proc/self/fd")
			require.NoError(t, err)
			tasks, err := os.ReadDir("/proc/self/task")
			require.NoError(t, err)
			return len(f), len(tasks)
		}
		const rounds = 8
		for range 3 {
			once()
		}
		files, threads := held()
		for range rounds {
			once()
		}
		after, threadsAfter := held()
		t.Logf("after 3 times %d descriptors and %d threads, after %d more %d and %d", files, threads, rounds, after, threadsAfter)
		require.Less(t, after, files+rounds, "descriptors")
		require.Less(t, threadsAfter, threads+rounds, "threads")
	}},
}

// again runs with an input's own data after a run that failed.
func (d *someModel) again(t *testing.T, handle string, want map[string][]byte) {
	t.Helper()
	require.NoError(t, d.Connect(t.Context(), handle, d.inputs[handle]))
	d.fill(1)
	if err := d.Run(t.Context()); err != nil {
		t.Log("it has to be loaded again: ", err)
		require.NoError(t, d.Reload(t.Context()))
	}
	require.Equal(t, want, d.run(t, 1))
}

func mainPrograms(s rt.Session) []int {
	var all []int
	for _, p := range s.Contract().Flow.Main {
		all = append(all, int(p))
	}
	return all
}

// TestModel tries a model on a device, the one that POPLAR_MODEL names: whoever has an IPU runs it (make poplar-check), and each
// part is a line of the report. Nothing of it knows what the model computes.
func TestModel(t *testing.T) {
	named := os.Getenv(modelVariable)
	if named == "" {
		t.Skip(modelVariable + " names no model")
	}
	for _, p := range modelParts {
		t.Run(p.name, func(t *testing.T) {
			m, err := popef.Load(named)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, m.Close()) })
			p.try(t, m)
		})
	}
}

// TestModelParts prints the parts of TestModel, one a line, for the report, which gives each a process of its own.
func TestModelParts(t *testing.T) {
	for _, p := range modelParts {
		require.NotContains(t, p.name, "_", "it stands for a space")
		t.Log("part: " + p.name)
	}
}
