package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/peer/gomlx"
	"github.com/popefgen/popefgen/bench/peer/onnxruntime"
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/bench/synth"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/onnx/verify"
)

// TestMain loads ONNX Runtime where there is one.
func TestMain(m *testing.M) {
	if library != "" {
		if err := onnxruntime.Load(library); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

var library = os.Getenv("POPEFGEN_ORT")

func needLibrary(t *testing.T) {
	if library == "" {
		t.Skip("no ONNX Runtime: `make -C bench test` installs it and sets POPEFGEN_ORT")
	}
}

var short = measure.Config{Rounds: 2, Runs: 2}

// TestEnginesAgree runs a small network in all three engines and compares what
// they compute.
func TestEnginesAgree(t *testing.T) {
	needLibrary(t)
	c, err := synthetic("small", func(m *synth.Model) {
		x := m.Node("Relu", []string{m.Node("MatMul", []string{m.Input("x", 2, 5), m.Weights(1, 5, 7)})})
		m.Output(m.Node("Add", []string{x, m.Weights(1, 7)}), 2, 7)
	})
	require.NoError(t, err)
	out, err := contest(short, c, rounding, 2, []entrant{{Engine: popefgen.Engine{}}, {Engine: onnxruntime.Engine{}}, {Engine: gomlx.Engine{}, slow: true}})
	require.NoError(t, err)
	require.Len(t, out, 3)
	for _, o := range out {
		require.NoError(t, o.refused)
		require.Len(t, o.Rounds, 2)
		require.Positive(t, o.Median())
		require.LessOrEqual(t, o.Best(), o.Median())
		require.LessOrEqual(t, o.Median(), o.P99())
	}
}

// TestDisagreement checks that an engine whose outputs are not ours is refused.
func TestDisagreement(t *testing.T) {
	needLibrary(t)
	c, err := synthetic("exp", func(m *synth.Model) { m.Output(m.Node("Exp", []string{m.Input("x", 8)}), 8) })
	require.NoError(t, err)
	own := []entrant{{Engine: popefgen.Engine{}}, {Engine: onnxruntime.Engine{}, optional: true}}
	other, err := synthetic("log", func(m *synth.Model) {
		// Another model under the same names.
		m.Output(m.Node("Neg", []string{m.Input("x", 8)}), 8)
	})
	require.NoError(t, err)
	c.ONNX = other.ONNX
	out, err := contest(short, c, rounding, 1, own)
	require.NoError(t, err)
	require.True(t, out[ours].Measured())
	require.False(t, out[ort].Measured())
	require.ErrorContains(t, out[ort].refused, "its outputs are not those of popefgen")
	own[1].optional = false
	_, err = contest(short, c, rounding, 1, own)
	require.ErrorContains(t, err, "exp, 1 threads: ONNX Runtime")
}

// silent is an engine that answers some runs and then no more.
type silent struct {
	popefgen.Engine
	answers int
}

func (e silent) Name() string { return "silent" }

func (e silent) Open(c *peer.Case, threads int) (peer.Session, error) {
	s, err := e.Engine.Open(c, threads)
	return &silentSession{s, e.answers}, err
}

type silentSession struct {
	peer.Session
	left int
}

func (s *silentSession) Run() error {
	if s.left--; s.left < 0 {
		return fmt.Errorf("%w within reason", peer.ErrNoAnswer)
	}
	return s.Session.Run()
}

// TestNoAnswer checks that an engine that falls silent is reported as such, and
// that the others are measured all the same.
func TestNoAnswer(t *testing.T) {
	c, err := synthetic("exp", func(m *synth.Model) { m.Output(m.Node("Exp", []string{m.Input("x", 8)}), 8) })
	require.NoError(t, err)
	for _, answers := range []int{0, 1, 4} {
		m := &model{Case: c}
		engines := []entrant{{Engine: popefgen.Engine{}}, {Engine: popefgen.Engine{}}, {Engine: silent{answers: answers}, optional: true, slow: true}}
		require.NoError(t, m.measure(short, engines, 1))
		require.True(t, m.runs[0][ort].Measured())
		require.Len(t, m.runs[0][ort].Rounds, 2)
		require.Contains(t, modelTable([]*model{m}, 1), " did not answer |")
		require.Contains(t, refusals([]*model{m}), "silent: did not answer within reason")
	}
}

// TestOperators compiles every operator's model and checks its counts.
func TestOperators(t *testing.T) {
	for _, o := range operators {
		c, err := synthetic(o.name, o.build)
		require.NoError(t, err, o.name)
		require.Len(t, c.Inputs, 1, o.name)
		require.Len(t, c.Outputs, 1, o.name)
		require.Equal(t, o.group == vector || o.group == recurrent, o.weights > 0, o.name)
	}
	require.Equal(t, 2.0*4*8*16, matmul(4, 8, 16).flops)
	require.Equal(t, 2.0*64*64*9*56*56*chained, conv(dense, 3, 64, 64, 56, 1).flops)
	require.Equal(t, 2.0*32*9*112*112*chained, conv(depthwise, 3, 32, 32, 112, 32).flops)
	require.Equal(t, 2.0*64*3*49*112*112, single(dense, 7, 3, 64, 224, 2, 1).flops)
}

func TestTiles(t *testing.T) {
	tiles := parseTiles("goos: linux\n" +
		"BenchmarkMicroKernel/avx2/5x16-2 \t 1836\t 115.5 GFLOP/s\t 0.9334 of-peak\n" +
		"BenchmarkMicroKernel/avx2/6x16-2 \t 1718\t 123.4 GFLOP/s\t 0.9801 of-peak\n" +
		"BenchmarkMicroKernel/avx2/6x16-2 \t 1718\t 123.4 GFLOP/s\t 0.9901 of-peak\n" +
		"BenchmarkMicroKernel/avx512/12x32 \t 243\t 236.1 GFLOP/s\t 0.9572 of-peak\n" +
		"BenchmarkMicroKernel/avx512/1x32 \t 243\t 36.1 GFLOP/s\t 0.3 of-peak\nPASS\n")
	require.Equal(t, []tile{{"avx2", 5, 16, 0.9334}, {"avx2", 6, 16, 0.9901}, {"avx512", 12, 32, 0.9572}, {"avx512", 1, 32, 0.3}}, tiles)
	require.Equal(t, []tile{tiles[1], tiles[2]}, full(tiles))
}

// result makes an operator's result of medians in nanoseconds, of one thread
// and two, ours and ONNX Runtime's.
func result(o operator, peak float64, medians [2][2]time.Duration) *operatorResult {
	r := &operatorResult{operator: o, peak: peak, memory: 1e11}
	for i, m := range medians {
		for _, d := range m {
			r.runs[i] = append(r.runs[i], outcome{Series: measure.Series{Batch: 1, Rounds: [][]time.Duration{{d}}}})
		}
	}
	return r
}

func TestShares(t *testing.T) {
	r := result(operator{flops: 1e6}, 1e11, [2][2]time.Duration{{20_000, 40_000}, {12_500, 25_000}})
	require.InDelta(t, 0.5, r.ofPeak(ours), 1e-9) // 1e6 in 20 µs are 50 GFLOP/s of 100
	require.InDelta(t, 0.25, r.ofPeak(ort), 1e-9)
	require.InDelta(t, 0.5, r.ratio(1), 1e-9)
	require.InDelta(t, 1.6, r.speedup(), 1e-9)
	require.True(t, math.IsNaN(r.ofMemory()))
	r.weights, r.reads = 100_000, 10
	require.InDelta(t, 0.5, r.ofMemory(), 1e-9) // 1e6 bytes in 20 µs are 50 GB/s of 100
	r.flops = 0
	require.True(t, math.IsNaN(r.ofPeak(ours)))
}

func TestGoals(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		g    goal
		want []string
	}{
		{goal{what: "g", bound: 1, values: []valued{{"a", 0.5}, {"b", 1.5}, {"c", nan}}}, []string{"g", "≤ 1", "1.50 (b)", "1 of 2", "missed"}},
		{goal{what: "g", bound: 1, mean: true, values: []valued{{"a", 0.5}, {"b", 1.5}}}, []string{"g", "≤ 1", "0.87 (mean of 2)", "1 of 2", "met"}},
		{goal{what: "g", bound: 0.9, floor: true, values: []valued{{"a", 0.95}, {"b", 0.9}}}, []string{"g", "≥ 0.9", "0.90 (b)", "2 of 2", "met"}},
		{goal{what: "g", bound: 0.9, floor: true, values: []valued{{"a", nan}}}, []string{"g", "≥ 0.9", "–", "–", "–"}},
	} {
		require.Equal(t, c.want, c.g.row())
	}
}

// TestRequests measures every path of a request, briefly: that they work, and
// which of them allocate.
func TestRequests(t *testing.T) {
	needLibrary(t)
	got, err := requests(short)
	require.NoError(t, err)
	for _, r := range got {
		require.NotEmpty(t, r.name)
		require.True(t, r.Measured(), r.name)
	}
	for _, i := range []int{inline, submitted, ringParking, ringSpinning} {
		require.Zero(t, got[i].allocations, got[i].name)
	}
	require.Positive(t, got[mapFresh].allocations)
}

// TestPublicModels compiles a public model and runs it in both engines.
func TestPublicModels(t *testing.T) {
	needLibrary(t)
	data := os.Getenv("POPEFGEN_TESTDATA")
	if data == "" {
		data = filepath.Join("..", "..", "shared")
	}
	dir := filepath.Join(data, "models")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no public models in %s (set POPEFGEN_TESTDATA)", dir)
	}
	models, err := publicModels(dir, "silero_vad_16k")
	require.NoError(t, err)
	require.Len(t, models, 1)
	m := models[0]
	require.NoError(t, m.measure(short, []entrant{{Engine: popefgen.Engine{}}, {Engine: onnxruntime.Engine{}}}, 1))
	require.Positive(t, m.ratio(1, ort))
	require.True(t, math.IsNaN(m.ratio(1, mlx)), "GoMLX did not take part")
	require.True(t, math.IsNaN(m.ratio(2, ort)), "nobody ran with two threads")
}

