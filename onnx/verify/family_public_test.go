package verify

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/popef"
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
			m, err := onnx.ReadFile(filepath.Join(dir, c.model, modelFile))
			require.NoError(t, err)
			o := compile.Options{Members: product(c.dims, c.sizes)}
			require.GreaterOrEqual(t, len(o.Members), 4)
			if c.pads {
				o.Pads = map[string][]family.Pad{}
				last := c.dims[len(c.dims)-1]
				for _, in := range m.Graph.Inputs {
					o.Pads[last] = append(o.Pads[last], family.Pad{Input: in.Name, Value: "0"})
				}
			}
			r, err := compile.Compile(m, o)
			require.NoError(t, err)
			model, err := r.Model(c.model)
			require.NoError(t, err)
			defer model.Close()
			tol := Tolerance{Rel: 1e-3, Abs: 1e-4}
			if c.model == "microkws_qdq" {
				tol = Tolerance{Abs: 1.0 / 256} // one quantisation step of its output
			}
			s := &stored{r: r, m: model, tol: tol}
			filled := map[string]bool{}
			for _, set := range found[0].Sets {
				s.read(t, m, set)
				exact := s.f().Member(s.sizes)
				require.GreaterOrEqual(t, exact, 0, "%s: no member of %v", set, s.sizes)
				chosen, _, err := s.f().Choose(s.sizes)
				require.NoError(t, err)
				require.Equal(t, exact, chosen)
				s.through(t, exact)
				for d := range s.f().Dims {
					larger := s.larger(d)
					if larger < 0 || !s.f().Dims[d].Padded() {
						continue
					}
					s.through(t, larger)
					filled[s.f().Dims[d].Name] = true
				}
			}
			var got []string
			for _, d := range s.f().Dims {
				if filled[d.Name] {
					got = append(got, d.Name)
				}
			}
			require.Equal(t, c.filled, got, "%v", r.Mixed)
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

// stored is a data set as a request to a family.
type stored struct {
	r     *compile.Result
	m     *popef.Model
	tol   Tolerance
	set   string
	ins   map[string]*onnx.Tensor
	wants []*onnx.Tensor
	sizes []int64
}

func (s *stored) f() *family.Family { return s.r.Family }

func (s *stored) read(t *testing.T, m *onnx.Model, set string) {
	t.Helper()
	s.set = filepath.Base(set)
	ins, err := readTensors(set, "input")
	require.NoError(t, err)
	s.wants, err = readTensors(set, "output")
	require.NoError(t, err)
	require.Len(t, s.wants, len(s.r.Outputs))
	s.ins, err = nameInputs(m.Graph, ins)
	require.NoError(t, err)
	shapes := map[string][]int64{}
	for name, in := range s.ins {
		shapes[name] = in.Dims
	}
	s.sizes, err = s.f().Sizes(shapes)
	require.NoError(t, err)
}

// larger returns the member that is the next larger one in dimension d alone, -1 if there is none.
func (s *stored) larger(d int) int {
	best := -1
	for i, m := range s.f().Members {
		same := slices.Clone(m.Sizes)
		same[d] = s.sizes[d]
		if slices.Equal(same, s.sizes) && m.Sizes[d] > s.sizes[d] && (best < 0 || m.Sizes[d] < s.f().Members[best].Sizes[d]) {
			best = i
		}
	}
	return best
}

// through fills the data set up to a member's sizes, runs it, cuts the results back and
// compares them with the stored ones.
func (s *stored) through(t *testing.T, member int) {
	t.Helper()
	f := s.f()
	what := fmt.Sprintf("%s of %s by the member %s", s.set, f.Named(s.sizes), f.Named(f.Members[member].Sizes))
	ins := map[string][]byte{}
	for i := range f.Tensors {
		tensor := &f.Tensors[i]
		if tensor.Type != popef.Input {
			continue
		}
		in := s.ins[tensor.Name]
		require.NotNil(t, in, "%s: no input %q", what, tensor.Name)
		to := tensor.Shape(member, f.Members[member].Sizes)
		value := make([]byte, tensor.Elem.Size())
		for d := range f.Dims {
			for _, p := range f.Dims[d].Pads {
				if p.Input == tensor.Name && f.Members[member].Sizes[d] != s.sizes[d] {
					v, err := tensorfile.ReadValue(p.Value, popef.TensorInfo{DataType: tensor.Elem}, 1)
					require.NoError(t, err)
					value = v
				}
			}
		}
		ins[tensor.Name] = make([]byte, sizeIn(tensor, to))
		family.Move(ins[tensor.Name], to, in.Data, in.Dims, tensor.Elem.Size(), value)
	}
	outs, err := execute(t.Context(), f.Single(s.m, member), ins)
	require.NoError(t, err, what)
	for i, p := range s.r.Outputs {
		want, tensor := s.wants[i], f.Tensor(p.Name, popef.Output)
		require.NotNil(t, tensor)
		shape := tensor.Shape(member, s.sizes)
		require.Equal(t, want.Dims, shape, "%s: output %q", what, p.Name)
		got := make([]byte, sizeIn(tensor, shape))
		family.Move(got, shape, outs[p.Name], tensor.Shape(member, f.Members[member].Sizes), tensor.Elem.Size(), nil)
		d, err := Compare(want.Type(), got, want.Data, s.tol)
		require.NoError(t, err, what)
		require.Zero(t, d.Bad, "%s: output %q: %v", what, p.Name, d)
	}
}
