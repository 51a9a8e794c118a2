package dynamic_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/serve/dynamic"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

var digits = filepath.Join("..", "..", "generated_examples", "digits")

// specText shows what callers see of a model.
func specText(s *oip.Spec) string {
	var b strings.Builder
	fmt.Fprintf(&b, "samples %d\n", s.Samples)
	for _, t := range s.Inputs {
		fmt.Fprintf(&b, "in %s %s %s\n", t.Name, t.Type, wire.Shape(&t))
	}
	for _, t := range s.Outputs {
		fmt.Fprintf(&b, "out %s %s %s\n", t.Name, t.Type, wire.Shape(&t))
	}
	return b.String()
}

// TestGoldenModels opens the models of the generator's goldens: what is served of each, or why none of it is.
func TestGoldenModels(t *testing.T) {
	for _, c := range []struct{ name, spec, err string }{
		{name: "family_samples", spec: "samples 0\nin x FP32 [-1,3] of at most [6,3]\nin z FP32 [1,-1] of at most [1,6]\nout y FP32 [-1,2] of at most [6,2]\nout twice FP32 [1,-1] of at most [1,6]\n"},
		{name: "load_inputs", err: "load_inputs: the model can not be served: its file has no data for anchor"},
		{name: "fused", err: "serve: the model is fused of several models"},
		{name: "types", err: "the protocol has no type for elements of F8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := golden.Read(filepath.Join("..", "..", "golden", "internal", c.name, "model.yaml"))
			require.NoError(t, err)
			paths, err := m.Write(t.TempDir())
			require.NoError(t, err)
			served, err := dynamic.Open(t.Context(), paths, dynamic.WithName(c.name))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.ErrorIs(t, err, dynamic.ErrUnserved)
				return
			}
			require.NoError(t, err)
			defer func() { require.NoError(t, served.Shutdown(context.Background())) }()
			require.Equal(t, c.spec, specText(served.Spec()))
		})
	}
}

// TestSpecs compiles the digits for some sizes: what callers see of each.
func TestSpecs(t *testing.T) {
	for batch, want := range map[string]string{
		"1":   "samples 0\nin image FP32 [1,1,8,8]\nout probabilities FP32 [1,10]\n",
		"4":   "samples 4\nin image FP32 [-1,1,8,8] of at most [4,1,8,8]\nout probabilities FP32 [-1,10] of at most [4,10]\n",
		"1,6": "samples 6\nin image FP32 [-1,1,8,8] of at most [6,1,8,8]\nout probabilities FP32 [-1,10] of at most [6,10]\n",
	} {
		served := openDigits(t, dynamic.WithCompile(dynamic.Compile{Batch: batch}), dynamic.WithReplicas(2))
		require.Equal(t, want, specText(served.Spec()), batch)
		require.Equal(t, 2*max(1, served.Spec().Samples), served.Parallel())
		require.Equal(t, "digits", served.Spec().Name)
	}
}

func openDigits(t *testing.T, opts ...dynamic.Option) *dynamic.Model {
	t.Helper()
	served, err := dynamic.Open(t.Context(), []string{filepath.Join(digits, "digits.onnx")}, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, served.Shutdown(context.Background())) })
	return served
}

// TestSharedBatches has callers with requests of random sizes share batches of every kind of model: each gets its own answers, those
// of the model of one sample up to rounding.
func TestSharedBatches(t *testing.T) {
	one := openDigits(t, dynamic.WithCompile(dynamic.Compile{Batch: "1"}), dynamic.WithReplicas(1)).NewCall()
	const images = 64
	in, want := make([][]byte, images), make([][]float32, images)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range in {
		mem, err := one.Input(0, []int64{1, 1, 8, 8})
		require.NoError(t, err)
		for k := 0; k < len(mem); k += 4 {
			binary.LittleEndian.PutUint32(mem[k:], math.Float32bits(random.Float32()))
		}
		in[i] = bytes.Clone(mem)
		require.NoError(t, one.Run(t.Context()))
		data, _ := one.Output(0)
		want[i] = floats(data)
	}
	for _, batch := range []string{"4", "1,4,6", "16"} {
		served := openDigits(t, dynamic.WithCompile(dynamic.Compile{Batch: batch}), dynamic.WithReplicas(2))
		var all sync.WaitGroup
		for caller := range 8 {
			all.Go(func() {
				random, call := rand.New(rand.NewPCG(uint64(caller), 3)), served.NewCall()
				for range 30 {
					n := 1 + random.IntN(served.Spec().Samples)
					mem, err := call.Input(0, []int64{int64(n), 1, 8, 8})
					if err != nil {
						t.Error(err)
						return
					}
					which := make([]int, n)
					for i := range which {
						which[i] = random.IntN(images)
						copy(mem[i*256:], in[which[i]])
					}
					if err := call.Run(context.Background()); err != nil {
						t.Error(err)
						return
					}
					data, shape := call.Output(0)
					if len(shape) != 2 || shape[0] != int64(n) || shape[1] != 10 {
						t.Errorf("shape %v of %d samples", shape, n)
						return
					}
					for i, w := range which {
						for k, x := range floats(data[i*40:][:40]) {
							if math.Abs(float64(x-want[w][k])) > 1e-5 {
								t.Errorf("sample %d of %d, class %d: %g, want %g", i, n, k, x, want[w][k])
							}
						}
					}
				}
			})
		}
		all.Wait()
	}
}

