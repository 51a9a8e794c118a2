package verify

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// mallocs returns how many times f allocates memory, of several attempts the
// least: what else goes on in the process allocates too.
func mallocs(f func()) uint64 {
	var before, after runtime.MemStats
	least := uint64(math.MaxUint64)
	for range 5 {
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if least = min(least, after.Mallocs-before.Mallocs); least == 0 {
			break
		}
	}
	return least
}

// requests are the ways to ask a model of a file for an answer, as generated
// packages do it; memory holds the inputs and outputs by name.
func requests(t *testing.T, path string, memory map[string][]byte, options ...rt.RunnerOption) (map[string]func() error, error) {
	m, err := popef.Load(path)
	require.NoError(t, err)
	defer m.Close()
	if f, err := family.Of(m); err != nil || f != nil {
		require.NoError(t, err)
		return familyRequests(t, path, f, memory, options...)
	}
	spec := specOf(t, path)
	spec.Batch = 1
	slices.SortStableFunc(spec.Anchors, func(a, b genrt.AnchorSpec) int { return cmp.Compare(a.Role, b.Role) }) // inputs first
	for i := range spec.Anchors {
		spec.Anchors[i].Blocks = 1
	}
	type port struct {
		bind func([]byte) error
		data []byte
	}
	var ports []port
	var core genrt.Core
	bind := func() {
		for _, p := range ports {
			if err := p.bind(p.data); err != nil {
				t.Error(err)
			}
		}
	}
	bindings := func() (all []genrt.Binding) {
		for at, a := range spec.Anchors {
			data := memory[a.Name]
			if data == nil {
				data = make([]byte, a.Bytes*spec.Iterations)
			}
			b := genrt.Binding{Anchor: at}
			if a.Role == genrt.RunInput {
				in := genrt.NewRawInput(len(data))
				b.Stream, ports = in, append(ports, port{in.Bind, data})
			} else {
				out := genrt.NewRawOutput(len(data))
				b.Stream, ports = out, append(ports, port{out.Bind, data})
			}
			all = append(all, b)
		}
		return all
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); require.NoError(t, core.Close()) })
	if err := core.Open(ctx, spec, genrt.Source{Path: path}, bindings, func(replica, _ int) {
		if replica >= 0 {
			bind()
		}
	}, options...); err != nil {
		return nil, err
	}
	ways := map[string]func() error{
		"Run": func() error {
			replica, err := core.Begin(ctx, rt.LeastBusy)
			if err != nil {
				return err
			}
			bind()
			return core.Main(ctx, replica)
		},
		"Submit": func() error {
			slot, err := core.Reserve(ctx, rt.LeastBusy)
			if err != nil {
				return err
			}
			return core.Enqueue(ctx, slot, rt.LeastBusy).Wait(ctx)
		},
	}
	var all []genrt.Samples
	for i, a := range spec.Anchors {
		view := samplesOf[a.Bytes]
		if view == nil || spec.Iterations > 1 {
			return ways, nil
		}
		all = append(all, view(ports[i].data))
	}
	ways["RunSamples"] = func() error { return core.RunSamples(ctx, rt.LeastBusy, all...) }
	return ways, nil
}

