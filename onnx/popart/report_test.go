package popart_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/popart"
)

var instrumented = map[string]string{"debug.instrument": "true", "threads": "1"}

// reported is a training session that is measured.
func reported(t testing.TB, o popart.Options) *popart.TrainingSession {
	t.Helper()
	o.AccumulationFactor = 2
	s, err := popart.NewTrainingSession(t.Context(), popart.ONNX(regression()), popart.DataFlow{2, popart.Anchors{"loss": popart.All}}, popart.Loss("loss"), momentum(0.01), popart.CPU(), shapes, &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// TestReports: before PrepareDevice there is none; then the graph report says what is computed in each phase, and the execution report what the steps since the last one took. The summary has both, as text.
// Feature 114.
func TestReports(t *testing.T) {
	s := reported(t, popart.Options{EngineOptions: instrumented, ReportOptions: map[string]string{"showExecutionSteps": "true", "showVarStorage": "true", "other": "1"}})
	require.Equal(t, []string{"report.other=1"}, s.UnknownOptions())
	for _, early := range []func() error{
		func() error { _, err := s.SummaryReport(); return err },
		func() error { _, err := s.GraphReport(popart.JSON); return err },
		func() error { _, err := s.ExecutionReport(popart.CBOR); return err },
		func() error { _, err := s.Report(); return err },
	} {
		err := early()
		require.ErrorIs(t, err, popart.ErrNotPrepared)
		require.ErrorIs(t, err, popart.ErrRuntime)
	}
	require.NoError(t, s.PrepareDevice(t.Context()))
	require.NoError(t, s.WeightsFromHost(t.Context()))
	steps(t, s, 3)

	r, err := s.Report(popart.KeepProfile())
	require.NoError(t, err)
	require.Equal(t, "training", r.Graph.Kind)
	require.Equal(t, "cpu", r.Graph.Backend)
	require.Equal(t, []popart.GraphPhase{{Phase: "forward", Graphs: 3, Nodes: 7, FLOPs: 12}, {Phase: "backward", Graphs: 1, Nodes: 2, FLOPs: 12}, {Phase: "update", Graphs: 1, Nodes: 7}}, r.Graph.Phases)
	require.Contains(t, r.Graph.Operators, popart.GraphOperator{Type: "Update", Nodes: 1})
	require.Len(t, r.Graph.Passes, 16)
	x := r.Execution
	require.Equal(t, "STEPS", x.ProfilerMode)
	require.Equal(t, 3, x.Runs)
	require.Positive(t, x.RunTime)
	calls := map[string]int64{}
	for _, part := range [][]popart.Spent{x.Phases, x.Programs, x.Operators} {
		var sum time.Duration
		var share float64
		for _, p := range part {
			sum, share, calls[p.Name] = sum+p.Time, share+p.Share, p.Calls
		}
		require.Equal(t, x.Profiled, sum)
		require.InDelta(t, 1, share, 1e-9)
	}
	require.Equal(t, int64(3*2), calls["Update"], "3 runs of 2 batches")
	require.Equal(t, int64(3*2*2), calls["Gemm"], "and of 2 micro-batches each")
	require.Positive(t, calls["backward"])
	require.Zero(t, calls["backward"]%(3*2*2))
	require.Equal(t, int64(2), calls["0 WeightsFromHost"])
	require.NotEmpty(t, x.Steps)

	summary, err := s.SummaryReport()
	require.NoError(t, err)
	require.Equal(t, `Session of training, back end cpu

Graphs
  phase     graphs  nodes  FLOPs
  forward   3       7      12
  backward  1       2      12
  update    1       7      0

Operators
  Binary     4
`, summary[:strings.Index(summary, "  Reduce")])
	for _, want := range []string{`\nPrograms\n  index +name +steps +bytes\n  0 +WeightsFromHost +2 +0\n`, `\nTensors\n  program +name +offset +bytes +steps\n  all +w +– +12 +–\n`,
		`\nExecution of 3 runs in \S+; all steps took \S+\n  phase +calls +time +share\n  forward +\d+ +\S+ +\d+\.\d %\n`, `\n  5 +\d+ +Gemm +accumulate w +12 +\S+\n`} {
		require.Regexp(t, want, summary)
	}

	text, err := s.ExecutionReport(popart.JSON)
	require.NoError(t, err)
	require.JSONEq(t, `{"profilerMode":"STEPS"}`, string(text), "the summary has begun anew")
	steps(t, s, 1)
	text, err = s.ExecutionReport(popart.JSON)
	require.NoError(t, err)
	var again popart.ExecutionReport
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, 1, again.Runs)
	_, err = s.GraphReport(7)
	require.ErrorIs(t, err, popart.ErrOption)
}

// TestReportsOff: without instrumentation the execution report says so in the words of PopART's guide; a back end that measures nothing says the same, and has a graph report all the same.
// Feature 114.
func TestReportsOff(t *testing.T) {
	devices := popart.Devices{Manager: iputest.New(iputest.Config{}).Manager()}
	device, err := devices.IPUModel(t.Context(), ipu.Simulation{NumIPUs: 1})
	require.NoError(t, err)
	defer device.Close()
	flow := popart.DataFlow{1, popart.Anchors{"z": popart.All}}
	other, err := popart.NewInferenceSession(t.Context(), doubler(), flow, device, shapes, &popart.Options{EngineOptions: map[string]string{"debug.instrument": "true"}})
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.PrepareDevice(t.Context()))
	for _, s := range []*popart.InferenceSession{prepared(t, flow, &popart.Options{EngineOptions: map[string]string{"debug.instrument": "false"}}), other} {
		out := s.InitAnchorArrays()
		require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(count(6))}, out)))
		text, err := s.ExecutionReport(popart.JSON)
		require.NoError(t, err)
		require.Equal(t, `{"profilerMode":"NONE"}`, string(text))
		summary, err := s.SummaryReport()
		require.NoError(t, err)
		require.Contains(t, summary, "\nExecution profiling not enabled\n")
		g, err := s.GraphReport(popart.JSON)
		require.NoError(t, err)
		require.Contains(t, string(g), `"phases":[{"phase":"forward","graphs":1,"nodes":`)
	}
	_, err = popart.NewInferenceSession(t.Context(), doubler(), flow, popart.CPU(), shapes, &popart.Options{EngineOptions: map[string]string{"debug.instrument": "yes"}})
	require.ErrorIs(t, err, popart.ErrOption)
	require.ErrorContains(t, err, `debug.instrument = "yes", want true or false`)
}

