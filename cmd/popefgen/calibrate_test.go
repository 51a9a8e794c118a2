package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/cpu/calibrate"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// TestCalibrate writes a record and hands it to the commands that run models.
func TestCalibrate(t *testing.T) {
	if cpu.Path() == "go" {
		t.Skip("there is nothing to measure here")
	}
	defer func() { measureCosts = calibrate.Measure }()
	costs := cpu.UsualCosts()
	costs.Processor = "a test\x1b[31m"
	measureCosts = func(context.Context) (cpu.Costs, error) { return costs, nil }
	run := func(code int, args ...string) (stdout, stderr string) {
		var out, errOut bytes.Buffer
		require.Equal(t, code, Run(t.Context(), args, nil, &out, &errOut), "%v: %s", args, errOut.String())
		return out.String(), errOut.String()
	}
	text, talk := run(exitOK, "calibrate")
	require.Empty(t, talk)
	printed, err := cpu.ParseCosts([]byte(text))
	require.NoError(t, err)
	require.Equal(t, costs, printed)

	file := filepath.Join(t.TempDir(), "costs.json")
	text, talk = run(exitOK, "calibrate", "-o", file)
	require.Empty(t, text)
	require.Contains(t, talk, "wrote "+file+": ")
	require.NotContains(t, talk, "\x1b")
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	again, err := cpu.ParseCosts(written)
	require.NoError(t, err)
	require.Equal(t, costs, again)

	// A picture's layers are in blocks unless conversions take for ever.
	model := convolutions(t)
	plan := func(costs cpu.Costs) string {
		text, err := costs.JSON()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o644))
		out, _ := run(exitOK, "inspect", model, "--plan", "--engine-option", "costs="+file)
		return out
	}
	usual := plan(costs)
	require.Contains(t, usual, "NCHWcConv")
	require.Equal(t, usual, plan(costs))
	costs.Convert = 1e5
	require.NotContains(t, plan(costs), "NCHWcConv")
	for _, args := range [][]string{{"run", model, "--random", "1"}, {"bench", model, "--duration", "1ms", "--warmup", "0s"}} {
		run(exitOK, append(args, "--engine-option", "costs="+file)...)
	}
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(written), `"format": 1`, `"format": 9`, 1)), 0o644))
	_, talk = run(exitTrouble, "run", model, "--engine-option", "costs="+file)
	require.Contains(t, talk, "unusable record of costs")
	require.Contains(t, talk, "popefgen calibrate")

	measureCosts = func(context.Context) (cpu.Costs, error) { return cpu.Costs{}, calibrate.ErrNothing }
	none := filepath.Join(t.TempDir(), "none.json")
	_, talk = run(exitTrouble, "calibrate", "-o", none)
	require.Contains(t, talk, calibrate.ErrNothing.Error())
	require.NoFileExists(t, none)
}

// convolutions writes a model of three convolutions, one after the other, and
// returns its path.
func convolutions(t *testing.T) string {
	value := func(name string) []onnx.ValueInfo {
		v := onnx.ValueInfo{Name: name, Elem: onnx.Float, HasShape: true}
		for _, n := range []int64{1, 32, 28, 28} {
			v.Dims = append(v.Dims, onnx.Dim{Known: true, Value: n})
		}
		return []onnx.ValueInfo{v}
	}
	g := &onnx.Graph{Name: "convolutions", Inputs: value("x0"), Outputs: value("x3")}
	for i := range 3 {
		w := &onnx.Tensor{Name: fmt.Sprintf("w%d", i), Elem: onnx.Float, Dims: []int64{32, 32, 3, 3}, Data: make([]byte, 4*32*32*9)}
		g.Initializers = append(g.Initializers, w)
		g.Nodes = append(g.Nodes, &onnx.Node{OpType: "Conv", Inputs: []string{fmt.Sprintf("x%d", i), w.Name}, Outputs: []string{fmt.Sprintf("x%d", i+1)},
			Attributes: []*onnx.Attribute{{Name: "pads", Type: onnx.AttrInts, Ints: []int64{1, 1, 1, 1}}}})
	}
	r, err := compile.Compile(&onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: g}, compile.Options{})
	require.NoError(t, err)
	b, err := r.Bytes()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "convolutions.popef")
	require.NoError(t, os.WriteFile(path, b, 0o644))
	return path
}
