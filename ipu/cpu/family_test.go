package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/graph"
)

// familyDraw is a network of which a family has a main program for each of some sizes:
// operators with weights that the load program sets, constants and tensors that it
// computes, all of which every program reads.
type familyDraw struct {
	image  bool // x is [size, 16, 10, 12+size], else [size, 48]
	layers []familyLayer
}

// familyLayer is an operator of a network and what its second operand is.
type familyLayer struct {
	kind string // "matmul", "gemm", "transposed", "conv", "point", "depthwise" or "relu"
	from string // "weight", "constant" or "derived"
}

const familyWidth, familyMaps = 48, 40

func drawFamily(t *rapid.T) (f familyDraw, sizes []int64) {
	f.image = rapid.Bool().Draw(t, "image")
	kinds := []string{"matmul", "gemm", "transposed", "relu"}
	if f.image {
		kinds = []string{"conv", "point", "depthwise", "relu"}
	}
	for range rapid.IntRange(1, 4).Draw(t, "layers") {
		f.layers = append(f.layers, familyLayer{rapid.SampledFrom(kinds).Draw(t, "kind"), rapid.SampledFrom([]string{"weight", "constant", "derived"}).Draw(t, "from")})
	}
	return f, rapid.SliceOfNDistinct(rapid.SampledFrom([]int64{1, 2, 3, 4, 6, 7, 9, 16, 33}), 1, 4, rapid.ID).Draw(t, "sizes")
}

func (f familyDraw) shape(size int64) []int64 {
	if f.image {
		return []int64{(size + 3) / 4, familyMaps, 10, 12 + size}
	}
	return []int64{size, familyWidth}
}

// familyStart is the index of a family's first main program.
const familyStart = 5

// build makes an executable with a main program for each size, and the streams of
// program number i with "#i" behind their names.
func (f familyDraw) build(t require.TestingT, sizes ...int64) (b *graph.Builder, weights map[string][]float32) {
	b, weights = graph.NewBuilder("family"), map[string][]float32{}
	draw := func(name string, n int64) []float32 {
		r, v := rand.New(rand.NewPCG(uint64(name[1]), uint64(n))), make([]float32, n)
		for i := range v {
			v[i] = (r.Float32() - 0.5) / 4
		}
		return v
	}
	var loads []graph.Step
	derive := b.BeginGraph("derive")
	var seconds []graph.TensorID
	for i, l := range f.layers {
		shape := map[string][]int64{"matmul": {familyWidth, familyWidth}, "gemm": {familyWidth, familyWidth}, "transposed": {familyWidth, familyWidth},
			"conv": {familyMaps, familyMaps, 3, 3}, "point": {familyMaps, familyMaps, 1, 1}, "depthwise": {familyMaps, 1, 3, 3}}[l.kind]
		name := fmt.Sprint("w", i)
		switch second := graph.None; {
		case l.kind == "relu":
			seconds = append(seconds, second)
		case l.from == "constant":
			seconds = append(seconds, b.AddConst(name, f32(shape...), bytesOf(draw(name, f32(shape...).Elements()))))
		default:
			second = b.AddPersistent(name, f32(shape...))
			weights[name] = draw(name, f32(shape...).Elements())
			loads = append(loads, b.CopyIn(name, second))
			if l.from == "derived" {
				d := b.AddPersistent(name+"²", f32(shape...))
				require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Mul}, name+"²", []graph.TensorID{d}, second, second))
				second = d
			}
			seconds = append(seconds, second)
		}
	}
	b.AddProgram(0, "load", append(loads, b.Call(derive))...)
	one := []int64{1, 1}
	for m, size := range sizes {
		x := b.AddLocal(fmt.Sprint("x", m), f32(f.shape(size)...))
		g := b.BeginGraph(fmt.Sprint("main ", size))
		y := x
		for i, l := range f.layers {
			name := fmt.Sprint(l.kind, i)
			op := map[string]graph.Op{
				"matmul": &graph.MatMul{}, "gemm": &graph.Gemm{Alpha: 1}, "transposed": &graph.Gemm{Alpha: 1, TransB: true}, "relu": &graph.Unary{Fn: graph.Relu},
				"conv":      &graph.Conv{Strides: one, Dilations: one, PadsBegin: one, PadsEnd: one, Group: 1},
				"point":     &graph.Conv{Strides: one, Dilations: one, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}, Group: 1},
				"depthwise": &graph.Conv{Strides: one, Dilations: one, PadsBegin: one, PadsEnd: one, Group: familyMaps},
			}[l.kind]
			if l.kind == "relu" {
				y = node(t, b, op, name, y)
			} else {
				y = node(t, b, op, name, y, seconds[i])
			}
		}
		b.AddProgram(familyStart+m, fmt.Sprint("main ", size), b.CopyIn(fmt.Sprint("x#", m), x), b.Call(g), b.CopyOut(fmt.Sprint("y#", m), y))
	}
	return b, weights
}

// familyEngine is a loaded engine of some members, with their memory.
type familyEngine struct {
	*Engine
	x, y [][]float32 // by member
}

