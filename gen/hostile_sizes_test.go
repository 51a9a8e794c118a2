package gen_test

import (
	"encoding/json"
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/popef/contract"
)

// A sizedAxis is an axis of a model of several sizes: a fixed one, or one that
// follows from a dimension.
type sizedAxis struct {
	fixed         int64
	dim           int // -1: fixed
	mul, add, div int64
	counted       bool
}

func (a sizedAxis) at(sizes []int64) int64 {
	if a.dim < 0 {
		return a.fixed
	}
	return (a.mul*sizes[a.dim] + a.add) / a.div
}

type sizedTensor struct {
	name   string
	output bool
	axes   []sizedAxis
}

// sizedModel describes a model of several sizes. Every counted axis has an output of its own
// that counts it.
func sizedModel(dims []string, members [][]int64, tensors []sizedTensor, rows bool) *golden.Model {
	type object = map[string]any
	m := &golden.Model{File: "m.popef", Executable: golden.Executable{Name: "m"}, Replicas: 1, DeviceIterations: 1, Load: []uint32{0}}
	var blobDims, blobMembers, blobTensors []object
	for _, d := range dims {
		blobDims = append(blobDims, object{"name": d, "rows": rows})
	}
	for _, typ := range []bool{false, true} {
		for k := 0; k < len(tensors); k++ {
			t := tensors[k]
			if t.output != typ {
				continue
			}
			var axes []object
			for i, a := range t.axes {
				axis := object{"axis": i}
				if a.dim >= 0 {
					axis["dim"], axis["mul"], axis["add"], axis["div"] = dims[a.dim], a.mul, a.add, a.div
				}
				if a.counted {
					name := fmt.Sprintf("%s_count%d", t.name, i)
					axis["count"] = name
					tensors = append(tensors, sizedTensor{name: name, output: true})
				}
				if len(axis) > 1 {
					axes = append(axes, axis)
				}
			}
			blobTensors = append(blobTensors, object{"name": t.name, "output": t.output, "axes": axes})
		}
	}
	for i, sizes := range members {
		program := uint32(5 + i)
		m.Main = append(m.Main, program)
		blobMembers = append(blobMembers, object{"program": program, "sizes": sizes})
		for k, t := range tensors {
			a := golden.Anchor{Name: t.name, Handle: fmt.Sprintf("h%d#%d", k, i), Type: "F32", Shape: []int64{}, Direction: "in", Programs: []uint32{program}}
			if t.output {
				a.Direction = "out"
			}
			if strings.Contains(t.name, "_count") && t.axes == nil {
				a.Type = "S64"
			}
			for _, x := range t.axes {
				a.Shape = append(a.Shape, x.at(sizes))
			}
			m.Anchors = append(m.Anchors, a)
		}
	}
	text, err := json.Marshal(object{"version": 1, "dims": blobDims, "members": blobMembers, "tensors": blobTensors})
	if err != nil {
		panic(err)
	}
	m.Family = string(text)
	return m
}

// drawSized draws a model of several sizes whose names are from a list.
func drawSized(t *rapid.T, word *rapid.Generator[string]) *golden.Model {
	name := rapid.OneOf(word, rapid.Map(rapid.SliceOfN(word, 2, 3), func(p []string) string { return strings.Join(p, "") }))
	var dims []string
	for _, d := range rapid.SliceOfNDistinct(name, 1, 4, rapid.ID[string]).Draw(t, "dims") {
		if d != "" {
			dims = append(dims, d)
		}
	}
	if len(dims) == 0 {
		dims = []string{"n"}
	}
	members := [][]int64{}
	first := rapid.SliceOfN(rapid.Int64Range(2, 5), len(dims), len(dims)).Draw(t, "first")
	for range rapid.IntRange(1, 3).Draw(t, "members") {
		members = append(members, slices.Clone(first))
		for d := range first {
			first[d] += rapid.Int64Range(1, 9).Draw(t, "more")
		}
	}
	axis := func(output bool) *rapid.Generator[sizedAxis] {
		return rapid.Custom(func(t *rapid.T) sizedAxis {
			a := sizedAxis{fixed: rapid.Int64Range(1, 3).Draw(t, "fixed"), dim: rapid.IntRange(-1, len(dims)-1).Draw(t, "dim"), mul: 1, div: 1}
			if a.dim >= 0 && rapid.Bool().Draw(t, "derived") {
				a.mul, a.add, a.div = rapid.Int64Range(1, 3).Draw(t, "mul"), rapid.Int64Range(-1, 2).Draw(t, "add"), rapid.Int64Range(1, 3).Draw(t, "div")
			}
			a.counted = output && rapid.IntRange(0, 3).Draw(t, "counted") == 0
			return a
		})
	}
	var tensors []sizedTensor
	for d := range dims { // every dimension is that of an input
		tensors = append(tensors, sizedTensor{name: fmt.Sprint(d, name.Draw(t, "input")), axes: append([]sizedAxis{{dim: d, mul: 1, div: 1}}, rapid.SliceOfN(axis(false), 0, 3).Draw(t, "axes")...)})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "outputs") {
		tensors = append(tensors, sizedTensor{name: fmt.Sprint(name.Draw(t, "output"), i, "y"), output: true, axes: rapid.SliceOfN(axis(true), 0, 4).Draw(t, "axes")})
	}
	return sizedModel(dims, members, tensors, rapid.Bool().Draw(t, "rows"))
}

