package iputest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/popefgen/popefgen/ipu"
)

// suiteRun is one test of a suite.
type suiteRun struct {
	*testing.T
	suite   Suite
	journal *journal
}

// engine makes an engine that is closed when the test ends.
func (r *suiteRun) engine() ipu.Engine {
	r.Helper()
	e, err := r.suite.Backend.NewEngine(ipu.EngineConfig{Name: "suite", Executable: r.suite.Executable, Options: r.suite.Options})
	if err != nil {
		r.Fatalf("make an engine: %v", err)
	}
	r.Cleanup(func() { r.ok(e.Close(), "close") })
	return e
}

// device returns a device that is attached until the test ends.
func (r *suiteRun) device() ipu.Device {
	r.Helper()
	d := r.detached()
	ok, err := d.Attach()
	if err != nil || !ok {
		r.Fatalf("attach the device: %v, %v", ok, err)
	}
	r.Cleanup(func() { r.ok(d.Detach(), "detach") })
	return d
}

func (r *suiteRun) detached() ipu.Device {
	r.Helper()
	if r.suite.Device != nil {
		return r.suite.Device(r.T)
	}
	all, err := r.suite.Backend.Devices(context.Background())
	if err != nil || len(all) == 0 {
		r.Fatalf("enumerate devices: %d, %v", len(all), err)
	}
	return all[0]
}

// loaded returns an engine on a device.
func (r *suiteRun) loaded() (ipu.Engine, ipu.Device) {
	r.Helper()
	d := r.device()
	e := r.engine()
	r.ok(e.Load(context.Background(), d), "load")
	return e, d
}

func (r *suiteRun) ok(err error, doing string) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", doing, err)
	}
}

// is checks that err wraps target and says all of words.
func (r *suiteRun) is(err, target error, doing string, words ...string) {
	r.Helper()
	if !errors.Is(err, target) {
		r.Fatalf("%s: got error %v, want one that wraps %q", doing, err, target)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			r.Errorf("%s: the error %q does not tell %s", doing, err, w)
		}
	}
}

func (r *suiteRun) equal(got, want []float32, what string) {
	r.Helper()
	if !slices.Equal(got, want) {
		r.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// in returns an input that is fetched.
func (r *suiteRun) in(handle string, items ...[]byte) *suiteStream {
	return &suiteStream{j: r.journal, handle: handle, items: items}
}

// out returns an output that is fetched.
func (r *suiteRun) out(handle string) *suiteStream {
	return &suiteStream{j: r.journal, handle: handle}
}

// model is the host's side of the suite's model.
type model struct {
	w, a, b, sum, state *suiteStream
}

var (
	suiteW = vector(2, 3, 0.5, -1)
	suiteA = vector(1, 2, 3, 4)
	suiteB = vector(10, 20, 30, 40)
	// suiteSum is (a+b)·w.
	suiteSum = []float32{22, 66, 16.5, -44}
)

// connect connects streams that are fetched to all handles.
func (r *suiteRun) connect(e ipu.Engine) *model {
	r.Helper()
	m := &model{r.in("w", suiteW), r.in("a", suiteA), r.in("b", suiteB), r.out("sum"), r.out("state")}
	for _, s := range []*suiteStream{m.w, m.a, m.b, m.sum, m.state} {
		r.ok(e.Connect(s.handle, s), "connect")
	}
	return m
}

// run runs a program that must succeed.
func (r *suiteRun) run(e ipu.Engine, programs ...int) {
	r.Helper()
	for _, p := range programs {
		r.ok(e.Run(context.Background(), p), "run")
	}
}

// works checks that an engine computes, from loading the weights on.
func (r *suiteRun) works(e ipu.Engine) {
	r.Helper()
	m := r.connect(e)
	r.run(e, 0, 1)
	if len(m.sum.got) != 1 {
		r.Fatalf("a run delivered %d outputs, want 1", len(m.sum.got))
	}
	r.equal(elements(m.sum.got[0]), suiteSum, "sum")
}

// patience is how long something may take that is to happen soon.
var patience = 10 * time.Second

// within fails the test if done takes long.
func (r *suiteRun) within(done <-chan error, what string) error {
	r.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		r.Fatalf("%s takes longer than %v", what, patience)
		return nil
	}
}

// goroutines waits until there are no more goroutines than n.
func (r *suiteRun) goroutines(n int) {
	r.Helper()
	for end := time.Now().Add(patience / 5); runtime.NumGoroutine() > n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.Errorf("%d goroutines are left, want %d", runtime.NumGoroutine(), n)
			return
		}
	}
}