func openFamily(t require.TestingT, f familyDraw, options []ipu.Option, sizes ...int64) *familyEngine {
	b, _ := f.build(t, sizes...)
	return connectFamily(t, f, executable(t, b), options, sizes...)
}

// connectFamily opens an executable that was built before.
func connectFamily(t require.TestingT, f familyDraw, exe []byte, options []ipu.Option, sizes ...int64) *familyEngine {
	_, weights := f.build(t, sizes...)
	e, err := New(ipu.EngineConfig{Name: "family", Executable: exe, Options: options})
	require.NoError(t, err)
	load(t, e)
	o := &familyEngine{Engine: e}
	for name, w := range weights {
		require.NoError(t, e.Connect(name, &lent{memory: bytesOf(w)}))
	}
	for m, size := range sizes {
		n := int(f32(f.shape(size)...).Elements())
		x, y := align.Bytes(int64(4*n)), make([]float32, n)
		copy(x, bytesOf(wave(n, 1)))
		o.x, o.y = append(o.x, floats(x)), append(o.y, y)
		require.NoError(t, e.Connect(fmt.Sprint("x#", m), sink{x}))
		require.NoError(t, e.Connect(fmt.Sprint("y#", m), sink{bytesOf(y)}))
	}
	run(t, e, 0)
	return o
}

// TestFamilies compares engines with several main programs over one set of weights
// with an engine for each size by itself, bit by bit, on every path, and wants no
// more packed copies and no more row-major ones of a weight than one of these has.
func TestFamilies(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		f, sizes := drawFamily(t)
		var options []ipu.Option
		if rapid.IntRange(0, 3).Draw(t, "planes") == 0 {
			options = opt("layout", "off")
		}
		all := openFamily(t, f, options, sizes...)
		defer all.Close()
		arena, packed := int64(0), int64(0)
		for m, size := range sizes {
			alone := openFamily(t, f, options, size)
			run(t, alone, familyStart)
			arena, packed = max(arena, alone.plan.ArenaBytes), packed+alone.plan.PackedBytes
			order := rapid.IntRange(0, len(sizes)-1).Draw(t, "before")
			run(t, all, familyStart+order)
			clear(all.y[m])
			run(t, all, familyStart+m)
			require.Equal(t, bytesOf(alone.y[0]), bytesOf(all.y[m]), "size %d of %v", size, sizes)
			require.NoError(t, alone.Close())
			plain := openFamily(t, f, append(opt("prepack", "off"), options...), size)
			run(t, plain, familyStart)
			require.Equal(t, bytesOf(plain.y[0]), bytesOf(all.y[m]), "size %d of %v, nothing packed", size, sizes)
			require.NoError(t, plain.Close())
		}
		require.Equal(t, arena, all.plan.ArenaBytes, "the largest program's")
		require.LessOrEqual(t, all.plan.PackedBytes, packed)
	})
}

// TestFamilySharesPacked wants one copy of what all members' kernels read in one layout,
// whatever it is made from.
func TestFamilySharesPacked(t *testing.T) {
	for _, from := range []string{"weight", "constant", "derived"} {
		t.Run(from, func(t *testing.T) {
			f := familyDraw{layers: []familyLayer{{"matmul", from}, {"relu", ""}, {"matmul", from}}}
			// Few rows are multiplied with rows of a weight where no other size wants it packed.
			alone, all := openFamily(t, f, nil, 16), openFamily(t, f, nil, 1, 16, 3, 64)
			defer alone.Close()
			defer all.Close()
			require.NotZero(t, alone.plan.PackedBytes)
			require.Equal(t, alone.plan.PackedBytes, all.plan.PackedBytes)
			require.Equal(t, alone.plan.PersistentBytes, all.plan.PersistentBytes)
			require.Equal(t, alone.Sharing(), all.Sharing())
			require.Len(t, all.plan.Packed, 2)
			require.Len(t, all.plan.Packed[0].Readers, 4)
		})
	}
}

