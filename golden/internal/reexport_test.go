package golden_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	reexport "github.com/popefgen/popefgen/golden/internal/reexport/want"
	samples "github.com/popefgen/popefgen/golden/internal/samples/want"
	"github.com/popefgen/popefgen/internal/golden"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// The verdicts that re-exports may get.
const (
	same   = contract.Identical
	grows  = contract.Compatible
	breaks = contract.Breaking
)

// reexports are what may become of a model whose package exists: the verdict
// on the callers once the package is generated again, and whether the package
// as it is opens the new model. The pin changes with the verdict, unless a case
// says otherwise.
var reexports = []struct {
	name    string
	edit    func(m *golden.Model)
	verdict contract.Verdict
	opens   bool
	another bool // the values that the model computes are others
	files   bool // the generated files are others although callers see no difference
	renames map[string]string
	pinned  bool // the pin stays although the verdict is not identical
}{
	{name: "nothing", edit: func(*golden.Model) {}, verdict: same, opens: true},

	// What frameworks and compilers do to weights.
	{name: "weights trained again", edit: func(m *golden.Model) { at(m, "w").Data.Elements = []float64{6, 5, 4, 3, 2, 1} }, verdict: same, opens: true, another: true},
	{name: "weight renamed", edit: func(m *golden.Model) {
		*at(m, "w") = anchor("onnx::MatMul_7", "h2d_onnx::MatMul_7", "in", 0, 3, 2)
		at(m, "onnx::MatMul_7").Data = &golden.Data{Elements: []float64{1, 2, 3, 4, 5, 6}}
		m.Executable.Compute[5][0] = "h = matmul(x, onnx::MatMul_7)"
	}, verdict: same, opens: true},
	{name: "all weights renamed and reordered", edit: func(m *golden.Model) {
		w, b := *at(m, "w"), *at(m, "b")
		w.Name, b.Name = "fc.weight", "fc.bias"
		m.Anchors = slices.DeleteFunc(m.Anchors, func(a golden.Anchor) bool { return a.Name == "w" || a.Name == "b" })
		m.Anchors = append([]golden.Anchor{b}, append(m.Anchors, w)...)
		m.Executable.Compute[5][0], m.Executable.Compute[5][1] = "h = matmul(x, fc.weight)", "hb = add(h, fc.bias)"
	}, verdict: same, opens: true},
	{name: "weight folded away", edit: func(m *golden.Model) {
		remove(m, "b")
		m.Executable.Compute[5] = slices.Replace(m.Executable.Compute[5], 1, 3, "y = mul(h, scale)")
	}, verdict: same, opens: true},
	{name: "weight split in two", edit: func(m *golden.Model) {
		at(m, "w").Data.Elements = []float64{1, 1, 1, 1, 1, 1}
		m.Anchors = append(m.Anchors, anchor("w.low", "h2d_w.low", "in", 0, 3, 2))
		at(m, "w.low").Data = &golden.Data{Elements: []float64{0, 1, 2, 3, 4, 5}}
		m.Executable.Compute[5] = slices.Replace(m.Executable.Compute[5], 0, 1, "high = matmul(x, w)", "low = matmul(x, w.low)", "h = add(high, low)")
	}, verdict: same, opens: true},
	{name: "weight of another shape", edit: func(m *golden.Model) { at(m, "b").Shape = []int64{1, 2} }, verdict: same, opens: true},
	{name: "weight that nothing uses", edit: func(m *golden.Model) {
		m.Anchors = append(m.Anchors, anchor("rest", "h2d_rest", "in", 0, 9))
		at(m, "rest").Data = &golden.Data{}
	}, verdict: same, opens: true},
	{name: "weights moved to a remote buffer", edit: func(m *golden.Model) { at(m, "b").Remote = true }, verdict: same, opens: true},
	{name: "weights in a file of their own", edit: func(m *golden.Model) { m.Variables = "weights.popef" }, verdict: same, opens: true, files: true},

	// What a newer framework or compiler writes otherwise.
	{name: "handles", edit: func(m *golden.Model) {
		m.SeedHandle = "stream/h2d_seed"
		for i := range m.Anchors {
			m.Anchors[i].Handle = "stream/" + m.Anchors[i].Handle
		}
	}, verdict: same, opens: true},
	{name: "handles that swapped", edit: func(m *golden.Model) {
		at(m, "y").Handle, at(m, "twice").Handle = at(m, "twice").Handle, at(m, "y").Handle
	}, verdict: same, opens: true},
	{name: "number of the main program", edit: func(m *golden.Model) {
		m.Main = []uint32{6}
		m.Executable.Compute = map[int][]string{6: m.Executable.Compute[5]}
		for i := range m.Anchors {
			if slices.Equal(m.Anchors[i].Programs, []uint32{5}) {
				m.Anchors[i].Programs = []uint32{6}
			}
		}
	}, verdict: same, opens: true},
	{name: "one load program for two", edit: func(m *golden.Model) { m.Load, at(m, "seed").Programs = []uint32{0}, []uint32{0} }, verdict: same, opens: true},
	{name: "names of programs", edit: func(m *golden.Model) { m.Programs[5] = "Main" }, verdict: same, opens: true},
	{name: "options", edit: func(m *golden.Model) { m.EngineOptions = []string{"debug.level=9"} }, verdict: same, opens: true},
	{name: "name of the executable", edit: func(m *golden.Model) { m.Executable.Name = "build-77" }, verdict: same, opens: true},
	{name: "iterations not recorded", edit: func(m *golden.Model) { m.DeviceIterations = 0 }, verdict: same, opens: true},
	{name: "seed that is a load input", edit: func(m *golden.Model) { m.SeedHandle = "" }, verdict: same, opens: true},
	{name: "outputs before inputs", edit: func(m *golden.Model) {
		slices.SortStableFunc(m.Anchors, func(a, b golden.Anchor) int { return -len(a.Direction) + len(b.Direction) })
	}, verdict: same, opens: true},
	{name: "anchor of no program", edit: func(m *golden.Model) { m.Anchors = append(m.Anchors, anchor("cycles", "d2h_cycles", "out", 9, 2)) }, verdict: same, opens: true},
	{name: "two statements in another order", edit: func(m *golden.Model) {
		c := m.Executable.Compute[5]
		c[3], c[4] = c[4], c[3]
	}, verdict: same, opens: true},

	// What callers may ignore.
	{name: "output more", edit: func(m *golden.Model) {
		m.Anchors = append(m.Anchors, anchor("extra", "anchor_d2h_extra", "out", 5, 2))
		m.Executable.Compute[5] = append(m.Executable.Compute[5], "extra = add(z, twice)")
	}, verdict: grows, opens: true},
	{name: "output more in front", edit: func(m *golden.Model) {
		m.Anchors = slices.Insert(m.Anchors, 0, anchor("extra", "anchor_d2h_extra", "out", 5, 2))
		m.Executable.Compute[5] = append(m.Executable.Compute[5], "extra = add(z, twice)")
	}, verdict: grows, opens: true},
	{name: "save output more", edit: func(m *golden.Model) { m.Anchors = append(m.Anchors, anchor("b", "weight_d2h_b", "out", 7, 2)) }, verdict: grows, opens: true},
	{name: "order of inputs", edit: func(m *golden.Model) { m.Anchors[0], m.Anchors[1] = m.Anchors[1], m.Anchors[0] }, verdict: grows, opens: true},
	{name: "order of outputs", edit: func(m *golden.Model) { m.Anchors[2], m.Anchors[3] = m.Anchors[3], m.Anchors[2] }, verdict: grows, opens: true},
	{name: "order of load inputs", edit: func(m *golden.Model) { m.Anchors[4], m.Anchors[5] = m.Anchors[5], m.Anchors[4] }, verdict: grows, opens: true},
	{name: "new name that makes the same Go name", edit: func(m *golden.Model) {
		at(m, "y").Name = "y:"
		m.Executable.Compute[5][2] = "y: = mul(hb, scale)"
	}, verdict: grows},
	{name: "new name, with the Go name kept", edit: func(m *golden.Model) {
		at(m, "y").Name = "scores"
		m.Executable.Compute[5][2] = "scores = mul(hb, scale)"
	}, renames: map[string]string{"scores": "Y"}, verdict: grows},

	// What callers notice.
	{name: "another Go name", edit: func(*golden.Model) {}, renames: map[string]string{"y": "Scores"}, verdict: breaks, opens: true, pinned: true},
	{name: "type of an input", edit: func(m *golden.Model) { at(m, "x").Type = "F16" }, verdict: breaks},
	{name: "type of an output", edit: func(m *golden.Model) { at(m, "twice").Type = "F64" }, verdict: breaks},
	{name: "shape of an input", edit: func(m *golden.Model) { at(m, "x").Shape = []int64{2, 4} }, verdict: breaks},
	{name: "batch", edit: func(m *golden.Model) {
		for _, name := range []string{"x", "z", "y", "twice"} {
			at(m, name).Shape[0] = 8
		}
	}, verdict: breaks},
	{name: "repeats of an output", edit: func(m *golden.Model) { at(m, "twice").Repeats = 2 }, verdict: breaks},
	{name: "device iterations", edit: func(m *golden.Model) { m.DeviceIterations = 4 }, verdict: breaks},
	{name: "input more", edit: func(m *golden.Model) { m.Anchors = append(m.Anchors, anchor("mask", "h2d_mask", "in", 5, 2)) }, verdict: breaks},
	{name: "load input more", edit: func(m *golden.Model) { m.Anchors = append(m.Anchors, anchor("rate", "h2d_rate", "in", 0)) }, verdict: breaks},
	{name: "input less", edit: func(m *golden.Model) { remove(m, "z") }, verdict: breaks},
	{name: "output less", edit: func(m *golden.Model) { remove(m, "twice") }, verdict: breaks},
	{name: "save output less", edit: func(m *golden.Model) { m.Anchors = m.Anchors[:len(m.Anchors)-1] }, verdict: breaks},
	{name: "renamed output", edit: func(m *golden.Model) { at(m, "y").Name = "scores" }, verdict: breaks},
	{name: "renamed input, same handle", edit: func(m *golden.Model) { at(m, "x").Name = "image" }, verdict: breaks},
	{name: "load input that the file has data for", edit: func(m *golden.Model) { at(m, "scale").Data = &golden.Data{} }, verdict: breaks},
	{name: "seed that the file has data for", edit: func(m *golden.Model) { at(m, "seed").Data = &golden.Data{} }, verdict: breaks},
	{name: "run input that the file has data for", edit: func(m *golden.Model) { at(m, "z").Data = &golden.Data{} }, verdict: breaks},
	{name: "weight that the file has no data for", edit: func(m *golden.Model) { at(m, "b").Data = nil }, verdict: breaks},
	{name: "load input of every run", edit: func(m *golden.Model) { at(m, "scale").Programs = []uint32{5} }, verdict: breaks},
	{name: "two inputs of one name", edit: func(m *golden.Model) { at(m, "z").Name = "x" }, verdict: breaks},
	{name: "replicas", edit: func(m *golden.Model) { m.Replicas = 2 }, verdict: breaks},
}

