package cpu

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/costs"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// usual returns a record for this machine's kernels, or skips the test where
// they are in plain Go.
func usual(t testing.TB) costs.Record {
	t.Helper()
	if nchwc.Lanes() == 0 {
		t.Skip("nothing is estimated for kernels in plain Go")
	}
	return costs.Usual()
}

// changed returns a record's text with one field set, or without it if v is nil.
func changed(t *testing.T, c costs.Record, field string, v any) string {
	text, err := c.JSON()
	require.NoError(t, err)
	fields := map[string]any{}
	require.NoError(t, json.Unmarshal(text, &fields))
	if fields[field] = v; v == nil {
		delete(fields, field)
	}
	text, err = json.Marshal(fields)
	require.NoError(t, err)
	return string(text)
}

// TestCostsRefused gives the option what is no record of this machine.
func TestCostsRefused(t *testing.T) {
	const mostBytes = 64 << 10 // of a record
	c := usual(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		return name
	}
	other := kernel.PathAVX2
	if c.Path == other {
		other = kernel.PathAVX512
	}
	whole := changed(t, c, "processor", "x")
	for _, test := range []struct{ name, value, want string }{
		{"no file", filepath.Join(dir, "none.json"), "no such file"},
		{"a folder", dir, "no regular file"},
		{"an empty file", file("empty", ""), "unexpected end of JSON"},
		{"too long", file("long", "{"+strings.Repeat(" ", mostBytes)+"}"), "more than 64 KiB"},
		{"too long a text", "{" + strings.Repeat(" ", mostBytes) + "}", "65538 bytes"},
		{"no JSON", "{format}", "invalid character"},
		{"two records", whole + whole, "invalid character"},
		{"no format", changed(t, c, "format", nil), `no "format": 1`},
		{"a later format", changed(t, c, "format", 2), `no "format": 1`},
		{"an unknown field", changed(t, c, "warp_ns", 1), "warp_ns"},
		{"a missing field", changed(t, c, "convert_ns", nil), "convert_ns is 0, want 1e-07 to 1e+06"},
		{"a negative time", changed(t, c, "node_ns", -1), "node_ns is -1"},
		{"an absurd time", changed(t, c, "depth_ns", 1e300), "depth_ns is 1e+300"},
		{"no number", strings.Replace(whole, `"product_ns":`, `"product_ns":NaN,"x":`, 1), "invalid character 'N'"},
		{"a number too large", strings.Replace(whole, `"product_ns":`, `"product_ns":1e999,"x":`, 1), "1e999"},
		{"no cache", changed(t, c, "cache_bytes", 0), "cache_bytes is 0"},
		{"an endless cache", changed(t, c, "cache_bytes", int64(1)<<40), "cache_bytes is 1099511627776"},
		{"another path", changed(t, c, "path", other), ""},
		{"no path", changed(t, c, "path", "sse"), `path is "sse"`},
		{"an endless name", changed(t, c, "processor", strings.Repeat("x", 300)), "300 bytes"},
	} {
		_, err := PlanOf(&graph.Executable{}, 1, opt("costs", test.value)...)
		require.Error(t, err, test.name)
		require.ErrorIs(t, err, ipu.ErrInvalidOption, test.name)
		require.ErrorContains(t, err, test.want, test.name)
		require.Less(t, len(err.Error()), 4*mostBytes, test.name)
	}
	o, err := parseOptions(opt("costs", file("costs.json", whole)))
	require.NoError(t, err)
	inline, err := parseOptions(opt("costs", whole))
	require.NoError(t, err)
	require.Equal(t, "x", o.Costs.Processor)
	require.Equal(t, o, inline)
}

// floatFields returns the numbers of a record.
func floatFields(c *costs.Record) map[string]*float64 {
	all := map[string]*float64{}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if p, ok := v.Field(i).Addr().Interface().(*float64); ok {
			all[v.Type().Field(i).Name] = p
		}
	}
	return all
}