// TestFamilyPrograms takes prepared programs of one engine in turns: nothing is allocated,
// and a stream that is not connected hinders none but its own program.
func TestFamilyPrograms(t *testing.T) {
	f := familyDraw{image: true, layers: []familyLayer{{"conv", "weight"}, {"depthwise", "constant"}}}
	e := openFamily(t, f, nil, 1, 4, 9)
	defer e.Close()
	ctx := context.Background()
	var prepared []ipu.Prepared
	for m := range e.x {
		p, err := e.Prepare(familyStart + m)
		require.NoError(t, err)
		prepared = append(prepared, p)
	}
	require.Zero(t, testing.AllocsPerRun(10, func() {
		for _, p := range prepared {
			if err := p.Run(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}))
	require.NoError(t, e.Connect("x#1", nil))
	for i, ready := range []bool{true, false, true} {
		require.Equal(t, ready, e.programs[1+i].ready)
	}
	require.NoError(t, prepared[0].Run(ctx))
	require.ErrorIs(t, prepared[1].Run(ctx), ipu.ErrUnconnected)
	require.ErrorContains(t, prepared[1].Run(ctx), `"x#1"`)
	require.NoError(t, prepared[2].Run(ctx))
}

// TestFamilyEngines opens an engine beside one that has planned the family: its kernels
// take what is packed as those do.
func TestFamilyEngines(t *testing.T) {
	f := familyDraw{layers: []familyLayer{{"matmul", "weight"}, {"relu", ""}, {"matmul", "derived"}, {"gemm", "constant"}}}
	b, _ := f.build(t, 1, 9)
	exe := executable(t, b)
	first, second := connectFamily(t, f, exe, nil, 1, 9), connectFamily(t, f, exe, nil, 1, 9)
	defer first.Close()
	defer second.Close()
	require.Equal(t, 2, first.Sharing().Engines)
	for m := range first.x {
		run(t, first, familyStart+m)
		run(t, second, familyStart+m)
		require.Equal(t, first.y[m], second.y[m])
	}
	alone := openFamily(t, f, nil, 1)
	defer alone.Close()
	run(t, alone, familyStart)
	require.Equal(t, alone.y[0], first.y[0])
}

// TestFamilyBudget refuses families whose programs do not fit into memory together: the
// error names programs and what to do, whatever it is that they don't fit for.
func TestFamilyBudget(t *testing.T) {
	f := familyDraw{image: true, layers: []familyLayer{{"conv", "weight"}, {"point", "constant"}}}
	b, _ := f.build(t, 1, 2, 3, 4, 6, 7, 9)
	exe := executable(t, b)
	whole := budget.New(1 << 30)
	e, made, loaded := onBudget(exe, whole)
	require.NoError(t, made)
	require.NoError(t, loaded)
	tables, all := e.plan.TableBytes, whole.Used()
	require.NoError(t, e.Close())

	room := budget.New(tables - 1)
	_, made, _ = onBudget(exe, room)
	require.ErrorIs(t, made, ipu.ErrMemory)
	require.ErrorContains(t, made, `plan program 11 "main 9"`)
	require.ErrorContains(t, made, `program 5 "main 1" `)
	require.ErrorContains(t, made, "and 2 more have taken")
	require.ErrorContains(t, made, "compile it with fewer sizes")
	require.Zero(t, room.Used())

	e, made, loaded = onBudget(exe, budget.New(all-1))
	require.NoError(t, made)
	require.ErrorIs(t, loaded, ipu.ErrMemory)
	require.ErrorContains(t, loaded, `the local tensors are those of program 11 "main 9", the largest of 7`)
	require.NoError(t, e.Close())

	f.layers = f.layers[:1]
	b, _ = f.build(t, 9)
	_, made, _ = onBudget(executable(t, b), budget.New(1000))
	require.ErrorIs(t, made, ipu.ErrMemory)
	require.NotContains(t, made.Error(), "fewer sizes")
}

// TestFamilyReleases gives back the memory of a weight that all programs read packed, and
// keeps that of one which several read as it is, as long as they may.
func TestFamilyReleases(t *testing.T) {
	b := graph.NewBuilder("releases")
	w, shift := b.AddPersistent("w", f32(32, 32)), b.AddPersistent("shift", f32(32))
	b.AddProgram(0, "load", b.CopyIn("w", w), b.CopyIn("shift", shift))
	for i, rows := range []int64{5, 8} {
		x := b.AddLocal("x", f32(rows, 32))
		g := b.BeginGraph("main")
		y := node(t, b, &graph.MatMul{}, "product", x, w)
		y = node(t, b, &graph.Binary{Fn: graph.Add}, "sum", y, shift)
		b.AddProgram(familyStart+i, "main", b.CopyIn(fmt.Sprint("x", i), x), b.Call(g), b.CopyOut(fmt.Sprint("y", i), y))
	}
	e := newLoaded(t, b)
	releases := map[string]*int{"w": new(int), "shift": new(int)}
	ones, twos := make([]float32, 32*32), make([]float32, 32)
	for i := range ones {
		ones[i], twos[i%32] = 1, 2
	}
	connect(t, e, map[string]ipu.Stream{
		"w": releaser{constant{direct{newHost(t, bytesOf(ones))}}, releases["w"]}, "shift": releaser{constant{direct{newHost(t, bytesOf(twos))}}, releases["shift"]}})
	run(t, e, 0)
	for i, rows := range []int{5, 8, 5} {
		x, y := make([]float32, 32*rows), make([]float32, 32*rows)
		for k := range x {
			x[k] = 1
		}
		name := fmt.Sprint(i % 2)
		connect(t, e, map[string]ipu.Stream{"x" + name: sink{bytesOf(x)}, "y" + name: sink{bytesOf(y)}})
		run(t, e, familyStart+i%2)
		for _, v := range y {
			require.EqualValues(t, 34, v)
		}
	}
	require.Equal(t, 1, *releases["w"])
	require.Zero(t, *releases["shift"])
}