// familyRequests is [requests] of a model whose data decides sizes, or that has several.
func familyRequests(t *testing.T, path string, f *family.Family, memory map[string][]byte, options ...rt.RunnerOption) (map[string]func() error, error) {
	spec := specOf(t, path)
	spec.Anchors = nil
	counts := map[string]bool{} // those come with what they count
	for i := range f.Tensors {
		for _, axis := range f.Tensors[i].Axes {
			counts[axis.Count] = true
		}
	}
	var views []genrt.View
	for _, typ := range []popef.TensorType{popef.Input, popef.Output} {
		for i := range f.Tensors {
			x := &f.Tensors[i]
			if x.Type != typ || counts[x.Name] {
				continue
			}
			a := genrt.AnchorSpec{Name: x.Name, GoName: x.Name, Role: genrt.RunInput, Bytes: x.Elem.Size()}
			if typ == popef.Output {
				a.Role = genrt.RunOutput
			}
			last := -1 // what is behind it is of fixed size
			for k, axis := range x.Axes {
				if axis.Sizes != nil || axis.Dim >= 0 || axis.Count != "" {
					a.Open, last = append(a.Open, genrt.OpenAxis{Axis: k, Name: fmt.Sprint("Size", k)}), k
				}
			}
			for _, n := range x.Shape(0, f.Members[0].Sizes)[last+1:] {
				a.Bytes *= int(n)
			}
			spec.Anchors = append(spec.Anchors, a)
			if last >= 0 {
				if typ == popef.Input {
					return nil, fmt.Errorf("input %q has open dimensions", x.Name)
				}
				// The runtime counts elements in it, which are more than bytes.
				sizes, data := make([]int, len(a.Open)), new([]byte)
				views = append(views, genrt.Open(&sizes[0], data))
				continue
			}
			data := memory[x.Name]
			if data == nil {
				data = make([]byte, max(a.Bytes, 1))
			}
			views = append(views, genrt.Whole(unsafe.SliceData(data)))
		}
	}
	var core genrt.Family
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); require.NoError(t, core.Close()) })
	if err := core.OpenFamily(ctx, spec, genrt.Source{Path: path}, func() []genrt.Binding { return nil }, options...); err != nil {
		return nil, err
	}
	return map[string]func() error{
		"Run": func() error { return core.Run(ctx, rt.LeastBusy, views) },
		"Submit": func() error {
			ticket, err := core.Submit(ctx, rt.LeastBusy, true, views)
			if err != nil {
				return err
			}
			return ticket.Wait(ctx)
		},
	}, nil
}

// samplesOf view memory as samples of so many bytes, of types such as generated
// packages declare: those of the public models, as samples of one run each.
var samplesOf = map[int]func([]byte) genrt.Samples{
	4: samples[[4]byte], 8: samples[[8]byte], 12: samples[[12]byte], 16: samples[[16]byte],
	24: samples[[24]byte], 40: samples[[40]byte], 52: samples[[52]byte], 64: samples[[64]byte],
	256: samples[[256]byte], 512: samples[[512]byte], 856: samples[[856]byte], 1024: samples[[1024]byte],
	1028: samples[[1028]byte], 1536: samples[[1536]byte], 2000: samples[[2000]byte], 2048: samples[[2048]byte],
	3136: samples[[3136]byte], 6760: samples[[6760]byte], 7840: samples[[7840]byte], 8192: samples[[8192]byte],
	9600: samples[[9600]byte], 24576: samples[[24576]byte], 32768: samples[[32768]byte], 35360: samples[[35360]byte],
	60544: samples[[60544]byte], 70720: samples[[70720]byte], 102400: samples[[102400]byte], 110592: samples[[110592]byte],
	164560: samples[[164560]byte], 175376: samples[[175376]byte], 181632: samples[[181632]byte], 196608: samples[[196608]byte],
	200704: samples[[200704]byte], 301056: samples[[301056]byte], 409600: samples[[409600]byte], 921600: samples[[921600]byte],
	1486848: samples[[1486848]byte], 1638400: samples[[1638400]byte], 1806336: samples[[1806336]byte], 3906816: samples[[3906816]byte],
}

func samples[S any](b []byte) genrt.Samples {
	return genrt.SamplesOf(unsafe.Slice((*S)(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))/unsafe.Sizeof(*new(S))))
}