// TestReportAddsUp: of a run that computes for long enough to tell, the steps take all but a twentieth of the time.
// Feature 114.
func TestReportAddsUp(t *testing.T) {
	n := 384
	m := onnxtest.Model(13, &onnx.Graph{
		Inputs:  []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, n, n)},
		Nodes:   []*onnx.Node{onnxtest.Node("MatMul", onnxtest.Names("x", "x"), onnxtest.Names("y"))},
		Outputs: onnxtest.Outputs("y"),
	})
	s, err := popart.NewInferenceSession(t.Context(), popart.ONNX(m), popart.DataFlow{1, popart.Anchors{"y": popart.Final}}, popart.CPU(), nil, &popart.Options{EngineOptions: instrumented})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.PrepareDevice(t.Context()))
	io := popart.Arrays(map[string]popart.Array{"x": popart.Of(make([]float32, n*n))}, s.InitAnchorArrays())
	best := 0.0
	for range 20 { // other programs may take the processor between two readings of the clock
		require.NoError(t, s.Run(t.Context(), io))
		r, err := s.Report()
		require.NoError(t, err)
		require.LessOrEqual(t, r.Execution.Profiled, r.Execution.RunTime)
		if best = max(best, float64(r.Execution.Profiled)/float64(r.Execution.RunTime)); best > 0.95 {
			return
		}
	}
	t.Errorf("steps take %.3f of a run, want more than 0.95", best)
}