func anchor(name, handle, direction string, program uint32, shape ...int64) golden.Anchor {
	return golden.Anchor{Name: name, Handle: handle, Type: "F32", Shape: shape, Direction: direction, Programs: []uint32{program}}
}

// at returns the first anchor of that name.
func at(m *golden.Model, name string) *golden.Anchor {
	return &m.Anchors[slices.IndexFunc(m.Anchors, func(a golden.Anchor) bool { return a.Name == name })]
}

func remove(m *golden.Model, name string) {
	m.Anchors = slices.DeleteFunc(m.Anchors, func(a golden.Anchor) bool { return a.Name == name })
}

// planned returns the plan of a changed case and its files.
func planned(t *testing.T, name string, opts gen.Options, edit func(*golden.Model)) (*gen.Plan, []gen.File, []string, contract.Published) {
	t.Helper()
	paths := write(t, name, edit)
	m, err := popef.Load(paths...)
	require.NoError(t, err)
	defer m.Close()
	opts.ModelBase = name + ".popef"
	p, err := gen.Build(m, opts)
	require.NoError(t, err)
	files, err := gen.Emit(p)
	require.NoError(t, err)
	return p, files, paths, contract.Of(m).Published()
}

// texts returns the files' contents by name.
func texts(files []gen.File) map[string]string {
	out := map[string]string{}
	for _, f := range files {
		out[f.Name] = string(f.Data)
	}
	return out
}

