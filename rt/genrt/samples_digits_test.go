package genrt_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt/genrt"
)

// The samples of the model of generated_examples/digits.
type (
	digitsImage  struct{ Data [64]float32 }
	digitsScores struct{ Data [10]float32 }
)

// digitsRunner is a runner of that model.
type digitsRunner struct {
	family genrt.Family
	core   *genrt.Core
	name   string
}

// openDigits compiles the model for some batch sizes and opens it as a package of it does.
func openDigits(t testing.TB, batches ...int64) *digitsRunner {
	t.Helper()
	m, err := onnx.ReadFile(filepath.Join("..", "..", "generated_examples", "digits", "digits.onnx"))
	require.NoError(t, err)
	o := compile.Options{Options: onnx.Options{Batch: batches[0]}}
	if len(batches) > 1 {
		for _, n := range batches {
			o.Members = append(o.Members, compile.Sizes{Batch: n})
		}
	}
	c, err := compile.Compile(m, o)
	require.NoError(t, err)
	data, err := c.Bytes()
	require.NoError(t, err)
	model, err := popef.LoadBytes("digits.popef", data)
	require.NoError(t, err)
	spec := &genrt.Spec{Package: "digits", Contract: contract.Of(model).Callers().Text(), Iterations: 1, QueueDepth: 64, Batch: int(batches[0])}
	source := genrt.Source{Name: "digits.popef", Bytes: data}
	sizes := []int{64 * 4, 10 * 4}
	r := &digitsRunner{name: fmt.Sprint(batches)}
	for i, port := range []compile.Port{c.Inputs[0], c.Outputs[0]} {
		a := genrt.AnchorSpec{Name: port.Name, GoName: port.Name, Role: genrt.RunInput, Bytes: int(batches[0]) * sizes[i], Blocks: 1}
		if i == 1 {
			a.Role = genrt.RunOutput
		}
		if len(batches) > 1 {
			a.Bytes, a.Open = sizes[i], []genrt.OpenAxis{{Axis: 0, Name: "Batch"}}
		}
		spec.Anchors = append(spec.Anchors, a)
	}
	ctx := context.Background()
	if len(batches) > 1 {
		r.core = &r.family.Core
		require.NoError(t, r.family.OpenFamily(ctx, spec, source, func() []genrt.Binding { return nil }))
		t.Cleanup(func() { require.NoError(t, r.family.Close()) })
	} else {
		r.core = new(genrt.Core)
		require.NoError(t, r.core.Open(ctx, spec, source, func() []genrt.Binding {
			return []genrt.Binding{{Anchor: 0, Stream: genrt.NewRawInput(spec.Anchors[0].Bytes)}, {Anchor: 1, Stream: genrt.NewRawOutput(spec.Anchors[1].Bytes)}}
		}, nil))
		t.Cleanup(func() { require.NoError(t, r.core.Close()) })
	}
	return r
}

// samples computes a sample for one caller.
func (r *digitsRunner) samples(ctx context.Context, in []digitsImage, out []digitsScores) error {
	return r.core.RunSamples(ctx, -1, genrt.SamplesOf(in), genrt.SamplesOf(out))
}

// rate returns how many samples a second some callers compute, one at a time each.
func (r *digitsRunner) rate(t testing.TB, callers int, turn time.Duration) float64 {
	var all sync.WaitGroup
	var stop atomic.Bool
	var count atomic.Int64
	begun := time.Now()
	for range callers {
		all.Go(func() {
			in, out := make([]digitsImage, 1), make([]digitsScores, 1)
			n := 0
			for ; !stop.Load(); n++ {
				if err := r.samples(context.Background(), in, out); err != nil {
					t.Error(err)
					return
				}
			}
			count.Add(int64(n))
		})
	}
	time.Sleep(turn)
	stop.Store(true)
	all.Wait()
	return float64(count.Load()) / time.Since(begun).Seconds()
}

// TestSamplesOfDigits has what a family says of samples equal to what the single size says that computes as many.
func TestSamplesOfDigits(t *testing.T) {
	ctx := context.Background()
	several, one, four := openDigits(t, 1, 4), openDigits(t, 1), openDigits(t, 4)
	in, out, want := make([]digitsImage, 4), make([]digitsScores, 4), make([]digitsScores, 4)
	for i := range in {
		for k := range in[i].Data {
			in[i].Data[k] = float32((i*64+k)%17) / 16
		}
	}
	for _, c := range []struct {
		single *digitsRunner
		n      int
	}{{one, 1}, {four, 4}} {
		require.NoError(t, several.samples(ctx, in[:c.n], out[:c.n]))
		require.NoError(t, c.single.samples(ctx, in[:c.n], want[:c.n]))
		require.NotZero(t, out[0])
		for i := range c.n {
			require.InDeltaSlice(t, want[i].Data[:], out[i].Data[:], 1e-5) // four may be one by one
		}
	}
}

// BenchmarkSamplesOfDigits is samples a second of a model compiled for 1, 4, 16 and 32 behind callers of one sample at a
// time, over those of the single size that is best for as many callers: the median of pairs of turns, in one process.
func BenchmarkSamplesOfDigits(b *testing.B) {
	runners := []*digitsRunner{openDigits(b, 1, 4, 16, 32), openDigits(b, 1), openDigits(b, 4), openDigits(b, 16), openDigits(b, 32)}
	for _, callers := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			rates := make([][]float64, len(runners))
			for b.Loop() {
				for _, i := range rand.Perm(len(runners)) {
					time.Sleep(time.Millisecond) // the threads of the last one fall asleep
					rates[i] = append(rates[i], runners[i].rate(b, callers, 4*time.Millisecond))
				}
			}
			best := 1
			for i := range runners {
				if i > 0 && median(rates[i]) > median(rates[best]) {
					best = i
				}
				b.Logf("%d callers, %s: %.0f samples/s", callers, runners[i].name, median(rates[i]))
			}
			var ratios []float64
			for k, rate := range rates[0] {
				ratios = append(ratios, rate/rates[best][k])
			}
			b.ReportMetric(median(ratios), "of-best")
			b.ReportMetric(median(rates[0]), "samples/s")
		})
	}
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}
