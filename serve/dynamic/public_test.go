package dynamic_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
	"github.com/popefgen/popefgen/serve/dynamic"
	"github.com/popefgen/popefgen/serve/oip"
)

// publicData returns the folder of public test data, or skips the test.
func publicData(t testing.TB) string {
	dir := cmp.Or(os.Getenv("POPEFGEN_TESTDATA"), filepath.Join("..", "..", "..", "shared"))
	if _, err := os.Stat(filepath.Join(dir, "models")); err != nil {
		t.Skipf("no public models in %s (set POPEFGEN_TESTDATA)", dir)
	}
	return dir
}

// direct returns what a model of one size answers in a session of its own.
func direct(t *testing.T, m *popef.Model, inputs map[string][]byte) map[string][]byte {
	t.Helper()
	ctx := context.Background()
	s, err := modelrt.NewSession(ctx, m, rt.WithThreads(1))
	require.NoError(t, err)
	defer s.Close()
	out := map[string][]byte{}
	for _, group := range [][]string{names(s, true), names(s, false)} {
		for _, handle := range group {
			info, ok := s.Stream(handle)
			require.True(t, ok, handle)
			b, err := modelrt.NewBuffer(info, s.DeviceIterations())
			require.NoError(t, err)
			require.NoError(t, s.Connect(ctx, handle, b))
			a := s.Contract().Anchor(handle)
			if data, ok := inputs[a.Name]; ok {
				require.Len(t, data, len(b.Bytes()), a.Name)
				copy(b.Bytes(), data)
			} else {
				out[a.Name] = b.Bytes()
			}
		}
	}
	require.NoError(t, s.Run(ctx))
	return out
}

// names returns the stream handles of what a run reads, or fills.
func names(s rt.Session, inputs bool) (out []string) {
	for _, a := range s.Contract().Anchors {
		if a.Role == contract.RunInput && inputs || a.Role == contract.RunOutput && !inputs {
			out = append(out, a.Handle)
		}
	}
	return out
}

// shaped are inputs by name, with their shapes.
type shaped map[string]struct {
	shape []int64
	data  []byte
}

// fill gives a call the inputs.
func fill(t testing.TB, m oip.Model, c oip.Call, in shaped) {
	t.Helper()
	for i, x := range m.Spec().Inputs {
		given, ok := in[x.Name]
		require.True(t, ok, x.Name)
		require.Len(t, given.shape, len(x.Shape), x.Name)
		mem, err := c.Input(i, given.shape)
		require.NoError(t, err)
		require.Equal(t, len(given.data), copy(mem, given.data), x.Name)
		require.Len(t, mem, len(given.data), x.Name)
	}
}

// TestPublicModels serves every public model, compiled for each of its data sets: what a call answers is what the
// model answers in a session of its own, to the bit, also when it is asked again.
func TestPublicModels(t *testing.T) {
	if testing.Short() {
		t.Skip("the public models take seconds")
	}
	cases, err := verify.Find([]string{filepath.Join(publicData(t), "models")}, true)
	require.NoError(t, err)
	for _, c := range cases {
		t.Run(filepath.Base(c.Dir), func(t *testing.T) {
			m, err := onnx.ReadFile(filepath.Join(c.Dir, "model.onnx"))
			require.NoError(t, err)
			for _, set := range c.Sets {
				r, err := verify.Compile(m, set, compile.Options{})
				require.NoError(t, err)
				path := filepath.Join(t.TempDir(), "model.popef")
				require.NoError(t, r.WriteFile(path, false))
				one, err := popef.Load(path)
				require.NoError(t, err)
				want := direct(t, one, r.Fed)
				require.NoError(t, one.Close())
				served, err := dynamic.Open(t.Context(), []string{path})
				require.NoError(t, err)
				in := shaped{}
				for _, p := range r.Inputs {
					x := in[p.Name]
					x.shape, x.data = r.Named[p.Name].Dims, r.Fed[p.Name]
					in[p.Name] = x
				}
				call := served.NewCall()
				for range 2 {
					fill(t, served, call, in)
					require.NoError(t, call.Run(t.Context()))
					for i, o := range served.Spec().Outputs {
						data, shape := call.Output(i)
						require.Len(t, data, bytesOf(shape, o.Type))
						whole := want[o.Name]
						if len(data) < len(whole) { // data decided how much is filled
							require.True(t, o.Open(), o.Name)
							whole = whole[:len(data)]
						}
						require.Equal(t, whole, data, o.Name)
					}
				}
				require.NoError(t, served.Shutdown(t.Context()))
			}
		})
	}
}

