//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// requestBytes is the size of the inputs and of the output of requests that are measured.
const requestBytes = 4096

// requests makes n requests one after the other, and returns the median and the 99th percentile.
func requests(t testing.TB, e *poplar.Engine, n int) (median, p99 time.Duration) {
	ctx := context.Background()
	in, other, out := rings(t, e, requestBytes, 1)
	took := make([]time.Duration, n)
	for i := range took {
		in.rewind()
		other.rewind()
		out.rewind()
		start := time.Now()
		if err := e.Run(ctx, 1); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[n/2], took[n*99/100]
}

// flight makes n requests with all slots in use, and returns how many a second.
func flight(t testing.TB, e *poplar.Engine, n int) float64 {
	ctx := context.Background()
	rings(t, e, requestBytes, 1)
	slots := newSlots(requestBytes, 1, 0)
	start := time.Now()
	for k := range n + len(slots) {
		i := k % len(slots)
		if k >= len(slots) {
			if err := e.RunStaged(ctx, 1, i); err != nil {
				t.Fatal(err)
			}
			if err := e.Unstage(ctx, 1, i); err != nil {
				t.Fatal(err)
			}
		}
		if k < n {
			if err := e.Stage(ctx, 1, i, slots[i].in, slots[i].out); err != nil {
				t.Fatal(err)
			}
		}
	}
	return float64(n) / time.Since(start).Seconds()
}

// allocating calls f while four goroutines allocate without pause, each of which keeps the last of its blocks of some size.
func allocating(keep, size int, f func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			kept := make([][]byte, keep)
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					kept[i%keep] = make([]byte, size)
				}
			}
		})
	}
	f()
	close(done)
	all.Wait()
}

// BenchmarkRequest makes requests of 4 KiB in and out through rings: alone, while goroutines allocate without pause, and
// with all slots in use.
func BenchmarkRequest(b *testing.B) {
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	for _, name := range []string{"idle", "allocating", "in flight"} {
		b.Run(name, func(b *testing.B) {
			e, d := engineOf(b, adder(requestBytes, 1, 2))
			b.ResetTimer()
			switch name {
			case "in flight":
				flight(b, e, b.N)
			case "idle":
				median, p99 := requests(b, e, b.N)
				b.ReportMetric(micro(median), "µs-p50")
				b.ReportMetric(micro(p99), "µs-p99")
			default:
				allocating(64, 16<<10, func() {
					median, p99 := requests(b, e, b.N)
					b.ReportMetric(micro(median), "µs-p50")
					b.ReportMetric(micro(p99), "µs-p99")
				})
			}
			b.StopTimer()
			require.NoError(b, e.Close())
			require.NoError(b, d.Detach())
		})
	}
}

var (
	against = flag.String("against", "", "the program of testdata/bench.cpp, which TestAgainstCpp compares with")
	rounds  = flag.Int("rounds", 5, "of TestAgainstCpp")
)

