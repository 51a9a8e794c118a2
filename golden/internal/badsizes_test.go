package golden_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	sizes "github.com/popefgen/popefgen/golden/internal/family/want"
	counts "github.com/popefgen/popefgen/golden/internal/family_counts/want"
	found "github.com/popefgen/popefgen/golden/internal/family_found/want"
	state "github.com/popefgen/popefgen/golden/internal/state/want"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
)

// sums is an ONNX model over a [batch n] and b [batch k], which it adds.
func sums() *onnx.Model {
	value := func(name string, dims ...string) onnx.ValueInfo {
		v := onnx.ValueInfo{Name: name, Elem: onnx.Float, HasShape: true}
		for _, d := range dims {
			v.Dims = append(v.Dims, onnx.Dim{Symbol: d})
		}
		return v
	}
	return &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: &onnx.Graph{
		Name: "sums", Inputs: []onnx.ValueInfo{value("a", "batch", "n"), value("b", "batch", "k")}, Outputs: []onnx.ValueInfo{value("y", "batch", "n")},
		Nodes: []*onnx.Node{{Name: "sum", OpType: "Add", Inputs: []string{"a", "b"}, Outputs: []string{"y"}}},
	}}
}

// compiled returns the error of compiling [sums] for members of batch, n and k.
func compiled(pads map[string][]family.Pad, members ...[3]int64) error {
	o := compile.Options{Members: []compile.Sizes{}, Pads: pads}
	for _, m := range members {
		o.Members = append(o.Members, compile.Sizes{Dims: map[string]int64{"batch": m[0], "n": m[1], "k": m[2]}})
	}
	_, err := compile.Compile(sums(), o)
	return err
}

// openSizes opens the package of a family with a model whose blob has something else in
// the place of old.
func openSizes(t *testing.T, old, new string, opts ...rt.RunnerOption) (*sizes.Runner, error) {
	return sizes.Open(ctx, append(opts, rt.WithModelFile(write(t, "family", func(m *golden.Model) { m.Family = strings.Replace(m.Family, old, new, 1) })...))...)
}

// closed closes a runner and returns err.
func closed(r interface{ Close() error }, err error) error { return errors.Join(err, r.Close()) }