func bytesOf(shape []int64, t oip.DataType) int {
	n := t.Size()
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

// TestPublicFamilies serves public models of several sizes: a request of a member's own size is answered as by that member
// alone, to the bit.
func TestPublicFamilies(t *testing.T) {
	if testing.Short() {
		t.Skip("the public models take seconds")
	}
	root := filepath.Join(publicData(t), "models")
	for _, c := range []struct {
		model   string
		option  dynamic.Compile
		samples int
	}{
		{"lgbm_tensor", dynamic.Compile{Batch: "1..8:*2"}, 8},
		{"velardo_mlp", dynamic.Compile{Batch: "1,4,16"}, 16},
		{"basic_pitch", dynamic.Compile{Batch: "1,2"}, 2},
		{"superres_224", dynamic.Compile{Batch: "1,2"}, 2},
		{"magika_bytes", dynamic.Compile{Batch: "1,4"}, 4},
		{"synth_bert_tiny", dynamic.Compile{Dims: []string{"batch=1,2", "sequence=16,64"}}, 0},
		{"t5_encoder_small", dynamic.Compile{Dims: []string{"batch=1,2", "tokens=7,32"}}, 0},
		{"bidi_lstm_bytes", dynamic.Compile{Dims: []string{"batch=1,3", "length=17,64"}}, 0},
	} {
		t.Run(c.model, func(t *testing.T) {
			path := filepath.Join(root, c.model, "model.onnx")
			served, err := dynamic.Open(t.Context(), []string{path}, dynamic.WithCompile(c.option))
			require.NoError(t, err)
			defer func() { require.NoError(t, served.Shutdown(context.Background())) }()
			require.Equal(t, c.samples, served.Spec().Samples)
			m, f := compiledFamily(t, path, c.option)
			for member := range f.Members {
				in, raw := shaped{}, map[string][]byte{}
				for i := range f.Tensors {
					x := &f.Tensors[i]
					if x.Type != popef.Input {
						continue
					}
					v := in[x.Name]
					v.shape = x.Shape(member, f.Members[member].Sizes)
					v.data = make([]byte, x.Elem.Size()*product(v.shape))
					for k := range v.data {
						if k%x.Elem.Size() == 0 || x.Elem == popef.F32 && k%4 == 3 {
							v.data[k] = byte(k/x.Elem.Size()*7+i) % 2 // small numbers of any type
						}
					}
					in[x.Name], raw[x.Name] = v, v.data
				}
				want := direct(t, f.Single(m, member), raw)
				call := served.NewCall()
				fill(t, served, call, in)
				require.NoError(t, call.Run(t.Context()))
				for i, o := range served.Spec().Outputs {
					data, shape := call.Output(i)
					require.Len(t, data, bytesOf(shape, o.Type))
					require.Equal(t, want[o.Name], data, "%s of %v", o.Name, f.Members[member].Sizes)
				}
			}
		})
	}
}

func product(shape []int64) int {
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

func compiledFamily(t *testing.T, path string, c dynamic.Compile) (*popef.Model, *family.Family) {
	t.Helper()
	data, err := dynamic.Compiled(t.Context(), path, c)
	require.NoError(t, err)
	m, err := popef.LoadBytes("family", data)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	f, err := family.Of(m)
	require.NoError(t, err)
	require.NotNil(t, f)
	return m, f
}

// TestSteadyCalls counts what requests to public models allocate: nothing, once they have run.
func TestSteadyCalls(t *testing.T) {
	digits := filepath.Join("..", "..", "generated_examples", "digits", "digits.onnx")
	for _, c := range []struct {
		name   string
		option dynamic.Compile
		shape  []int64
	}{
		{"one size", dynamic.Compile{Batch: "1"}, []int64{1, 1, 8, 8}},
		{"samples of one size", dynamic.Compile{Batch: "4"}, []int64{4, 1, 8, 8}},
		{"part of a batch", dynamic.Compile{Batch: "4"}, []int64{3, 1, 8, 8}},
		{"samples of several sizes", dynamic.Compile{Batch: "1,4,6"}, []int64{5, 1, 8, 8}},
	} {
		for _, replicas := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s on %d", c.name, replicas), func(t *testing.T) {
				served, err := dynamic.Open(t.Context(), []string{digits}, dynamic.WithCompile(c.option), dynamic.WithReplicas(replicas), dynamic.WithThreads(1))
				require.NoError(t, err)
				defer func() { require.NoError(t, served.Shutdown(context.Background())) }()
				call, ctx := served.NewCall(), context.Background()
				ask := func() {
					if _, err := call.Input(0, c.shape); err != nil {
						t.Error(err)
					}
					if err := call.Run(ctx); err != nil {
						t.Error(err)
					}
					call.Output(0)
				}
				for range 100 {
					ask()
				}
				runtime.GC()
				require.Zero(t, testing.AllocsPerRun(200, ask))
			})
		}
	}
}
