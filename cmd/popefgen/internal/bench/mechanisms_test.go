package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
)

// mechanisms are the engine's choices, by the options that turn them off.
var mechanisms = []ipu.Option{
	{Name: "layout", Value: "off"}, // NCHWc, and NHWC of int8
	{Name: "nhwc", Value: "off"},   // NHWC of int8 alone
	{Name: "tiling", Value: "off"}, // several operators depth-first, tile by tile
	{Name: "threads", Value: "1"},
}

// randomNets is how many random networks are measured beside the public models.
const randomNets uint64 = 8

// TestMechanisms lists what the engine's choices are worth for every public
// model and for some random ones, and fails if one costs more than 3 % anywhere: if requests without it
// take less than 0.97 of the time, and three measurements say so with their
// intervals. It takes minutes and a quiet machine: `make mechanisms`.
func TestMechanisms(t *testing.T) {
	if os.Getenv("POPEFGEN_MECHANISMS") == "" {
		t.Skip("measures for minutes (make mechanisms)")
	}
	data := os.Getenv("POPEFGEN_TESTDATA")
	if data == "" {
		data = filepath.Join("..", "..", "..", "..", "..", "shared")
	}
	cases, err := verify.Find([]string{filepath.Join(data, "models")}, true)
	if err != nil || len(cases) == 0 {
		t.Skipf("no public models in %s (set POPEFGEN_TESTDATA): %v", data, err)
	}
	config := Config{Mode: Run, Clients: 1, InFlight: 1, Replicas: 1, Samples: 1, Duration: time.Second, Warmup: 50 * time.Millisecond}
	gained := map[string]float64{}
	type one struct {
		name   string
		exe    *graph.Executable
		target *Target
	}
	var all []one
	for _, c := range cases {
		name := filepath.Base(c.Dir)
		m, err := onnx.ReadFile(filepath.Join(c.Dir, "model.onnx"))
		require.NoError(t, err)
		r, err := verify.Compile(m, c.Sets[0], compile.Options{})
		require.NoError(t, err)
		all = append(all, one{name, r.Executable, targetOf(t, name, r.Result, r.Fed)})
	}
	for seed := range randomNets {
		r, err := compile.Compile(randomNet(seed), compile.Options{})
		require.NoError(t, err)
		all = append(all, one{r.Executable.Name, r.Executable, targetOf(t, r.Executable.Name, r, nil)})
	}
	for _, m := range all {
		name, target := m.name, m.target
		for _, off := range mechanisms {
			target.Threads = 1
			if off.Name == "threads" {
				target.Threads = runtime.GOMAXPROCS(0)
			}
			if off.Name != "threads" && samePlan(t, m.exe, off) || target.Threads == 1 && off.Name == "threads" {
				continue
			}
			var got Comparison
			for range 3 {
				if got, err = Compare(context.Background(), target, config, off); err != nil || got.High >= 0.97 {
					break
				}
			}
			require.NoError(t, err, name)
			t.Logf("%-20s %-10s %.3f (%.3f to %.3f)", name, got.Option, got.Ratio, got.Low, got.High)
			gained[off.Name] = max(gained[off.Name], got.Ratio)
			if got.High < 0.97 {
				t.Errorf("%s: requests take %.3f of the time with %s", name, got.Ratio, got.Option)
			}
		}
	}
	for name, most := range gained {
		t.Logf("%s saves %.1f %% at most", name, 100*(1-1/most))
	}
}

// targetOf returns a compiled model with the data of its inputs: what is fed, or
// else the same number everywhere.
func targetOf(t *testing.T, name string, r *compile.Result, fed map[string][]byte) *Target {
	target := &Target{Name: name, Backend: "cpu"}
	var err error
	target.Bytes, err = r.Bytes()
	require.NoError(t, err)
	model, err := target.contract()
	require.NoError(t, err)
	for _, a := range model.Anchors {
		data := fed[a.Name]
		for _, p := range r.Inputs {
			if fed == nil && p.Name == a.Name {
				half := []byte{0, 0, 0, 0x3f} // 0.5 of float32
				data = bytes.Repeat(half, int(p.Type.Elements()))
			}
		}
		if data != nil {
			target.Inputs = append(target.Inputs, Input{a, [][]byte{data}})
		}
	}
	return target
}

// samePlan reports whether an option changes nothing of how a model is computed.
func samePlan(t *testing.T, exe *graph.Executable, off ipu.Option) bool {
	text := func(o ...ipu.Option) string {
		plan, err := cpu.PlanOf(exe, 1, o...)
		require.NoError(t, err)
		b, err := json.Marshal(plan.Programs)
		require.NoError(t, err)
		return strings.TrimSpace(string(b))
	}
	return text() == text(off)
}
