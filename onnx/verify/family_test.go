package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
)

// writeCase writes a case with data sets of tensors: inputs, then one output.
func writeCase(t *testing.T, m *onnx.Model, sets ...[]*onnx.Tensor) Case {
	t.Helper()
	c := Case{Dir: t.TempDir()}
	data, err := onnx.Encode(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.Dir, modelFile), data, 0o666))
	for i, tensors := range sets {
		set := filepath.Join(c.Dir, fmt.Sprint(setPrefix, i))
		require.NoError(t, os.Mkdir(set, 0o777))
		c.Sets = append(c.Sets, set)
		for k, x := range tensors {
			name := fmt.Sprintf("input_%d.pb", k)
			if k == len(tensors)-1 {
				name = "output_0.pb"
			}
			data, err := onnx.EncodeTensor(x)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(set, name), data, 0o666))
		}
	}
	return c
}

func floats(name string, dims []int64, vs ...float32) *onnx.Tensor {
	return &onnx.Tensor{Name: name, Elem: onnx.Float, Dims: dims, Data: f32(vs...)}
}

// TestFamilyOfDataSets runs data sets through the members of a family: the exact one and, along a
// dimension that may be filled up, the next larger one.
func TestFamilyOfDataSets(t *testing.T) {
	added := masked(onnxtest.Node("Add", []string{"x", "mask"}, []string{"y"}))
	set := func(batch, seq int64, off float32) []*onnx.Tensor {
		var x, mask, y []float32
		for i := range batch * seq {
			x, mask, y = append(x, float32(i)), append(mask, 1), append(y, float32(i)+1)
		}
		y[len(y)-1] += off
		dims := []int64{batch, seq}
		return []*onnx.Tensor{floats("x", dims, x...), floats("mask", dims, mask...), floats("y", dims, y...)}
	}
	sizes := func(all ...[2]int64) func(*onnx.Model) (compile.Options, error) {
		return func(*onnx.Model) (o compile.Options, err error) {
			for _, s := range all {
				o.Members = append(o.Members, compile.Sizes{Dims: map[string]int64{"batch": s[0], "seq": s[1]}})
			}
			return o, nil
		}
	}
	summed := masked(onnxtest.Node("Softmax", []string{"x"}, []string{"y"}))
	halves := func(batch int64) []*onnx.Tensor {
		dims := []int64{batch, 2}
		x, y := make([]float32, batch*2), make([]float32, batch*2)
		for i := range y {
			y[i] = 0.5
		}
		return []*onnx.Tensor{floats("x", dims, x...), floats("mask", dims, x...), floats("y", dims, y...)}
	}
	for _, c := range []struct {
		name    string
		model   *onnx.Model
		sets    [][]*onnx.Tensor
		members func(*onnx.Model) (compile.Options, error)
		data    bool
		want    []string // set, verdict, member, filled
	}{
		{"given", added, [][]*onnx.Tensor{set(1, 3, 0), set(2, 3, 0)}, sizes([2]int64{1, 3}, [2]int64{2, 3}, [2]int64{1, 5}), false, []string{
			"0 PASS batch=1 seq=3 <", "0 PASS batch=2 seq=3 < batch=1 seq=3", "0 PASS batch=1 seq=5 < batch=1 seq=3", "1 PASS batch=2 seq=3 <"}},
		{"of the data", added, [][]*onnx.Tensor{set(1, 3, 0), set(2, 3, 0), set(1, 3, 0)}, nil, true, []string{
			"0 PASS batch=1 <", "0 PASS batch=2 < batch=1", "1 PASS batch=2 <", "2 PASS batch=1 <", "2 PASS batch=2 < batch=1"}},
		{"given and of the data", added, [][]*onnx.Tensor{set(2, 3, 0)}, sizes([2]int64{2, 3}, [2]int64{2, 4}), true, []string{
			"0 PASS seq=3 <", "0 PASS seq=4 < seq=3"}},
		{"one size", added, [][]*onnx.Tensor{set(2, 3, 0)}, nil, true, []string{"0 PASS  <"}},
		{"wrong", added, [][]*onnx.Tensor{set(1, 3, 1), set(2, 3, 0)}, nil, true, []string{
			"0 FAIL batch=1 <", "0 FAIL batch=2 < batch=1", "1 PASS batch=2 <"}},
		{"between members", added, [][]*onnx.Tensor{set(2, 3, 0)}, sizes([2]int64{1, 3}, [2]int64{4, 3}), false, []string{"0 PASS batch=4 < batch=2"}},
		{"no member", added, [][]*onnx.Tensor{set(5, 3, 0), set(1, 3, 0)}, sizes([2]int64{1, 3}, [2]int64{4, 3}), false, []string{
			"0 FAIL  <", "1 PASS batch=1 <", "1 PASS batch=4 < batch=1"}},
		{"rows only", summed, [][]*onnx.Tensor{halves(1)}, sizes([2]int64{1, 2}, [2]int64{2, 2}, [2]int64{1, 4}), false, []string{
			"0 PASS batch=1 seq=2 <", "0 PASS batch=2 seq=2 < batch=1 seq=2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			results, err := Run(t.Context(), writeCase(t, c.model, c.sets...), Options{Execute: execute, Members: c.members, SizesOfData: c.data})
			require.NoError(t, err)
			var got []string
			for _, r := range results {
				text := fmt.Sprintf("%s %s %s <", r.Set[len(r.Set)-1:], r.Verdict, r.Member)
				if r.Filled != "" {
					text += " " + r.Filled
				}
				got = append(got, text)
				require.Equal(t, r.Verdict == Pass, r.Reason == "", r.Reason)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// TestFamilyWithBoundValues has an input whose value decides a shape: sets with the same value
// go through one family, others through another.
func TestFamilyWithBoundValues(t *testing.T) {
	dims := []onnx.Dim{{Symbol: "batch"}, {Known: true, Value: 2}}
	m := onnxtest.Model(18, &onnx.Graph{Name: "tops",
		Inputs:  []onnx.ValueInfo{{Name: "x", Elem: onnx.Float, HasShape: true, Dims: dims}, {Name: "s", Elem: onnx.Int64, HasShape: true, Dims: []onnx.Dim{{Known: true, Value: 1}}}},
		Outputs: []onnx.ValueInfo{{Name: "y", Elem: onnx.Float, HasShape: true, Dims: dims}},
		Nodes:   []*onnx.Node{onnxtest.Node("CumSum", []string{"x", "s"}, []string{"y"})},
	})
	set := func(batch int64, axis byte, y ...float32) []*onnx.Tensor {
		x := make([]float32, len(y))
		for i := range x {
			x[i] = 1
		}
		return []*onnx.Tensor{floats("x", []int64{batch, 2}, x...), {Name: "s", Elem: onnx.Int64, Dims: []int64{1}, Data: []byte{axis, 0, 0, 0, 0, 0, 0, 0}}, floats("y", []int64{batch, 2}, y...)}
	}
	c := writeCase(t, m, set(1, 1, 1, 2), set(2, 1, 1, 2, 1, 2), set(2, 0, 1, 1, 2, 2), set(1, 1, 1, 2))
	results, err := Run(t.Context(), c, Options{Execute: execute, SizesOfData: true})
	require.NoError(t, err)
	require.Len(t, results, 6) // a sum over the batch is not filled up
	for _, r := range results {
		require.Equal(t, Pass, r.Verdict, r.Reason)
	}
}

// TestFamilyOfCounts cuts outputs whose lengths data decides, by the member's own count.
func TestFamilyOfCounts(t *testing.T) {
	m := onnxtest.Model(18, &onnx.Graph{Name: "found",
		Inputs:  []onnx.ValueInfo{{Name: "x", Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Symbol: "n"}}}},
		Outputs: []onnx.ValueInfo{{Name: "at", Elem: onnx.Int64}},
		Nodes:   []*onnx.Node{onnxtest.Node("NonZero", []string{"x"}, []string{"at"})},
	})
	index := func(at ...byte) *onnx.Tensor {
		x := &onnx.Tensor{Name: "at", Elem: onnx.Int64, Dims: []int64{1, int64(len(at))}}
		for _, i := range at {
			x.Data = append(x.Data, i, 0, 0, 0, 0, 0, 0, 0)
		}
		return x
	}
	c := writeCase(t, m, []*onnx.Tensor{floats("x", []int64{3}, 0, 1, 2), index(1, 2)}, []*onnx.Tensor{floats("x", []int64{5}, 1, 0, 0, 0, 1), index(0, 4)}, []*onnx.Tensor{floats("x", []int64{3}, 0, 0, 0), index()})
	results, err := Run(t.Context(), c, Options{Execute: execute, SizesOfData: true})
	require.NoError(t, err)
	require.Len(t, results, 3)
	for i, r := range results {
		require.Equal(t, Pass, r.Verdict, r.Reason)
		require.Equal(t, []string{"n=3", "n=5", "n=3"}[i], r.Member)
	}
}
