package calibrate

import (
	"context"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
)

// TestMeasure takes one turn of every probe: each field is measured, and what
// comes of it is a record that an engine takes.
func TestMeasure(t *testing.T) {
	c, err := measure(t.Context(), 1)
	if nchwc.Lanes() == 0 {
		require.ErrorIs(t, err, ErrNothing)
		return
	}
	require.NoError(t, err)
	require.Equal(t, kernel.CostPath(), c.Path)
	require.NotEmpty(t, c.Processor)
	text, err := c.JSON()
	require.NoError(t, err)
	again, err := cpu.ParseCosts(text)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(c, again))

	probes, err := allProbes()
	require.NoError(t, err)
	defer closeAll(probes)
	probed := map[string]bool{}
	for i := range probes {
		probed[probes[i].field] = true
	}
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Type.Kind() == reflect.Float64 {
			require.Equal(t, probed[f.Name], !v.Field(i).IsZero(), f.Name)
			delete(probed, f.Name)
		}
	}
	delete(probed, "") // what is compared with
	require.Empty(t, probed, "probes of no field")
}

func TestMeasureEnds(t *testing.T) {
	if nchwc.Lanes() == 0 {
		t.Skip("there is nothing to measure here")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Measure(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// TestFill wants geometric means, differences and three digits.
func TestFill(t *testing.T) {
	var c cpu.Costs
	c.Half, c.PixelsDepth = 7, 7
	fill(&c, []probe{{field: "Element", units: 10, best: 20}, {field: "Element", units: 10, best: 45},
		{field: "", units: 1, best: 100}, {field: "Half", units: 3, best: 137, less: 1},
		{field: "Node", units: 3, best: 1000}, {field: "", units: 1, best: 9}, {field: "Mean", units: 2, best: 5, less: 1}})
	require.Empty(t, cmp.Diff(cpu.Costs{Element: 3, Half: 12.3, Node: 333, Mean: 0.5}, c))
}
