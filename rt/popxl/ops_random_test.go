package popxl_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// philox is Philox4x32-10 of Salmon, Moraes, Dror and Shaw (2011), by its definition.
func philox(key [2]uint32, counter [4]uint32) [4]uint32 {
	for range 10 {
		a, b := uint64(0xD2511F53)*uint64(counter[0]), uint64(0xCD9E8D57)*uint64(counter[2])
		counter = [4]uint32{uint32(b>>32) ^ counter[1] ^ key[0], uint32(b), uint32(a>>32) ^ counter[3] ^ key[1], uint32(a)}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}

// TestRandomOperators: what is drawn is Philox's, whose known answers the test's own has; a network's dropout and its gradient drop the same elements.
func TestRandomOperators(t *testing.T) {
	require.Equal(t, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, philox([2]uint32{}, [4]uint32{}), "Random123's known answer")
	key := [2]uint32{7, 1 << 31}
	ir := popxl.New("random")
	seed := popxl.NewInput[uint32](ir, "seed", 2).Load()
	x := popxl.Constant(ir, []float32{1, 2, 3, 4, 5, 6, 7, 8}, 8)
	popxl.NewOutput("uniform", ops.RandomUniform[float32](seed, -1, 3, 8))
	popxl.NewOutput("normal", ops.RandomNormal[float64](seed, 10, 2, 2, 2))
	split := ops.SplitRandomSeed(seed, 3)
	popxl.NewOutput("split", ops.Concat(0, split...))
	popxl.NewOutput("other", ops.RandomUniform[float32](split[2], 0, 1, 4))
	weight := popxl.NewVariable(ir, "weight", []float32{1})
	dropped := ops.Dropout(ops.Mul(x, weight.Tensor()), seed, 0.25)
	popxl.NewOutput("dropped", dropped)
	popxl.NewOutput("gradient", popxl.GradOf(popxl.Gradients(ops.Sum(dropped), weight.Tensor()), weight.Tensor()))
	popxl.NewOutput("none", ops.Dropout(x, seed, 0))
	got := run(t, ir, map[string]any{"seed": key[:]})

	unit := func(word uint32) float64 { return float64(word>>8) / (1 << 24) }
	var words []uint32
	for block := range uint32(2) {
		w := philox(key, [4]uint32{block})
		words = append(words, w[:]...)
	}
	sum := float32(0)
	for i, w := range words {
		require.InDelta(t, -1+4*unit(w), decode[float32](t, got["uniform"])[i], 1e-6)
		want := float32(0)
		if unit(w) >= 0.25 {
			want = float32(i+1) / 0.75
		}
		require.InDelta(t, want, decode[float32](t, got["dropped"])[i], 1e-5)
		sum += want
	}
	require.InDelta(t, sum, decode[float32](t, got["gradient"])[0], 1e-4)
	require.Greater(t, sum, float32(0))
	require.Less(t, sum, float32(36/0.75), "something is dropped")
	require.Equal(t, []float32{1, 2, 3, 4, 5, 6, 7, 8}, decode[float32](t, got["none"]))
	for i := 0; i < 4; i += 2 {
		radius, angle := math.Sqrt(-2*math.Log(unit(words[i])+1.0/(1<<24))), 2*math.Pi*unit(words[i+1])
		require.InDelta(t, 10+2*radius*math.Cos(angle), decode[float64](t, got["normal"])[i], 1e-5)
		require.InDelta(t, 10+2*radius*math.Sin(angle), decode[float64](t, got["normal"])[i+1], 1e-5)
	}
	a, b := philox(key, [4]uint32{0, 1}), philox(key, [4]uint32{1, 1})
	require.Equal(t, []uint32{a[0], a[1], a[2], a[3], b[0], b[1]}, decode[uint32](t, got["split"]))
	for i, w := range philox([2]uint32{b[0], b[1]}, [4]uint32{}) {
		require.InDelta(t, unit(w), decode[float32](t, got["other"])[i], 1e-6)
	}
}

// TestRandomMistakes: seeds of other sizes, probabilities and numbers that are none.
func TestRandomMistakes(t *testing.T) {
	ir := popxl.New("wrong")
	seed, x := popxl.NewInput[uint32](ir, "seed", 2).Load(), popxl.NewInput[float32](ir, "x", 2).Load()
	for want, do := range map[string]func(){
		"ops.RandomUniform: seed is u32[1]":                               func() { ops.RandomUniform[float32](popxl.Constant(ir, []uint32{1}, 1), 0, 1, 2) },
		"ops.RandomNormal: ":                                              func() { ops.RandomNormal[float32](seed, 0, 1, -1) },
		"ops.SplitRandomSeed: 0 seeds, want 1 to 65536":                   func() { ops.SplitRandomSeed(seed, 0) },
		"ops.Dropout: probability 1, want 0 or more and less than 1":      func() { ops.Dropout(x, seed, 1) },
		"ops.Dropout: probability NaN":                                    func() { ops.Dropout(x, seed, math.NaN()) },
		"ops.SplitRandomSeed: 9223372036854775807 seeds, want 1 to 65536": func() { ops.SplitRandomSeed(seed, math.MaxInt64) },
	} {
		before := len(errors(ir))
		do()
		require.Len(t, errors(ir), before+1, want)
		require.ErrorContains(t, errors(ir)[before], want)
	}
	before := len(errors(ir))
	ops.Dropout(popxl.Tensor[float32]{}, seed, 0.5)
	require.Len(t, ops.SplitRandomSeed(popxl.Tensor[uint32]{}, 2), 2)
	require.Len(t, errors(ir), before)
}
