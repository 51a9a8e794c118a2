package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/oip"
)

func spec() *oip.Spec {
	return &oip.Spec{
		Name: "m", Samples: 8,
		Inputs: []oip.Tensor{
			{Name: "a", Type: oip.FP32, Shape: []int64{-1, 4}, Max: []int64{8, 4}},
			{Name: "b", Type: oip.Int64, Shape: []int64{-1}, Max: []int64{8}},
		},
		Outputs: []oip.Tensor{{Name: "y", Type: oip.FP32, Shape: []int64{-1, 2}, Max: []int64{8, 2}}},
	}
}

// TestInputs tells every way in which an input does not fit its model from the others.
func TestInputs(t *testing.T) {
	type input struct {
		name, typ string
		shape     []int64
	}
	b := input{"b", "INT64", []int64{3}}
	for _, c := range []struct {
		name   string
		inputs []input
		err    string // "" if they are right
	}{
		{"right", []input{{"a", "FP32", []int64{3, 4}}, b}, ""},
		{"in another order", []input{b, {"a", "FP32", []int64{3, 4}}}, ""},
		{"missing", []input{b}, "expected 2 inputs but got 1 inputs for model 'm'. Input 'a' is missing"},
		{"unknown", []input{{"c", "FP32", nil}}, "unexpected inference input 'c' for model 'm', expected 'a', 'b'"},
		{"twice", []input{b, b}, "input 'b' for model 'm' is given twice"},
		{"type", []input{{"a", "FP64", []int64{3, 4}}}, "inference input 'a' data-type is 'FP64', but model 'm' expects 'FP32'"},
		{"rank", []input{{"a", "FP32", []int64{4}}}, "unexpected shape for input 'a' for model 'm'. Expected [-1,4] of at most [8,4], got [4]"},
		{"fixed size", []input{{"a", "FP32", []int64{1, 5}}}, "unexpected shape for input 'a' for model 'm'. Expected [-1,4] of at most [8,4], got [1,5]"},
		{"negative", []input{{"a", "FP32", []int64{-1, 4}}}, "unexpected shape for input 'a' for model 'm'. Expected [-1,4] of at most [8,4], got [-1,4]"},
		{"no sample", []input{{"b", "INT64", []int64{0}}}, "unexpected shape for input 'b' for model 'm'. Expected [-1] of at most [8], got [0]"},
		{"huge", []input{{"b", "INT64", []int64{math.MaxInt64}}}, "unexpected shape for input 'b' for model 'm'. Expected [-1] of at most [8], got [9223372036854775807]"},
		{"samples", []input{b, {"a", "FP32", []int64{2, 4}}}, "input 'a' of model 'm' has 2 samples, but input 'b' has 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Request
			r.Reset(spec())
			err := func() error {
				for _, in := range c.inputs {
					i, n, err := r.Input([]byte(in.name), []byte(in.typ), in.shape)
					if err != nil {
						return err
					}
					require.Equal(t, map[string][2]int{"a": {0, 48}, "b": {1, 24}}[in.name], [2]int{i, n})
				}
				return r.Done()
			}()
			if c.err == "" {
				require.NoError(t, err)
				require.Equal(t, 3, r.Samples())
				require.Equal(t, []Wanted{{}}, r.Wanted)
				return
			}
			require.EqualError(t, err, c.err)
			var e *oip.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, oip.InvalidArgument, e.Code)
		})
	}
}