// TestPublicModelsAllocateNothing counts what requests to the public models, to
// those one step off what passes look for, and to the goldens allocate, on
// every path; in plain Go, which is slow, to a third of the models.
func TestPublicModelsAllocateNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("the public models take seconds")
	}
	onSlowerPaths(t)
	data := testData(t)
	cases, err := Find([]string{filepath.Join(data, "models"), filepath.Join(data, "cases", "near-miss")}, true)
	require.NoError(t, err)
	kinds := 0
	for i, c := range cases {
		if cpu.Path() == "go" && i%3 != 0 && !everything {
			continue
		}
		name := filepath.Base(c.Dir)
		m, err := onnx.ReadFile(filepath.Join(c.Dir, modelFile))
		require.NoError(t, err)
		r, err := Compile(m, c.Sets[0], compile.Options{})
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		path := filepath.Join(t.TempDir(), name+".popef")
		require.NoError(t, r.WriteFile(path, false))
		n, err := requireSteady(t, name, path, r.Fed)
		require.NoError(t, err, name)
		kinds += n
	}
	if cpu.Path() != "go" {
		require.GreaterOrEqual(t, kinds, 22*3, "kinds of requests: samplesOf lacks the sizes of some model")
	}
	models, err := filepath.Glob(filepath.Join("..", "..", "golden", "internal", "*", "model.yaml"))
	require.NoError(t, err)
	opened := 0
	for _, file := range models {
		if strings.HasPrefix(filepath.Base(filepath.Dir(file)), "error_") {
			continue
		}
		m, err := golden.Read(file)
		require.NoError(t, err)
		paths, err := m.Write(t.TempDir())
		require.NoError(t, err)
		if _, err := requireSteady(t, file, paths[0], nil); err == nil { // other goldens are for other machines, or want weights
			opened++
		}
	}
	require.GreaterOrEqual(t, opened, 3, "goldens that run on the CPU")
}

// requireSteady wants that no kind of request to a model allocates from the
// second on, and returns how many kinds there were. In plain Go, which is slow,
// one kind and one thread will do. The error says why the model can't be opened.
func requireSteady(t *testing.T, name, path string, memory map[string][]byte) (kinds int, err error) {
	all := []string{"1", "2"}
	if cpu.Path() == "go" {
		all = all[:1]
	}
	for _, threads := range all {
		ways, err := requests(t, path, memory, rt.WithEngineOption("threads", threads))
		if err != nil {
			return 0, err
		}
		kinds = len(ways)
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			if cpu.Path() == "go" && way != "Run" {
				continue
			}
			request := func() {
				if err := ways[way](); err != nil {
					t.Fatalf("%s: %s: %v", name, way, err)
				}
			}
			request()
			if n := mallocs(request); n != 0 {
				t.Errorf("%s, %s threads: %s allocates %d times", name, threads, way, n)
			}
		}
	}
	return kinds, nil
}

// TestConformanceModelsAllocateNothing counts what requests to all public tests
// of operators allocate: to half of them on the fastest path, and to an eighth on
// the slower ones, as most of the time goes into compiling.
func TestConformanceModelsAllocateNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("all public tests take seconds")
	}
	onSlowerPaths(t)
	data := filepath.Join(testData(t), "data")
	cases, err := Find([]string{filepath.Join(data, "onnx-node-tests"), filepath.Join(data, "onnx-node-tests-older")}, true)
	require.NoError(t, err)
	every := 2
	if os.Getenv("POPEFGEN_CPU") != "" {
		every = 8
	}
	for i, c := range cases {
		if i%every != 0 && !everything {
			continue
		}
		count := func(ctx context.Context, m *popef.Model, inputs map[string][]byte) (map[string][]byte, error) {
			request := func(s rt.Session) {
				if err := s.Run(ctx); err != nil {
					t.Fatalf("%s: %v", c.Dir, err)
				}
			}
			return withSession(ctx, m, inputs, func(s rt.Session) error {
				request(s)
				if n := mallocs(func() { request(s) }); n != 0 {
					t.Errorf("%s allocates %d times", c.Dir, n)
				}
				return nil
			})
		}
		c.Sets = c.Sets[:1]
		_, err := Run(context.Background(), c, Options{Execute: count})
		require.NoError(t, err)
	}
}

// onSlowerPaths runs a test once more for each path of the kernels that is
// slower than the one that this process takes, in a process of its own.
func onSlowerPaths(t *testing.T) {
	if os.Getenv("POPEFGEN_CPU") != "" {
		return
	}
	paths := []string{"avx512", "avx2", "go"}
	for _, p := range paths[slices.Index(paths, cpu.Path())+1:] {
		t.Run(p, func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run", "^"+strings.TrimSuffix(t.Name(), "/"+p)+"$", "-test.count", "1", fmt.Sprint("-test.short=", testing.Short()))
			c.Env = append(os.Environ(), "POPEFGEN_CPU="+p)
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}
