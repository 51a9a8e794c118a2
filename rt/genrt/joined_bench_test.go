package genrt_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/golden"
	_ "github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

const sixty = 60

// vector is one of the inputs.
type vector [4]float32

// manyInputs is a runner, as generated code has one, of a model that adds up 60 vectors.
type manyInputs struct {
	core   genrt.Core
	in     [sixty]genrt.Input[vector]
	out    genrt.Output[vector]
	joined genrt.Joined[[sixty]vector]
}

// openMany opens such a model, which moves its inputs as one or each by itself.
func openMany(tb testing.TB, joined bool) *manyInputs {
	tb.Helper()
	anchor := func(name, dir string) golden.Anchor {
		return golden.Anchor{Name: name, Handle: dir + "_" + name, Type: "F32", Shape: []int64{4}, Direction: dir, Programs: []uint32{5}}
	}
	m := &golden.Model{File: "many.popef", Replicas: 1, IPUs: 1, DeviceIterations: 1, Inference: true, Main: []uint32{5}, Executable: golden.Executable{Name: "many"}}
	fields := map[string]int64{}
	var statements []string
	last := "in0"
	for i := range sixty {
		name := fmt.Sprintf("in%d", i)
		m.Anchors = append(m.Anchors, anchor(name, "in"))
		fields[name] = int64(16 * i)
		if i > 0 {
			sum := fmt.Sprintf("sum%d", i)
			if i == sixty-1 {
				sum = "y"
			}
			statements = append(statements, fmt.Sprintf("%s = add(%s, %s)", sum, last, name))
			last = sum
		}
	}
	m.Anchors = append(m.Anchors, anchor("y", "out"))
	m.Executable.Compute = map[int][]string{5: statements}
	if joined {
		m.Joined = []golden.Joined{{Name: "all", Handle: "in_all", Words: 2 * sixty, Fields: fields}}
	}
	files, err := m.Write(tb.TempDir())
	require.NoError(tb, err)
	model, err := popef.Load(files...)
	require.NoError(tb, err)
	spec := &genrt.Spec{Package: "many", Contract: contract.Of(model).Callers().Text(), Iterations: 1, QueueDepth: 1}
	require.NoError(tb, model.Close())
	r := &manyInputs{}
	var bindings []genrt.Binding
	for i := range sixty {
		spec.Anchors = append(spec.Anchors, genrt.AnchorSpec{Name: fmt.Sprintf("in%d", i), GoName: fmt.Sprintf("In%d", i), Role: genrt.RunInput, Bytes: 16})
		bindings = append(bindings, genrt.Binding{Anchor: i, Stream: &r.in[i]})
	}
	spec.Anchors = append(spec.Anchors, genrt.AnchorSpec{Name: "y", GoName: "Y", Role: genrt.RunOutput, Bytes: 16})
	bindings = append(bindings, genrt.Binding{Anchor: sixty, Stream: &r.out}, genrt.Binding{Anchor: 0, Stream: &r.joined})
	err = r.core.Open(tb.Context(), spec, genrt.Source{Path: files[0]}, func() []genrt.Binding { return bindings }, func(int, int) {})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, r.core.Close()) })
	return r
}

// run makes a request as generated code does.
func (r *manyInputs) run(ctx context.Context, block *[sixty]vector, in *[sixty]*vector, out *vector) error {
	if _, err := r.core.Begin(ctx, rt.LeastBusy); err != nil {
		return err
	}
	for i := range r.in {
		r.in[i].Bind(in[i])
	}
	r.out.Bind(out)
	r.joined.Bind(block)
	return r.core.Main(ctx, 0)
}

// TestJoinedRequests makes requests of 60 inputs that travel as one, and each by itself: in one block
// and scattered, with equal results and without allocations.
// Feature 91.
func TestJoinedRequests(t *testing.T) {
	block := new([sixty]vector)
	var side, scattered [sixty]*vector
	for i := range block {
		side[i], scattered[i] = &block[i], new(vector)
	}
	for _, joined := range []bool{true, false} {
		r := openMany(t, joined)
		ctx := t.Context()
		for round := range 3 {
			for name, in := range map[string]*[sixty]*vector{"side by side": &side, "scattered": &scattered} {
				want := vector{}
				for i, v := range in {
					for k := range v {
						v[k] = float32(i*(k+1) + round)
						want[k] += v[k]
					}
				}
				var out vector
				require.NoError(t, r.run(ctx, block, in, &out), name)
				require.Equal(t, want, out, name)
				require.Zero(t, testing.AllocsPerRun(20, func() { _ = r.run(ctx, block, in, &out) }), name)
			}
		}
	}
}

// BenchmarkJoinedInputs compares requests of 60 inputs that travel as one with those of inputs that each
// travel by themselves, by turns: ns/request of both, and the ratio of the medians.
func BenchmarkJoinedInputs(b *testing.B) {
	block := new([sixty]vector)
	var side, scattered [sixty]*vector
	for i := range block {
		side[i], scattered[i] = &block[i], new(vector)
	}
	contestants := []struct {
		name string
		r    *manyInputs
		in   *[sixty]*vector
	}{{"plain", openMany(b, false), &scattered}, {"joined", openMany(b, true), &side}, {"gathered", openMany(b, true), &scattered}}
	const turn = 200
	times := make([][]float64, len(contestants))
	var out vector
	for b.Loop() {
		for i, c := range contestants {
			start := time.Now()
			for range turn {
				if err := c.r.run(b.Context(), block, c.in, &out); err != nil {
					b.Fatal(err)
				}
			}
			times[i] = append(times[i], float64(time.Since(start).Nanoseconds())/turn)
		}
	}
	median := make([]float64, len(contestants))
	for i, c := range contestants {
		slices.Sort(times[i])
		median[i] = times[i][len(times[i])/2]
		b.ReportMetric(median[i], c.name+"-ns/request")
	}
	b.ReportMetric(median[1]/median[0], "joined/plain")
	b.ReportMetric(median[2]/median[0], "gathered/plain")
}