// TestReexports wants diff and Open to say the same of every re-export, and
// what the table says: Open is that of a package that was generated before and
// opens the new model, or refuses it.
func TestReexports(t *testing.T) {
	old, oldFiles, _, _ := planned(t, "reexport", gen.Options{}, nil)
	require.Equal(t, reexport.ContractHash, old.ContractHash)
	for _, c := range reexports {
		t.Run(c.name, func(t *testing.T) {
			edit := func(m *golden.Model) {
				c.edit(m)
				if !c.opens {
					m.Executable.Compute = nil // most could not be computed; they must be refused before
				}
			}
			p, files, paths, model := planned(t, "reexport", gen.Options{Renames: c.renames}, edit)
			findings := contract.Judge(old.Published(), p.Published())
			require.Equal(t, c.verdict, contract.Worst(findings), "%v", findings)
			require.Equal(t, c.verdict != same && !c.pinned, p.Pin != old.Pin)
			if c.verdict == same && !c.files {
				require.Empty(t, cmp.Diff(texts(oldFiles), texts(files)), "callers see no difference, but the code is another")
			}
			require.Equal(t, c.opens, contract.Opens(contract.Judge(old.Published(), model)))
			require.Equal(t, c.opens, contract.Opens(findings))

			load := reexport.NewLoadInputs()
			load.Scale.Data = 10
			r, err := reexport.Open(ctx, load, "", rt.WithModelFile(paths...))
			if !c.opens {
				require.ErrorIs(t, err, rt.ErrContract)
				return
			}
			require.NoError(t, err)
			closing(t, r)
			in, out := reexport.NewInputs(), reexport.NewOutputs()
			in.X.Data, in.Z.Data = [2][3]float32{{1, 0, 0}, {0, 1, 1}}, [2]float32{7, 8}
			require.NoError(t, r.Run(ctx, in, out))
			require.Equal(t, [2]float32{14, 16}, out.Twice.Data)
			if !c.another {
				require.Equal(t, [2][2]float32{{10, 20}, {80, 100}}, out.Y.Data)
			}
			saved := reexport.NewSaveOutputs()
			require.NoError(t, r.Save(ctx, saved))
			require.Equal(t, [2]float32{7, 8}, saved.Seen.Data)

			frozen, err := reexport.Open(ctx, load, "", rt.WithModelFile(paths...), reexport.FreezeZ(&reexport.Z{Data: [2]float32{1, 2}}))
			require.NoError(t, err)
			closing(t, frozen)
			require.NoError(t, frozen.Run(ctx, &reexport.Inputs{X: in.X}, out))
			require.Equal(t, [2]float32{2, 4}, out.Twice.Data)
		})
	}
	require.GreaterOrEqual(t, len(reexports), 40)
}