func floats(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

// TestSizesThatNoMemberTakes asks for a size that is between those of a model, and may not be padded.
func TestSizesThatNoMemberTakes(t *testing.T) {
	path := filepath.Join(publicData(t), "models", "t5_encoder_small", "model.onnx")
	served, err := dynamic.Open(t.Context(), []string{path}, dynamic.WithCompile(dynamic.Compile{Dims: []string{"batch=1,2", "tokens=7,32"}}))
	require.NoError(t, err)
	defer func() { require.NoError(t, served.Shutdown(context.Background())) }()
	call := served.NewCall()
	for i := range served.Spec().Inputs {
		_, err := call.Input(i, []int64{1, 9})
		require.NoError(t, err)
	}
	err = call.Run(t.Context())
	var known *oip.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, oip.InvalidArgument, known.Code)
	require.ErrorContains(t, err, "7 and 32")
}

// TestWarm runs a model on its goldens before it is served, and finds one whose weights are others.
func TestWarm(t *testing.T) {
	path := filepath.Join(digits, "classifier", "digits.popef")
	goldens := dynamic.GoldensOf(path)
	require.Equal(t, filepath.Join(digits, "classifier", "testdata", "golden"), goldens)
	for _, copied := range []bool{false, true} {
		opts := []dynamic.Option{}
		if copied {
			opts = append(opts, dynamic.WithCopy())
		}
		served, err := dynamic.Open(t.Context(), []string{path}, opts...)
		require.NoError(t, err)
		require.NoError(t, served.Warm(t.Context(), goldens))
		require.NoError(t, served.Warm(t.Context(), ""))
		require.NoError(t, served.Shutdown(t.Context()))
	}
	sized := openDigits(t, dynamic.WithCompile(dynamic.Compile{Batch: "1,4"}))
	require.NoError(t, sized.Warm(t.Context(), goldens), "the goldens are of one sample, which is one of the sizes")
	require.NoError(t, sized.Warm(t.Context(), ""))

	m, err := onnx.ReadFile(filepath.Join(digits, "digits.onnx"))
	require.NoError(t, err)
	r, err := compile.Compile(m, compile.Options{Options: onnx.Options{Batch: 1}})
	require.NoError(t, err)
	for i := range r.Weights {
		r.Weights[i].Data = bytes.Clone(r.Weights[i].Data)
		for k := 3; k < len(r.Weights[i].Data); k += 4 {
			r.Weights[i].Data[k] ^= 0x80 // the sign
		}
	}
	other, err := r.Bytes()
	require.NoError(t, err)
	served, err := dynamic.OpenBytes(t.Context(), "digits", other)
	require.NoError(t, err)
	defer func() { require.NoError(t, served.Shutdown(context.Background())) }()
	require.ErrorContains(t, served.Warm(t.Context(), goldens), "digits: its answers are not those of the goldens")
}

// TestGoldensOfSeveralModels: of two models in a folder without goldens of their own none has goldens.
func TestGoldensOfSeveralModels(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.popef", "b.onnx"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	own := filepath.Join(dir, "testdata", "golden", "a")
	for _, at := range []string{own, filepath.Dir(own)} {
		require.NoError(t, os.MkdirAll(at, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(at, "golden.json"), []byte(`{"format":"popefgen golden 1","outputs":{}}`), 0o600))
	}
	require.Equal(t, own, dynamic.GoldensOf(filepath.Join(dir, "a.popef")))
	require.Empty(t, dynamic.GoldensOf(filepath.Join(dir, "b.onnx")))
	require.NoError(t, os.Remove(filepath.Join(dir, "b.onnx")))
	require.NoError(t, os.RemoveAll(own))
	require.Equal(t, filepath.Dir(own), dynamic.GoldensOf(filepath.Join(dir, "a.popef")))
}

// TestBatchDim: a first dimension of one counts samples only if somebody says so.
func TestBatchDim(t *testing.T) {
	for samples, opts := range map[int][]dynamic.Option{0: nil, 1: {dynamic.WithBatchDim()}} {
		m, err := dynamic.Open(t.Context(), []string{filepath.Join(digits, "classifier", "digits.popef")}, opts...)
		require.NoError(t, err)
		require.Equal(t, samples, m.Spec().Samples)
		require.NoError(t, m.Shutdown(t.Context()))
	}
}

// TestOptions gives options that mean nothing.
func TestOptions(t *testing.T) {
	for want, opt := range map[string]dynamic.Option{
		"found -1 replicas":  dynamic.WithReplicas(-1),
		"found -2 threads":   dynamic.WithThreads(-2),
		"--batch 0":          dynamic.WithCompile(dynamic.Compile{Batch: "0"}),
		"output \"nothing\"": dynamic.WithLabels("nothing", nil),
	} {
		_, err := dynamic.Open(t.Context(), []string{filepath.Join(digits, "classifier", "digits.popef")}, opt)
		require.ErrorContains(t, err, want)
	}
	_, err := dynamic.Open(t.Context(), nil)
	require.Error(t, err)
}