// runnerProgram generates the package of an adder as users generate theirs, and builds testdata/runner, which makes requests to it.
func runnerProgram(t *testing.T) string {
	const dir = "../../build/poplar/bench/testdata/" // which ./... leaves out
	require.NoError(t, os.MkdirAll(dir, 0o777))
	c := adder(requestBytes, 1, 2)
	meta := popef.Metadata{Executable: c.Name, NumIPUs: 1, ReplicationFactor: 1, DeviceIterations: 1, IsInference: true, ProgramFlow: popef.ProgramFlow{Main: []uint32{1}}}
	for _, s := range c.Streams[1:4] { // a, b and y
		a := popef.Anchor{Name: s.Handle, Handle: s.Handle, Type: popef.Input, Info: popef.TensorInfo{DataType: popef.F32, Shape: s.Shape}, Programs: []uint32{1}}
		if s.Direction == ipu.DeviceToHost {
			a.Type = popef.Output
		}
		meta.Anchors = append(meta.Anchors, a)
	}
	var b popeftest.Buffer
	w := popef.NewWriter(&b)
	require.NoError(t, w.WriteMetadata(&meta))
	exe, err := w.CreateExecutable(c.Name, false)
	require.NoError(t, err)
	_, err = exe.Write(c.Executable)
	require.NoError(t, err)
	require.NoError(t, exe.Close())
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(dir+"adder.popef", b.Bytes(), 0o666))
	for _, args := range [][]string{
		{"run", "../../cmd/popefgen", "generate", "-m", dir + "adder.popef", "-o", dir + "adder", "--queue", "16", "--embed", "--quiet"},
		{"build", "-tags", "poplar,poplarfake", "-o", dir + "runner", "./testdata/runner"},
	} {
		out, err := exec.Command("go", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir + "runner"
}

// TestAgainstCpp measures requests in turns with a C++ program that drives the fake with the same rings, and prints what each
// took at best, those to an engine and to a generated package: make poplar-bench.
func TestAgainstCpp(t *testing.T) {
	if *against == "" {
		t.Skip("it measures: make poplar-bench")
	}
	measure := func(program string, args ...string) []float64 {
		out, err := exec.Command(program, args...).Output()
		require.NoError(t, err)
		var all []float64
		for _, w := range strings.Fields(string(out)) {
			v, err := strconv.ParseFloat(w, 64)
			require.NoError(t, err)
			all = append(all, v)
		}
		return all
	}
	runner := runnerProgram(t)
	e, _ := engineOf(t, adder(requestBytes, 1, 2))
	const n = 20000
	most := time.Duration(1 << 62)
	here, hereP99, busy, busyP99, there, thereP99 := most, most, most, most, most, most
	large, typed, typedP99 := most, most, most
	var flown, theirs, submitted float64
	for range *rounds {
		v := measure(*against, "request", strconv.Itoa(n))
		there, thereP99 = min(there, time.Duration(v[0])), min(thereP99, time.Duration(v[1]))
		v = measure(runner, "request", strconv.Itoa(n))
		typed, typedP99 = min(typed, time.Duration(v[0])), min(typedP99, time.Duration(v[1]))
		theirs = max(theirs, measure(*against, "flight", strconv.Itoa(n))[0])
		submitted = max(submitted, measure(runner, "flight", strconv.Itoa(n))[0])
		m, p := requests(t, e, n)
		here, hereP99 = min(here, m), min(hereP99, p)
		flown = max(flown, flight(t, e, n))
		allocating(64, 16<<10, func() {
			m, p := requests(t, e, n/4)
			busy, busyP99 = min(busy, m), min(busyP99, p)
		})
		allocating(1024, 16<<10, func() {
			_, p := requests(t, e, n/4)
			large = min(large, p)
		})
	}
	in, other, out := rings(t, e, requestBytes, 1)
	request := func() {
		in.rewind()
		other.rewind()
		out.rewind()
		if err := e.Run(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
	}
	calls := runtime.NumCgoCall()
	allocs := testing.AllocsPerRun(1000, request)
	calls = runtime.NumCgoCall() - calls
	time.Sleep(100 * time.Millisecond)
	idle := turns(t)
	time.Sleep(time.Second)
	idle = turns(t) - idle
	ratio := func(a, b time.Duration) float64 { return float64(a) / float64(b) }
	fmt.Printf("best of %d rounds of %d requests, 4 KiB in (twice) and out, GOMAXPROCS %d\n", *rounds, n, runtime.GOMAXPROCS(0))
	fmt.Printf("one after the other:   median %v, C++ %v: %.2f; p99 %v, C++ %v\n", here, there, ratio(here, there), hereP99, thereP99)
	fmt.Printf("generated package:     median %v: %.2f; p99 %v; 16 submitted %.0f a second: %.2f\n", typed, ratio(typed, there), typedP99, submitted, submitted/theirs)
	fmt.Printf("16 in flight:          %.0f a second, C++ %.0f: %.2f\n", flown, theirs, flown/theirs)
	fmt.Printf("four allocate 16 KiB:  median %v, p99 %v: %.1f of the p99 alone with 4 MiB kept, %.1f with 64 MiB\n", busy, busyP99, ratio(busyP99, hereP99), ratio(large, hereP99))
	fmt.Printf("in steady state:       %d calls through cgo in 1001 requests, %v allocations in one\n", calls, allocs)
	fmt.Printf("idle:                  the engine's thread ran %d times in a second\n", idle)
}