// TestSizes measures requests of different lengths and a detector with its suppression inside, briefly.
func TestSizes(t *testing.T) {
	needLibrary(t)
	data := os.Getenv("POPEFGEN_TESTDATA")
	if data == "" {
		data = filepath.Join("..", "..", "shared")
	}
	dir := filepath.Join(data, "models")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no public models in %s (set POPEFGEN_TESTDATA)", dir)
	}
	all, err := measureLengths(short, dir, "synth_bert_tiny", 1)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Positive(t, all[0].ratio(1))
	require.True(t, math.IsNaN(all[0].ratio(2)))
	require.Contains(t, lengthTable(all), "synth_bert_tiny")
	for _, name := range []string{"blazeface_front_128", "fastestdet_352", "ultraface_slim_320"} {
		found, err := measureDetectors(short, dir, name, 1)
		require.NoError(t, err)
		require.Positive(t, found[0].found)
		require.Positive(t, found[0].ratio(1))
		require.True(t, math.IsNaN(found[0].ratio(2)))
		require.Contains(t, detectorTable(found), name)
	}
}

// outputs is a session that has run.
type outputs [][]byte

func (outputs) Run() error                   { return nil }
func (o outputs) Outputs() ([][]byte, error) { return o, nil }
func (outputs) Close() error                 { return nil }

