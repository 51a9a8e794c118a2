package verify

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// familyMembers are as many of the members of a public model as its figures are of.
func familyMembers(dims []string, sizes [][]int64) []compile.Sizes {
	const most = 8
	all := product(dims, sizes)
	return all[max(0, len(all)-most):]
}

// executableOf compiles the members of a public model, as one model.
func executableOf(t testing.TB, model string, members ...compile.Sizes) (r *compile.Result, executable []byte) {
	t.Helper()
	m, err := onnx.ReadFile(filepath.Join(testData(t), "models", model, modelFile))
	if err != nil {
		t.Fatal(err)
	}
	if r, err = compile.Compile(m, compile.Options{Members: members}); err != nil {
		t.Fatal(err)
	}
	p, err := r.Model(model)
	if err != nil {
		t.Fatal(err)
	}
	if executable, err = p.Executable(); err != nil {
		t.Fatal(err)
	}
	return r, executable
}

// openEngine makes an engine and loads it.
func openEngine(t testing.TB, executable []byte) *cpu.Engine {
	t.Helper()
	e, err := cpu.New(ipu.EngineConfig{Executable: executable, Context: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	load(t, e)
	return e
}

// load loads an engine.
func load(t testing.TB, e *cpu.Engine) {
	t.Helper()
	b, err := ipu.Lookup(cpu.Name)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := b.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := devices[0].Attach(); err != nil {
		t.Fatal(err)
	}
	if err := e.Load(t.Context(), devices[0]); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkFamilyOpen opens families of public models, and their largest member alone: the
// metric ms/member is what each further member adds to the best time of its size alone.
func BenchmarkFamilyOpen(b *testing.B) {
	for _, c := range publicFamilies {
		b.Run(c.model, func(b *testing.B) {
			members := familyMembers(c.dims, c.sizes)
			_, family := executableOf(b, c.model, members...)
			_, alone := executableOf(b, c.model, members[len(members)-1])
			least := [2]time.Duration{time.Hour, time.Hour}
			for b.Loop() {
				for i, executable := range [][]byte{family, alone} {
					start := time.Now()
					e := openEngine(b, executable)
					least[i] = min(least[i], time.Since(start))
					if err := e.Close(); err != nil {
						b.Fatal(err)
					}
				}
			}
			ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
			b.ReportMetric(ms(least[0]), "ms/family")
			b.ReportMetric(ms(least[1]), "ms/alone")
			b.ReportMetric(ms(least[0]-least[1])/float64(len(members)-1), "ms/member")
			b.ReportMetric(0, "ns/op")
		})
	}
}