// drawCosts draws a record for this machine's kernels.
func drawCosts(t *rapid.T) costs.Record {
	c := costs.Usual()
	c.CacheBytes = rapid.Int64Range(4<<10, 4<<20).Draw(t, "cache")
	all := floatFields(&c)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if *all[name] > 0 {
			*all[name] *= math.Exp2(rapid.Float64Range(-6, 6).Draw(t, name))
		}
	}
	return c
}

// testNets are networks on which a record can decide something, by kind.
var testNets = map[string]func(*rapid.T) (*model, bool, []byte){
	"images": func(t *rapid.T) (*model, bool, []byte) { d, exe := drawImageNet(t); return d.model, d.half, exe },
	"tiling": func(t *rapid.T) (*model, bool, []byte) { d, exe := drawTilingNet(t); return d.model, d.half, exe },
	"bytes":  func(t *rapid.T) (*model, bool, []byte) { d, exe := drawByteNet(t); return d.model, false, exe },
}

// TestCostsChangeNoResult computes networks with all kinds of records: results
// are those without blocks and pixels, to the bit, and equal records give equal
// plans.
func TestCostsChangeNoResult(t *testing.T) {
	usual(t)
	plans := 0
	for kind, draw := range testNets {
		t.Run(kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				d, half, exe := draw(t)
				compute := func(options ...ipu.Option) ([]float32, []plan.Program) {
					e, err := New(ipu.EngineConfig{Name: "costs", Executable: exe, Options: options})
					require.NoError(t, err)
					defer e.Close()
					load(t, e)
					_, y := d.start(t, e)
					run(t, e, 1)
					return y, e.plan.Programs
				}
				want, planar := compute(opt("layout", "off")...)
				text, err := drawCosts(t).JSON()
				require.NoError(t, err)
				options := opt("costs", string(text), "threads", rapid.SampledFrom([]string{"1", "2"}).Draw(t, "threads"))
				got, plan := compute(options...)
				for i, v := range want {
					if !sameBits(half, v, got[i]) {
						t.Fatalf("element %d is %v, want %v", i, got[i], v)
					}
				}
				_, again := compute(options...)
				require.Empty(t, cmp.Diff(plan, again))
				if !cmp.Equal(plan, planar) {
					plans++
				}
			})
		})
	}
	require.Positive(t, plans)
}

// TestEveryCostDecides wants every number of a record to change the plan of some
// network, or nobody would have to measure it.
func TestEveryCostDecides(t *testing.T) {
	base := usual(t)
	var nets []*graph.Executable
	for kind, count := range map[string]int{"images": 100, "tiling": 20, "bytes": 20} {
		g := rapid.Custom(func(t *rapid.T) []byte { _, _, exe := testNets[kind](t); return exe })
		for seed := range count {
			exe, err := encoding.Decode(g.Example(seed))
			require.NoError(t, err)
			nets = append(nets, exe)
		}
	}
	plan := func(exe *graph.Executable, c costs.Record) string {
		o := defaultOptions()
		o.Threads, o.Costs = 1, c
		p, err := plan.Compile(t.Context(), exe, o.Options, budget.New(0))
		require.NoError(t, err)
		return fmt.Sprint(p.Plan.Programs)
	}
	want := make([]string, len(nets))
	for i, exe := range nets {
		want[i] = plan(exe, base)
	}
	decides := func(c costs.Record) bool {
		for i, exe := range nets {
			if plan(exe, c) != want[i] {
				return true
			}
		}
		return false
	}
	for name := range floatFields(&base) {
		some := false
		for _, by := range []float64{1. / 256, 256} {
			c := base
			*floatFields(&c)[name] *= by
			some = some || decides(c)
		}
		if *floatFields(&base)[name] > 0 {
			require.True(t, some, "%s changes no plan", name)
		}
	}
	c := base
	c.CacheBytes /= 64
	require.True(t, decides(c), "CacheBytes changes no plan")
}
