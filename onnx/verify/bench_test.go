package verify

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// BenchmarkPublicModels runs the public models on their first data set, with
// one thread and with two.
func BenchmarkPublicModels(b *testing.B) {
	cases, err := Find([]string{filepath.Join(testData(b), "models")}, true)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range cases {
		for threads := 1; threads <= 2; threads++ {
			b.Run(fmt.Sprintf("%s/threads=%d", filepath.Base(c.Dir), threads), func(b *testing.B) {
				m, err := onnx.ReadFile(filepath.Join(c.Dir, modelFile))
				if err != nil {
					b.Fatal(err)
				}
				r, err := Compile(m, c.Sets[0], compile.Options{})
				if err != nil {
					b.Fatal(err)
				}
				model, err := r.Model(filepath.Base(c.Dir))
				if err != nil {
					b.Fatal(err)
				}
				defer model.Close()
				benchmarkModel(b, model, r.Fed, threads)
			})
		}
	}
}

func benchmarkModel(b *testing.B, model *popef.Model, inputs map[string][]byte, threads int) {
	ctx := context.Background()
	s, err := modelrt.NewSession(ctx, model, rt.WithThreads(threads))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, a := range append(s.UserInputs(), s.UserOutputs()...) {
		info, ok := s.Stream(a.Handle)
		if !ok {
			b.Fatalf("no stream %q", a.Handle)
		}
		mem, err := modelrt.NewBuffer(info, s.DeviceIterations())
		if err != nil {
			b.Fatal(err)
		}
		copy(mem.Bytes(), inputs[a.Name])
		if err := s.Connect(ctx, a.Handle, mem); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Run(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
