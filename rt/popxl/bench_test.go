package popxl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/modelrt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// BenchmarkRun measures what a session adds to a run of a model that computes next to nothing.
func BenchmarkRun(b *testing.B) {
	build := func() (*popxl.Ir, popxl.Input[float32], popxl.Output[float32]) {
		ir := popxl.New("least")
		x := popxl.NewInput[float32](ir, "x", 4)
		return ir, x, popxl.NewOutput("y", ops.Negate(x.Load()))
	}
	in := []float32{1, 2, 3, 4}
	b.Run("session", func(b *testing.B) {
		ir, x, y := build()
		s, err := popxl.NewSession(b.Context(), ir)
		require.NoError(b, err)
		defer s.Close()
		_, err = s.Attach(b.Context())
		require.NoError(b, err)
		ctx, out := b.Context(), y.Make()
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Run(ctx, x.Feed(in), y.Into(out)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("modelrt", func(b *testing.B) {
		ir, _, _ := build()
		m, err := ir.Export(b.Context())
		require.NoError(b, err)
		model, err := m.Load(b.Context(), "least")
		require.NoError(b, err)
		defer model.Close()
		s, err := modelrt.NewSession(b.Context(), model)
		require.NoError(b, err)
		defer s.Close()
		for _, info := range s.Streams() {
			buffer, err := modelrt.NewBuffer(info, 1)
			require.NoError(b, err)
			require.NoError(b, s.Connect(b.Context(), info.Handle, buffer))
		}
		ctx := b.Context()
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Run(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkBuild builds and exports a graph of a thousand operators.
func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		ir := popxl.New("thousand")
		x := popxl.NewInput[float32](ir, "x", 16, 16).Load()
		for range 500 {
			x = ops.Relu(ops.MatMul(x, x))
		}
		popxl.NewOutput("y", x)
		if _, err := ir.Export(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