// TestReportCBOR: a report's CBOR is the tree of its JSON.
// Feature 114.
func TestReportCBOR(t *testing.T) {
	s := reported(t, popart.Options{EngineOptions: instrumented})
	require.NoError(t, s.PrepareDevice(t.Context()))
	require.NoError(t, s.WeightsFromHost(t.Context()))
	steps(t, s, 1)
	for _, report := range []func(popart.ReportFormat) ([]byte, error){
		s.GraphReport, func(f popart.ReportFormat) ([]byte, error) { return s.ExecutionReport(f, popart.KeepProfile()) },
	} {
		text, err := report(popart.JSON)
		require.NoError(t, err)
		packed, err := report(popart.CBOR)
		require.NoError(t, err)
		require.Less(t, len(packed), len(text))
		var want any
		require.NoError(t, json.Unmarshal(text, &want))
		got, rest := decodeCBOR(t, packed)
		require.Empty(t, rest)
		require.Equal(t, want, got)
	}
}

// TestCBOR encodes values as RFC 8949 has them in its appendix A, and keys in the order of section 4.2.
func TestCBOR(t *testing.T) {
	for text, want := range map[string]string{
		`0`: "00", `10`: "0a", `23`: "17", `24`: "1818", `100`: "1864", `1000`: "1903e8", `1000000`: "1a000f4240", `1000000000000`: "1b000000e8d4a51000",
		`18446744073709551615`: "1bffffffffffffffff", `-1`: "20", `-10`: "29", `-100`: "3863", `-1000`: "3903e7", `-9223372036854775808`: "3b7fffffffffffffff",
		`1.1`: "fb3ff199999999999a", `-4.1`: "fbc010666666666666", `1.0e+300`: "fb7e37e43c8800759c",
		`false`: "f4", `true`: "f5", `null`: "f6", `""`: "60", `"IETF"`: "6449455446", `"\"\\"`: "62225c", `"ü"`: "62c3bc",
		`[]`: "80", `[1, [2, 3], [4, 5]]`: "8301820203820405", `{}`: "a0", `{"a": 1, "b": [2, 3]}`: "a26161016162820203",
		`{"b": 1, "aa": 2, "a": 3}`: "a3616103616201626161" + "02", `["a", {"b": "c"}]`: "826161a161626163",
		`[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25]`: "98190102030405060708090a0b0c0d0e0f101112131415161718181819",
	} {
		got, err := popart.CBOROfJSON([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, hex.EncodeToString(got), text)
	}
	for _, text := range []string{``, `{`, `1e999`} {
		_, err := popart.CBOROfJSON([]byte(text))
		require.Error(t, err, text)
	}
}

// decodeCBOR decodes the CBOR that reports have, and returns what is behind it.
func decodeCBOR(t *testing.T, b []byte) (any, []byte) {
	t.Helper()
	require.NotEmpty(t, b)
	major, n, first := b[0]>>5, uint64(b[0]&31), b[0]
	b = b[1:]
	if major != 7 && n >= 24 {
		size := 1 << (n - 24)
		var wide [8]byte
		copy(wide[8-size:], b[:size])
		n, b = binary.BigEndian.Uint64(wide[:]), b[size:]
	}
	switch major {
	case 0:
		return float64(n), b
	case 1:
		return -1 - float64(n), b
	case 3:
		return string(b[:n]), b[n:]
	case 4:
		all := []any{}
		for range n {
			var v any
			v, b = decodeCBOR(t, b)
			all = append(all, v)
		}
		return all, b
	case 5:
		all := map[string]any{}
		for range n {
			var k, v any
			k, b = decodeCBOR(t, b)
			v, b = decodeCBOR(t, b)
			all[k.(string)] = v
		}
		return all, b
	}
	switch first {
	case 0xf4, 0xf5:
		return first == 0xf5, b
	case 0xf6:
		return nil, b
	case 0xfb:
		return math.Float64frombits(binary.BigEndian.Uint64(b)), b[8:]
	}
	require.Fail(t, "unknown head", "%#x", first)
	return nil, nil
}
