package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// runVerify runs verify over cases and returns its exit code and what it says.
func runVerify(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := Run(t.Context(), append([]string{"verify"}, args...), nil, &out, &errOut)
	require.Empty(t, errOut.String())
	return code, out.String()
}

// writeCase writes a case in ONNX's layout.
func writeCase(t *testing.T, dir string, model, input, output []byte) {
	t.Helper()
	set := filepath.Join(dir, "test_data_set_0")
	require.NoError(t, os.MkdirAll(set, 0o777))
	for name, data := range map[string][]byte{filepath.Join(dir, "model.onnx"): model, filepath.Join(set, "input_0.pb"): input, filepath.Join(set, "output_0.pb"): output} {
		if data != nil {
			require.NoError(t, os.WriteFile(name, data, 0o666))
		}
	}
}

// TestVerifyInfinite compares with a reference that is infinite: the error has no
// number in JSON, and the cases behind it are judged too.
func TestVerifyInfinite(t *testing.T) {
	dir := t.TempDir()
	plain := func(s string) string { return s }
	tensor := func(last ...byte) []byte {
		return proto{}.number(1, 2).number(1, 3).number(2, 1).message(9, append(make([]byte, 20), last...))
	}
	model := evilONNX("Relu", "", false, plain)
	writeCase(t, filepath.Join(dir, "a"), model, tensor(0, 0, 0, 0), tensor(0, 0, 0x80, 0x7f)) // +Inf
	writeCase(t, filepath.Join(dir, "b"), model, tensor(0, 0, 0, 0), tensor(0, 0, 0, 0))
	code, out := runVerify(t, "--json", "--recursive", dir)
	require.Equal(t, exitNo, code)
	var verdicts []string
	for d := json.NewDecoder(bytes.NewReader([]byte(out))); d.More(); {
		var r struct {
			Verdict string
			Worst   *float64
		}
		require.NoError(t, d.Decode(&r))
		verdicts = append(verdicts, r.Verdict)
		require.Equal(t, r.Verdict == "FAIL", r.Worst == nil)
	}
	require.Equal(t, []string{"FAIL", "PASS"}, verdicts)
}

// TestVerifySequences skips cases whose inputs are sequences or optionals, with
// the reason.
func TestVerifySequences(t *testing.T) {
	element := proto{}.message(1, proto{}.number(1, 1).message(2, proto{}))
	for name, kind := range map[string]proto{"sequence": proto{}.message(4, proto{}.message(1, element)), "optional": proto{}.message(9, proto{}.message(1, element))} {
		value := func(n string, typ proto) proto { return proto{}.text(1, n).message(2, typ) }
		out := proto{}.message(1, proto{}.number(1, 7).message(2, proto{}))
		g := proto{}.message(1, proto{}.text(1, "x").text(2, "y").text(4, "SequenceLength")).text(2, "g").message(11, value("x", kind)).message(12, value("y", out))
		model := proto{}.number(1, 8).message(7, g).message(8, proto{}.number(2, 17))
		// SequenceProto{name: "x", elem_type: TENSOR, tensor_values: [one]}
		data := proto{}.text(1, "x").number(2, 1).message(3, proto{}.number(1, 1).number(2, 1).message(9, make([]byte, 4)))
		dir := filepath.Join(t.TempDir(), name)
		writeCase(t, dir, model, data, proto{}.number(2, 7).message(9, make([]byte, 8)))
		code, said := runVerify(t, dir)
		require.Equal(t, exitOK, code, said)
		require.Contains(t, said, "SKIP")
		require.Contains(t, said, "graph input of type "+name)
		require.Contains(t, said, "0 passed, 0 failed, 1 skipped")
	}
}

// TestVerifyFolded tells cases apart that nothing ran for.
func TestVerifyFolded(t *testing.T) {
	constant := proto{}.number(1, 1).number(2, 1).message(9, []byte{0, 0, 0x80, 0xbf})
	attribute := proto{}.text(1, "value").message(5, constant).number(20, 4)
	out := proto{}.text(1, "y").message(2, proto{}.message(1, proto{}.number(1, 1).message(2, proto{}.message(1, proto{}.number(1, 1)))))
	g := proto{}.message(1, proto{}.text(2, "c").text(4, "Constant").message(5, attribute)).message(1, proto{}.text(1, "c").text(2, "y").text(4, "Abs")).
		text(2, "g").message(12, out)
	dir := t.TempDir()
	writeCase(t, filepath.Join(dir, "folded"), proto{}.number(1, 8).message(7, g).message(8, proto{}.number(2, 17)), nil,
		proto{}.number(1, 1).number(2, 1).message(9, []byte{0, 0, 0x80, 0x3f}))
	tensor := proto{}.number(1, 2).number(1, 3).number(2, 1).message(9, make([]byte, 24))
	writeCase(t, filepath.Join(dir, "ran"), evilONNX("Relu", "", false, func(s string) string { return s }), tensor, tensor)
	code, said := runVerify(t, "--recursive", dir)
	require.Equal(t, exitOK, code, said)
	require.Regexp(t, `PASS  .*folded  worst error 0, computed when it was compiled\n`, said)
	require.Regexp(t, `PASS  .*ran  worst error 0\n`, said)
	require.Contains(t, said, "2 passed (1 of them computed when they were compiled), 0 failed, 0 skipped")
	_, said = runVerify(t, "--json", "--recursive", dir)
	require.Regexp(t, `folded.*"folded":true`, said)
}

// TestVerifyOfTheCases runs the stored cases.
func TestVerifyOfTheCases(t *testing.T) {
	data := os.Getenv("POPEFGEN_TESTDATA")
	if data == "" {
		data = filepath.Join("..", "..", "..", "shared")
	}
	dir := filepath.Join(data, "cases", "near-miss")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no cases in %s (set POPEFGEN_TESTDATA)", data)
	}
	_, said := runVerify(t, "--json", filepath.Join(dir, "verify_json_inf"))
	require.True(t, json.Valid([]byte(said)), said)
	code, said := runVerify(t, filepath.Join(dir, "nms_dynamic"))
	require.Equal(t, exitOK, code, said)
	require.NotContains(t, said, "computed when", "data decides how many boxes there are, when it runs")
}

// TestVerifyFamily runs the data sets of a public model through a family.
func TestVerifyFamily(t *testing.T) {
	dir := filepath.Join(publicModels(t), "bidi_lstm_bytes")
	code, out := runVerify(t, dir, "--family", "--batch", "1,3,4", "--dim", "length=17", "--atol", "1e-4")
	require.Equal(t, exitOK, code, out)
	require.Contains(t, out, "test_data_set_0  by batch=1 length=64  worst")
	require.Contains(t, out, "test_data_set_1  by batch=3 length=17  worst")
	require.Contains(t, out, "test_data_set_1  by batch=4 length=17, filled up from batch=3 length=17  worst")
	code, out = runVerify(t, dir, "--batch", "2,4", "--dim", "length=17", "--json")
	require.Equal(t, exitNo, code, out)
	require.Contains(t, out, `"member":"batch=4","filled":"batch=3","verdict":"PASS"`)
	require.Contains(t, out, "dimension 1 is 64, want 17")
}