// TestReexportsOfSamples does so for a package with RunSamples, whose callers
// see the order of inputs, and outputs that are new.
func TestReexportsOfSamples(t *testing.T) {
	opts := gen.Options{BatchDim: new(int), Embed: "samples.popef"}
	old, _, _, _ := planned(t, "samples", opts, nil)
	require.Equal(t, samples.ContractHash, old.ContractHash)
	for _, c := range []struct {
		name    string
		edit    func(m *golden.Model)
		verdict contract.Verdict
		opens   bool
	}{
		{"weight renamed", func(m *golden.Model) {
			at(m, "w").Name = "fc.weight"
			m.Executable.Compute[5][0] = "y = matmul(x, fc.weight)"
		}, same, true},
		{"order of inputs", func(m *golden.Model) { m.Anchors[0], m.Anchors[1] = m.Anchors[1], m.Anchors[0] }, breaks, true},
		{"output more", func(m *golden.Model) {
			m.Anchors = append(m.Anchors, anchor("extra", "anchor_d2h_extra", "out", 5, 4))
			m.Executable.Compute[5] = append(m.Executable.Compute[5], "extra = add(z, twice)")
		}, breaks, true},
		{"batch", func(m *golden.Model) {
			m.Executable.Compute = nil
			for i := range 4 {
				m.Anchors[i].Shape[0] = 8
			}
		}, breaks, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, paths, model := planned(t, "samples", opts, c.edit)
			findings := contract.Judge(old.Published(), p.Published())
			require.Equal(t, c.verdict, contract.Worst(findings), "%v", findings)
			require.Equal(t, c.opens, contract.Opens(findings))
			require.Equal(t, c.opens, contract.Opens(contract.Judge(old.Published(), model)))
			require.Equal(t, c.verdict != same, p.Pin != old.Pin)
			r, err := samples.Open(ctx, rt.WithModelFile(paths...))
			if !c.opens {
				require.ErrorIs(t, err, rt.ErrContract)
				return
			}
			require.NoError(t, err)
			closing(t, r)
			x, z, y, twice := make([]samples.XSample, 5), make([]samples.ZSample, 5), make([]samples.YSample, 5), make([]samples.TwiceSample, 5)
			for i := range x {
				x[i].Data[i%3], z[i].Data = 1, float32(i)
			}
			require.NoError(t, r.RunSamples(ctx, x, z, y, twice))
			for i := range y {
				require.Equal(t, [2]float32{float32(i%3*2 + 1), float32(i%3*2 + 2)}, y[i].Data)
				require.Equal(t, float32(2*i), twice[i].Data)
			}
		})
	}
}

// TestNearMissesOfNames gives data to inputs by names that do not exist.
func TestNearMissesOfNames(t *testing.T) {
	paths := write(t, "reexport", nil)
	load := reexport.NewLoadInputs()
	_, err := reexport.Open(ctx, load, "", rt.WithModelFile(paths...), rt.WithData("wW", make([]byte, 24)))
	require.ErrorIs(t, err, rt.ErrUnknownStream)
	require.ErrorContains(t, err, `anchor "wW": unknown stream: there is no input of that name or handle; did you mean "w"?`)
	r, err := reexport.Open(ctx, load, "", rt.WithModelFile(paths...))
	require.NoError(t, err)
	closing(t, r)
	err = r.UpdateWeights(ctx, rt.Weight{Anchor: "h2d_weight", Data: make([]byte, 24)})
	require.ErrorIs(t, err, rt.ErrUnknownStream)
	for _, name := range []string{"x", "z", "w", "b", "scale"} {
		require.ErrorContains(t, err, fmt.Sprintf("%q", name))
	}
	require.ErrorContains(t, r.Session().Connect(ctx, "h2d_ww", &modelrt.Buffer{}), `did you mean "h2d_w"?`)
}
