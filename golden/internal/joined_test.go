package golden_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	joined "github.com/popefgen/popefgen/golden/internal/joined/want"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
)

// TestJoinedInputs runs the package of a model that moves four inputs as one with models that move
// them so, in another order, or each by itself, and with inputs in memory of their own.
func TestJoinedInputs(t *testing.T) {
	pin := ""
	for _, tt := range []struct {
		name string
		edit func(*golden.Model)
	}{
		{"its own model", func(*golden.Model) {}},
		{"joined in another order", func(m *golden.Model) {
			m.Joined[0].Fields = map[string]int64{"steps": 0, "offset": 8, "scale": 20}
			m.Joined[0].Words = 3
		}},
		{"of the same size in another order", func(m *golden.Model) {
			m.Joined[0].Fields = map[string]int64{"steps": 0, "offset": 8, "scale": 20, "nothing": 40}
		}},
		{"each by itself", func(m *golden.Model) { m.Joined = nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			description, err := golden.Read("joined/model.yaml")
			require.NoError(t, err)
			tt.edit(description)
			files, err := description.Write(t.TempDir())
			require.NoError(t, err)
			m, err := popef.Load(files...)
			require.NoError(t, err)
			p, err := gen.Build(m, gen.Options{})
			require.NoError(t, err)
			require.NoError(t, m.Close())
			if pin == "" {
				pin = p.Pin
			}
			require.Equal(t, pin, p.Pin, "how inputs travel is not the callers' matter")
			require.Equal(t, joined.ContractHash, p.ContractHash)

			var frozen joined.Offset
			copy(frozen.Flat(), []float32{1, 2, 3})
			for _, opts := range [][]rt.RunnerOption{nil, {joined.FreezeOffset(&frozen)}} {
				r, err := joined.Open(t.Context(), files[0], opts...)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, r.Close()) })
				for name, in := range map[string]*joined.Inputs{
					"side by side":   joined.NewInputs(),
					"by themselves":  {Scale: new(joined.Scale), Nothing: new(joined.Nothing), Image: new(joined.Image), Offset: new(joined.Offset), Steps: new(joined.Steps)},
					"one by itself":  func() *joined.Inputs { in := joined.NewInputs(); in.Steps = new(joined.Steps); return in }(),
					"of two of them": func() *joined.Inputs { in := joined.NewInputs(); in.Scale = joined.NewInputs().Scale; return in }(),
				} {
					for round := range 3 {
						copy(in.Offset.Flat(), frozen.Flat())
						in.Scale.Data = float32(round + 2)
						in.Steps.Data[0] = int64(round) << 40
						copy(in.Image.Flat(), []float32{1, 2, 3, 4, 5, 6})
						out := joined.NewOutputs()
						if round == 1 {
							ticket, err := r.Submit(t.Context(), in, out)
							require.NoError(t, err)
							require.NoError(t, ticket.Wait(t.Context()))
						} else {
							require.NoError(t, r.Run(t.Context(), in, out))
						}
						require.Equal(t, int64(round)<<41, out.Twice.Data[0], name)
						for i, y := range out.Y.Flat() {
							require.Equal(t, float32((i+1)*(round+2)+i%3+1+2), y, name)
						}
						ctx := t.Context()
						run := func() { _ = r.Run(ctx, in, out) }
						require.Zero(t, testing.AllocsPerRun(5, run), name)
					}
				}
			}
		})
	}
}