// sizedWords returns what generated packages of several sizes declare or use, what Go
// has names for, and names that are none.
func sizedWords(t *testing.T, imports map[string]bool) []string {
	found := map[string]bool{}
	for _, rows := range []bool{false, true} {
		full := sizedAxis{dim: 0, mul: 1, div: 1}
		for _, tensors := range [][]sizedTensor{
			{{name: "in", axes: []sizedAxis{full, {dim: 1, mul: 1, div: 1}, {fixed: 3, dim: -1}}}, {name: "out", output: true, axes: []sizedAxis{full, {dim: 1, mul: 3, add: 1, div: 2, counted: true}}}},
			{{name: "in", axes: []sizedAxis{full}}, {name: "out", output: true, axes: []sizedAxis{full, {fixed: 3, dim: -1}}}},
		} {
			dims, members := []string{"batch", "seq"}, [][]int64{{1, 2}, {2, 4}}
			if len(tensors[0].axes) == 1 {
				dims, members = dims[:1], [][]int64{{1}, {4}}
			}
			for _, embed := range []string{"", "m.popef"} {
				identifiers(t, found, imports, emit(t, load(t, sizedModel(dims, members, tensors, rows)), gen.Options{Package: "m", Tests: true, Embed: embed}))
			}
		}
	}
	for tok := token.BREAK; tok <= token.VAR; tok++ {
		found[tok.String()] = true
	}
	for _, name := range types.Universe.Names() {
		found[name] = true
	}
	for _, name := range []string{
		" ", "_", "-", "2", "٣", "x", "X", "batch", "Batch", "BATCH", "bat-ch", "nBatch", "data", "Data", "Count", "count", "Dim", "Dim0", "Dim1", "Size", "Sizes", "String",
		"Row", "Rows", "Flat", "At", "Resize", "view", "i", "j", "k", "t", "n", "NX", "nx", "nnx", "func", "nFunc", "NFunc", "ı", "İx", "Ix", "K", "k", "k\u212a", "ß", "日", "日本", "É", "ǅ",
		"\u3164", "\u202eabc", "a b", "a/b", "seq/2", "(seq+1)/2", "seqOver2", "seqPlus1Over2", "Times2", "Over2", "Over3", "Plus1", "Batch1Seq2", "From", "New", "Sample", "Anchor", strings.Repeat("long", 40),
	} {
		found[name] = true
	}
	var words []string
	for name := range found {
		words = append(words, name)
	}
	slices.Sort(words)
	return words
}

// TestHostileSizes gives open dimensions and tensors the names of all that generated
// packages of several sizes declare or use, of Go itself, and such as are none; their types, sizes and
// counts are drawn. The packages must compile with their tests, and what is called by one
// name must mean one thing.
func TestHostileSizes(t *testing.T) {
	imports := map[string]bool{}
	words := sizedWords(t, imports)
	var paths []string
	for p := range imports {
		paths = append(paths, p)
	}
	checker := newTypeChecker(t, paths)
	beside := func(t *testing.T, dims ...string) {
		m := sizedModel(dims, [][]int64{{1, 2}, {2, 4}}, []sizedTensor{
			{name: "x", axes: []sizedAxis{{dim: 0, mul: 1, div: 1}, {dim: 1, mul: 1, div: 1}, {dim: -1, fixed: 2}}},
			{name: "y", output: true, axes: []sizedAxis{{dim: 0, mul: 1, div: 2}, {dim: 0, mul: 1, div: 1, counted: true}, {dim: -1, fixed: 2}}}}, true)
		files := emit(t, load(t, m), gen.Options{Package: "m", Tests: true})
		require.NoError(t, checker.check("m", files), "dimensions %q", dims)
	}
	t.Run("each word", func(t *testing.T) {
		for _, w := range words {
			if w != "seq" {
				beside(t, w, "seq")
			}
		}
	})
	t.Run("meet", func(t *testing.T) { // as identifiers, or as parameters
		for _, dims := range [][]string{{"batch", "Batch"}, {"batch", "batch2"}, {"a b", "a/b"}, {"func", "nFunc"}, {"İx", "Ix"}, {"K", "k"}, {"\u212a", "k"}, {"日", "x日"}, {"seq", "seqOver2"}, {"count", "Count2"}} {
			beside(t, dims...)
		}
	})
	t.Run("random", rapid.MakeCheck(func(t *rapid.T) {
		m := drawSized(t, rapid.SampledFrom(words))
		p, err := gen.Build(load(t, m), gen.Options{Package: "m", Tests: true, Embed: rapid.SampledFrom([]string{"", "m.popef"}).Draw(t, "embed")})
		require.NoError(t, err, "%s", m.Family)
		files, err := gen.Emit(p)
		require.NoError(t, err, "%s", m.Family)
		require.NoError(t, checker.check("m", files), "%s", m.Family)
		rules := map[string]contract.Axis{}
		for _, tensor := range p.Tensors {
			at := slices.IndexFunc(p.Contract.Fields, func(f contract.Field) bool { return f.Name == tensor.Anchor })
			for _, o := range tensor.Open {
				is, name := p.Contract.Fields[at].Axes[o.Axis], tensor.Fields[o.Field].Name
				if is.Counted {
					is = contract.Axis{Counted: true}
				}
				if was, ok := rules[name]; ok {
					require.Equal(t, was, is, "fields %s of %s", name, m.Family)
				}
				rules[name] = is
			}
		}
	}))
}
