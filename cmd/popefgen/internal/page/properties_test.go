package page

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

// What a model is stands first, whole and in numbers.
func TestProperties(t *testing.T) {
	m := digitsModel(t)
	s, err := newSheet(m, "", true)
	require.NoError(t, err)
	got := map[string]string{}
	for _, p := range s.Properties {
		got[p.Name] = p.Value
	}
	// 16·1·3·3+16 + 32·16·3·3+32 + 512·64+64 + 64·10+10 numbers; 2 operations
	// for each weight and place of a convolution, for each of a product.
	require.Equal(t, "38.3 k", got["parameters"])
	require.Equal(t, amount(2*(8*8*16*9+8*8*32*16*9+512*64+64*10)), got["FLOPs"])
	require.NotEmpty(t, got["memory"])
	require.NotEmpty(t, got["file"])
	require.Regexp(t, `^\d+$`, got["opset"])
	require.Contains(t, got["producer"], "pytorch")
	require.Equal(t, []interfaceEnd{{"image", "f32 [1,1,8,8]"}}, s.Inputs)
	require.Equal(t, []interfaceEnd{{"probabilities", "f32 [1,10]"}}, s.Outputs)
	require.Equal(t, m.Model.MetadataBlob().Size+m.Model.ExecutableBlob().Size, fileBytes(m.Model)-sizes(m))

	require.Len(t, ends(make([]interfaceEnd, 30)), maxEnds+1)
}

func sizes(m Model) (n int64) {
	for _, b := range append(m.Model.Tensors(), m.Model.Opaques()...) {
		n += b.Size
	}
	return n
}

func TestAmount(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12: "12", 999: "999", 999.9: "1 k", 12345: "12.3 k", 8.18e9: "8.18 G", 3e21: "3e+06 P"} {
		require.Equal(t, want, amount(v))
	}
}

func TestWorkOfBranchesAndLoops(t *testing.T) {
	e := perceptron(8, 32, 4)
	one := work(e)
	require.Equal(t, float64(2*(8*32*16+4*8*4*4)), one)
	e.Programs[0].Steps = []graph.Step{{Kind: graph.Repeat, Count: 3, Body: e.Programs[0].Steps}}
	require.Equal(t, 3*one, work(e))
	// What load programs compute is none of a request's work.
	e = pytorch(2, true)
	require.Equal(t, float64(2*(4*8*16*16+8*4*16)), work(e))
	require.Equal(t, 14, running(e))
	require.Equal(t, 16, operators(e))
}