// TestCompareRows: rows may change places, and one of ten may be another one.
func TestCompareRows(t *testing.T) {
	rows := func(first ...float32) outputs {
		var data []byte
		for _, f := range first {
			data, _ = binary.Append(data, binary.LittleEndian, []float32{f, 2})
		}
		return outputs{data}
	}
	c := &peer.Case{Outputs: []peer.Tensor{{Name: "o", Dims: []int64{10, 2}}}}
	same := rows(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	for _, w := range []outputs{same, rows(9, 8, 7, 6, 5, 4, 3, 2, 1, 0), rows(0, 1, 2, 3, 4, 5, 6, 7, 8, 20), rows(0, 1, 2, 3, 4, 5, 6, 7, 8)} {
		require.NoError(t, compareRows(c, same, w))
		require.NoError(t, compareRows(c, w, same))
	}
	for _, w := range []outputs{rows(0, 1, 2, 3, 4, 5, 6, 7, 20, 21), rows(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), rows(0, 1, 2, 3, 4, 5, 6, 7)} {
		require.ErrorContains(t, compareRows(c, same, w), "rows are those of the other engine")
		require.ErrorContains(t, compareRows(c, w, same), "rows are those of the other engine")
	}
}

// TestDocument checks that docs/performance.md has a place for every section
// that may be written.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "performance.md"))
	require.NoError(t, err)
	dir := t.TempDir()
	path := filepath.Join(dir, "performance.md")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	o := result(matmul(4, 8, 16), 1e11, [2][2]time.Duration{{20_000, 40_000}, {12_500, 25_000}})
	run := o.runs[0][ours]
	c, err := synthetic("small", func(m *synth.Model) { m.Output(m.Node("Exp", []string{m.Input("x", 8)}), 8) })
	require.NoError(t, err)
	m := &model{Case: c, runs: [2][]outcome{{run, run, {refused: os.ErrInvalid}}, {run, run, {}}}}
	r := &results{machine: newMachine(), tiles: []tile{{"avx2", 6, 16, 1}}, operators: []*operatorResult{o}, models: []*model{m}, processes: []process{{name: "p", cost: [2]startup{{1, 1, 1}, {2, 2, 2}}}}}
	for range ortEmpty + 1 {
		r.requests = append(r.requests, pathResult{name: "path", Series: run.Series})
	}
	sections := r.sections()
	require.NoError(t, write(dir, sections, modelChart(r.models)))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, s := range sections {
		require.Contains(t, string(got), s.text)
	}
	require.FileExists(t, filepath.Join(dir, "performance.svg"))
	// Of some sections, nothing else changes.
	drawn, err := os.Stat(filepath.Join(dir, "performance.svg"))
	require.NoError(t, err)
	require.NoError(t, write(dir, []section{{"lengths", "some lengths"}}, nil))
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(again), "some lengths")
	for _, s := range sections {
		require.Contains(t, string(again), s.text)
	}
	still, err := os.Stat(filepath.Join(dir, "performance.svg"))
	require.NoError(t, err)
	require.True(t, os.SameFile(drawn, still))
	require.ErrorContains(t, write(dir, []section{{"of no document", ""}}, modelChart(nil)), `section "of no document"`)
}

func TestMachine(t *testing.T) {
	m := &machine{peak: 2e11, both: 3e11, busy: 0.4}
	require.Contains(t, m.String(), "measured peak 200 GFLOP/s on one thread, 300 on two; 0.4 threads of others")
	require.Empty(t, m.warning())
	m.busy = 1.5
	require.Contains(t, m.warning(), "not quiet")
}

// TestTolerances keeps the exceptions to those that are argued for.
func TestTolerances(t *testing.T) {
	require.Len(t, tolerances, 3)
	require.Equal(t, verify.Tolerance{Abs: 5e-2}, tolerances["mlsd_tiny_320"])
}
