package verify

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef/family"
)

// publicFamilies are the public models with open dimensions. A family has each combination of
// their sizes: those of the data sets, and larger ones.
var publicFamilies = []struct {
	model string
	dims  []string
	sizes [][]int64
	// pads are declared along the last dimension, for all inputs.
	pads bool
	// filled are the dimensions along which requests are filled up.
	filled []string
}{
	{model: "basic_pitch", dims: []string{"unk__749"}, sizes: [][]int64{{1, 2, 3, 4}}, filled: []string{"unk__749"}},
	// Its attention goes over the batch.
	{model: "bert_mlm_small", dims: []string{"batch", "tokens"}, sizes: [][]int64{{1, 2}, {11, 16, 32, 40}}, pads: true, filled: []string{"tokens"}},
	{model: "bidi_lstm_bytes", dims: []string{"batch", "length"}, sizes: [][]int64{{1, 3, 4}, {17, 64, 80}}, filled: []string{"batch"}},
	{model: "gru_ndm", dims: []string{"batch_size", "sequence_length"}, sizes: [][]int64{{1, 5, 8}, {24, 96}}, filled: []string{"batch_size"}},
	{model: "lgbm_tensor", dims: []string{"batch"}, sizes: [][]int64{{1, 4, 8, 16}}, filled: []string{"batch"}},
	{model: "magika_bytes", dims: []string{"unk__214"}, sizes: [][]int64{{1, 2, 3, 4}}, filled: []string{"unk__214"}},
	{model: "microkws_qdq", dims: []string{"unk__68"}, sizes: [][]int64{{1, 4, 16, 32}}, filled: []string{"unk__68"}},
	{model: "ppocr_cls", dims: []string{"p2o.DynamicDimension.0", "p2o.DynamicDimension.1", "p2o.DynamicDimension.2"},
		sizes: [][]int64{{1, 6, 8}, {48}, {192, 256}}, filled: []string{"p2o.DynamicDimension.0"}},
	{model: "silero_vad_16k", dims: []string{"batch", "sequence"}, sizes: [][]int64{{1, 2, 4, 5}, {512}}, filled: []string{"batch"}},
	{model: "superres_224", dims: []string{"batch_size"}, sizes: [][]int64{{1, 2, 3, 4}}, filled: []string{"batch_size"}},
	{model: "synth_bert_tiny", dims: []string{"batch", "sequence"}, sizes: [][]int64{{1, 2, 4}, {23, 64, 80}}, pads: true, filled: []string{"batch", "sequence"}},
	{model: "t5_encoder_small", dims: []string{"batch", "tokens"}, sizes: [][]int64{{1, 2, 4}, {7, 32}}, filled: []string{"batch"}},
	{model: "velardo_mlp", dims: []string{"N"}, sizes: [][]int64{{1, 4, 8, 16}}, filled: []string{"N"}},
}

// TestPublicFamilies runs every data set of every public model with open dimensions
// through a family: by the member of its size and, where padding is allowed, filled up by the
// next larger one along each dimension.
func TestPublicFamilies(t *testing.T) {
	if testing.Short() {
		t.Skip("the public models take seconds")
	}
	dir := filepath.Join(testData(t), "models")
	for _, c := range publicFamilies {
		t.Run(c.model, func(t *testing.T) {
			found, err := Find([]string{filepath.Join(dir, c.model)}, false)
			require.NoError(t, err)
			tol := Tolerance{Rel: 1e-3, Abs: 1e-4}
			if c.model == "microkws_qdq" {
				tol = Tolerance{Abs: 1.0 / 256} // one quantisation step of its output
			}
			members := func(m *onnx.Model) (compile.Options, error) {
				o := compile.Options{Members: product(c.dims, c.sizes)}
				require.GreaterOrEqual(t, len(o.Members), 4)
				if c.pads {
					o.Pads = map[string][]family.Pad{}
					last := c.dims[len(c.dims)-1]
					for _, in := range m.Graph.Inputs {
						o.Pads[last] = append(o.Pads[last], family.Pad{Input: in.Name, Value: "0"})
					}
				}
				return o, nil
			}
			results, err := Run(t.Context(), found[0], Options{Tolerance: tol, Execute: execute, Members: members})
			require.NoError(t, err)
			exact, filled := map[string]bool{}, map[string]bool{}
			for _, r := range results {
				require.Equal(t, Pass, r.Verdict, "%s by %s: %s", r.Set, r.Member, r.Reason)
				if r.Filled == "" {
					exact[r.Set] = true
					continue
				}
				for d, word := range strings.Fields(r.Filled) {
					if name, _, _ := strings.Cut(word, "="); word != strings.Fields(r.Member)[d] {
						filled[name] = true
					}
				}
			}
			require.Len(t, exact, len(found[0].Sets), "sets by the member of their size")
			require.ElementsMatch(t, c.filled, slices.Collect(maps.Keys(filled)))
		})
	}
}

// product returns members with every combination of sizes.
func product(names []string, sizes [][]int64) []compile.Sizes {
	all := []compile.Sizes{{Dims: map[string]int64{}}}
	for i, name := range names {
		var next []compile.Sizes
		for _, s := range all {
			for _, n := range sizes[i] {
				dims := map[string]int64{name: n}
				for k, v := range s.Dims {
					dims[k] = v
				}
				next = append(next, compile.Sizes{Dims: dims})
			}
		}
		all = next
	}
	return all
}