// TestBadSizes reaches everything that may be wrong with sizes through what users call, and wants the
// error that says what to do. testdata/badsizes.txt has the texts; -update-texts writes it.
func TestBadSizes(t *testing.T) {
	refused := func(err error) bool { var e *compile.FamilyError; return errors.As(err, &e) }
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	var texts strings.Builder
	for _, c := range []struct {
		name string
		is   func(error) bool
		run  func(t *testing.T) error
	}{
		{"an empty family", refused, func(*testing.T) error { return compiled(nil) }},
		{"a member twice", refused, func(*testing.T) error { return compiled(nil, [3]int64{1, 2, 2}, [3]int64{1, 2, 2}) }},
		{"members that differ in more than sizes", refused, func(*testing.T) error {
			m := sums()
			m.Graph.Inputs[1].HasShape, m.Graph.Inputs[1].Dims = false, nil
			_, err := compile.Compile(m, compile.Options{Members: []compile.Sizes{{Shapes: map[string][]int64{"a": {2, 3}, "b": {2, 3}}}, {Shapes: map[string][]int64{"a": {2, 3}, "b": {3}}}}})
			return err
		}},
		{"a file whose members differ in more than sizes", is(family.ErrFamily), func(t *testing.T) error {
			_, err := sizes.Open(ctx, rt.WithModelFile(write(t, "family", func(m *golden.Model) {
				m.Executable.Compute = nil
				m.Anchors[4].Type = "F16"
			})...), rt.WithBackend("cpu"))
			return err
		}},
		{"dimensions that meet", refused, func(*testing.T) error {
			return compiled(nil, [3]int64{1, 2, 2}, [3]int64{1, 5, 2}, [3]int64{1, 2, 4})
		}},
		{"a size that no member holds", is(rt.ErrSize), func(t *testing.T) error {
			r, err := sizes.Open(ctx)
			require.NoError(t, err)
			out := sizes.NewOutputs()
			err = closed(r, r.Run(ctx, sizes.NewInputs(3, 4), out))
			require.Empty(t, out.Y.Flat(), "nothing half done")
			return err
		}},
		{"inputs that differ in a dimension", is(rt.ErrSize), func(t *testing.T) error {
			r, err := sizes.Open(ctx)
			require.NoError(t, err)
			in := sizes.NewInputs(2, 4)
			in.Mask.Resize(2, 3)
			return closed(r, r.Run(ctx, in, sizes.NewOutputs()))
		}},
		{"padding without a mask", is(rt.ErrSize), func(t *testing.T) error {
			r, err := found.Open(ctx, write(t, "family_found", nil)[0])
			require.NoError(t, err)
			return closed(r, r.Run(ctx, found.NewInputs(3), found.NewOutputs()))
		}},
		{"padding of some inputs", refused, func(*testing.T) error {
			return compiled(map[string][]family.Pad{"batch": {{Input: "a", Value: "0"}}}, [3]int64{1, 2, 2}, [3]int64{2, 2, 2})
		}},
		{"a count beyond the bound", is(rt.ErrData), func(t *testing.T) error {
			r, err := counts.Open(ctx)
			require.NoError(t, err)
			in := counts.NewInputs()
			in.K.Data, in.L.Data = 4, 1
			return closed(r, r.Run(ctx, in, counts.NewOutputs()))
		}},
		{"plans beyond the budget", is(ipu.ErrMemory), func(t *testing.T) error {
			const memory = 60 << 10 // enough for each, not for all
			_, err := sizes.Open(ctx, rt.WithEngineOption("memory", fmt.Sprint(memory)))
			return err
		}},
		{"a family that the file does not hold", is(family.ErrFamily), func(t *testing.T) error {
			_, err := openSizes(t, `[2, 8]`, `[2, 9]`)
			return err
		}},
		{"a member that the package has and the model has not", is(rt.ErrContract), func(t *testing.T) error {
			_, err := sizes.Open(ctx, rt.WithModelFile(write(t, "family", func(m *golden.Model) {
				m.Main, m.Anchors = m.Main[:2], m.Anchors[:7]
				delete(m.Executable.Compute, 11)
				m.Family = strings.Replace(m.Family, `, {"program": 11, "sizes": [2, 8], "cost": 16}`, "", 1)
			})...))
			return err
		}},
		{"a state twice", is(gen.ErrBuild), func(t *testing.T) error {
			m, err := popef.Load(write(t, "state", nil)...)
			require.NoError(t, err)
			_, err = gen.Build(m, gen.Options{Package: "state", State: []gen.StatePair{{Out: "total_out", In: "total"}, {Out: "total_out", In: "steps"}}})
			return closed(m, err)
		}},
		{"a stream used by two callers", is(rt.ErrConcurrent), func(t *testing.T) error {
			var s *state.Stream
			second := make(chan error, 1)
			r, err := state.Open(ctx, rt.WithObserver(func(e rt.Event) {
				if e.Kind == rt.EventRequestBegun { // the first one is using it
					second <- s.Run(ctx, state.NewStreamInputs(), state.NewStreamOutputs())
				}
			}))
			require.NoError(t, err)
			s, err = r.NewStream()
			require.NoError(t, err)
			require.NoError(t, s.Run(ctx, state.NewStreamInputs(), state.NewStreamOutputs()))
			return closed(r, <-second)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.run(t)
			require.Error(t, err)
			require.True(t, c.is(err), "%T: %v", err, err)
			text := err.Error()
			if errors.Is(err, ipu.ErrMemory) { // how much follows from the processor
				text, _, _ = strings.Cut(text, "out of memory")
			}
			fmt.Fprintf(&texts, "%s:\n\t%s\n", c.name, text)
		})
	}
	path := filepath.Join("testdata", "badsizes.txt")
	if *updateTexts {
		require.NoError(t, os.MkdirAll("testdata", 0o777))
		require.NoError(t, os.WriteFile(path, []byte(texts.String()), 0o666))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), texts.String())
}

var updateTexts = flag.Bool("update-texts", false, "store the texts of errors")
