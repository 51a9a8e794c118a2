package cpu

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/ipu/graph/pass"
)

// drawNets draws an executable of two or three networks, each with a main program of its
// own, that share weights and constants; some of the programs call the same graph.
func drawNets(t *rapid.T) (m *model, exe []byte, sizes []int64) {
	d := &netDraw{T: t, model: newModel("nets"), pool: map[string][]graph.TensorID{}}
	var mains [][]graph.Step
	for i := range rapid.IntRange(2, 3).Draw(t, "nets") {
		if i > 0 && rapid.IntRange(0, 4).Draw(t, "same graph") == 0 {
			steps := slices.Clone(mains[i-1])
			steps[0], steps[2] = d.b.CopyIn(fmt.Sprint("x#", i), steps[0].Tensor), d.b.CopyOut(fmt.Sprint("y#", i), steps[2].Tensor)
			mains, sizes = append(mains, steps), append(sizes, sizes[i-1])
			continue
		}
		size := rapid.SampledFrom([]int64{1, 2, 3}).Draw(t, "size")
		x := d.b.AddLocal("x", f32(size, 4, 5, 6))
		g := d.b.BeginGraph(fmt.Sprint("main ", i))
		y := d.layers(x)
		mains = append(mains, []graph.Step{d.b.CopyIn(fmt.Sprint("x#", i), x), d.b.Call(g), d.b.CopyOut(fmt.Sprint("y#", i), y)})
		sizes = append(sizes, size)
	}
	d.b.AddProgram(0, "load", d.loads()...)
	for i, steps := range mains {
		d.b.AddProgram(familyStart+i, "main", steps...)
	}
	return d.model, executable(t, d.b), sizes
}

// onlyMain leaves of an executable its load program and one of its main programs.
func onlyMain(t require.TestingT, exe []byte, main int) []byte {
	e, err := encoding.Decode(exe)
	require.NoError(t, err)
	e.Programs = slices.DeleteFunc(e.Programs, func(p graph.Program) bool { return p.Index != 0 && p.Index != main })
	var others []string
	for _, p := range pass.Passes[:len(pass.Passes)-1] {
		others = append(others, p.Name)
	}
	var b bytes.Buffer
	require.NoError(t, encoding.Encode(&b, e))
	return optimized(t, b.Bytes(), others)
}

// runNets connects the streams of the main programs that there are, and returns what each
// of them gives, after all have run in some order.
func (m *model) runNets(t require.TestingT, e runner, sizes []int64, mains ...int) map[int][]float32 {
	for name, v := range m.weights {
		require.NoError(t, e.Connect(name, constant{direct{newHost(t, bytesOf(v))}}))
	}
	out := map[int][]float32{}
	for _, i := range mains {
		n := int(sizes[i]) * 120
		out[i] = make([]float32, n)
		require.NoError(t, e.Connect(fmt.Sprint("x#", i), sink{bytesOf(wave(n, 1))}))
		require.NoError(t, e.Connect(fmt.Sprint("y#", i), sink{bytesOf(out[i])}))
	}
	run(t, e, 0)
	for _, i := range mains {
		run(t, e, familyStart+i)
	}
	return out
}

// TestPassesOnFamilies runs passes, each alone and all of them, on executables with several
// main programs over the same weights. Each program gives the bits of its network alone
// after the same passes.
func TestPassesOnFamilies(t *testing.T) {
	fewerChecks(t, "40")
	rapid.Check(t, func(t *rapid.T) {
		m, exe, sizes := drawNets(t)
		order := rapid.Permutation([]int{0, 1, 2}[:len(sizes)]).Draw(t, "order")
		var alone [][]byte
		for i := range sizes {
			alone = append(alone, onlyMain(t, exe, familyStart+i))
		}
		for name, disabled := range someWays(t) {
			if len(disabled) == 1 { // all but one
				continue
			}
			all := optimized(t, exe, disabled)
			e, err := encoding.Decode(all)
			require.NoError(t, err)
			got := m.runNets(t, newInterpreter(e), sizes, order...)
			for i := range sizes {
				one, err := encoding.Decode(optimized(t, alone[i], disabled))
				require.NoError(t, err)
				want := m.runNets(t, newInterpreter(one), sizes, i)[i]
				require.Equal(t, bytesOf(want), bytesOf(got[i]), "%s: program %d of %d", name, i, len(sizes))
			}
		}
		all, err := New(ipu.EngineConfig{Name: "all", Executable: optimized(t, exe, nil), Options: opt("threads", "1")})
		require.NoError(t, err)
		load(t, all)
		got := m.runNets(t, all, sizes, order...)
		for i := range sizes {
			one, err := New(ipu.EngineConfig{Name: "one", Executable: optimized(t, alone[i], nil), Options: opt("threads", "1")})
			require.NoError(t, err)
			load(t, one)
			require.Equal(t, bytesOf(m.runNets(t, one, sizes, i)[i]), bytesOf(got[i]), "engine: program %d of %d", i, len(sizes))
			require.NoError(t, one.Close())
		}
		require.NoError(t, all.Close())
	})
}

// TestPassesShareHoists wants what several main programs compute from a weight once among
// what the load program computes, in memory that all of them read.
func TestPassesShareHoists(t *testing.T) {
	b := graph.NewBuilder("shared")
	w, v := b.AddPersistent("w", f32(6, 6)), b.AddPersistent("v", f32(6, 6))
	b.AddProgram(0, "load", b.CopyIn("w", w), b.CopyIn("v", v))
	for i, second := range []graph.TensorID{w, w, v, w} {
		x := b.AddLocal("x", f32(int64(i+1), 6))
		g := b.BeginGraph(fmt.Sprint("main ", i))
		derived := node(t, b, &graph.Unary{Fn: graph.Exp}, "exp", second)
		if i == 0 { // exp(w) is read by the load program alone until the second asks for it
			derived = node(t, b, &graph.Unary{Fn: graph.Tanh}, "tanh", derived)
		}
		y := node(t, b, &graph.MatMul{}, "product", x, derived)
		b.AddProgram(familyStart+i, "main", b.CopyIn(fmt.Sprint("x#", i), x), b.Call(g), b.CopyOut(fmt.Sprint("y#", i), y))
	}
	exe := executable(t, b)
	e, err := encoding.Decode(optimized(t, exe, nil))
	require.NoError(t, err)
	steps := e.Programs[0].Steps
	require.Len(t, e.Graphs[steps[len(steps)-1].Graph].Nodes, 3, "exp(w), tanh(exp(w)), exp(v)")
	persistent := 0
	for _, x := range e.Tensors {
		if x.Persistent {
			persistent++
		}
	}
	require.Equal(t, 5, persistent, "two weights, and what is computed from them")
	plain, err := encoding.Decode(exe)
	require.NoError(t, err)
	for i := range 4 {
		out := [2][]float32{make([]float32, 6*(i+1)), make([]float32, 6*(i+1))}
		for k, r := range []runner{newInterpreter(plain), newInterpreter(e)} {
			require.NoError(t, r.Connect("w", sink{bytesOf(wave(36, 1))}))
			require.NoError(t, r.Connect("v", sink{bytesOf(wave(36, 2))}))
			require.NoError(t, r.Connect(fmt.Sprint("x#", i), sink{bytesOf(wave(6*(i+1), 1))}))
			require.NoError(t, r.Connect(fmt.Sprint("y#", i), sink{bytesOf(out[k])}))
			run(t, r, 0)
			run(t, r, familyStart+i)
		}
		require.Equal(t, out[0], out[1])
	}
}
