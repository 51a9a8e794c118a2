package contract_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/popeftest"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// TestFixtures pins text, hash and roles of the four example models: a change
// here breaks every package generated before it.
func TestFixtures(t *testing.T) {
	for _, f := range popeftest.All() {
		t.Run(f.Name, func(t *testing.T) {
			m := f.Load(t)
			c := contract.Of(m)
			var b strings.Builder
			b.WriteString(c.Text())
			fmt.Fprintf(&b, "hash %s\n", c.Hash())
			for _, a := range c.Anchors {
				fmt.Fprintf(&b, "role of %v %s: %v\n", a.Type, a.Name, a.Role)
			}
			golden(t, f.Name+".txt", b.String())
			require.Equal(t, c.Hash(), contract.HashText(c.Text()))

			back, err := contract.Parse(c.Text())
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(c, back))
			require.Empty(t, contract.Diff(c, back))

			roles := contract.Roles(m)
			require.Len(t, roles, len(m.Metadata.Anchors))
			for i, a := range m.Metadata.Anchors {
				at := slices.IndexFunc(c.Anchors, func(b contract.Anchor) bool { return b.Name == a.Name && b.Type == a.Type })
				require.Equal(t, c.Anchors[at].Role, roles[i], a.Name)
			}
		})
	}
}

// TestIndependent checks that what is not part of a contract does not change
// it.
func TestIndependent(t *testing.T) {
	want := contract.Of(popeftest.ModelA().Load(t)).Text()
	for name, change := range map[string]func(f *popeftest.Fixture){
		"order of anchors": func(f *popeftest.Fixture) { slices.Reverse(f.Metadata.Anchors) },
		"executable name":  func(f *popeftest.Fixture) { f.Metadata.Executable = "42" },
		"options":          func(f *popeftest.Fixture) { f.Metadata.EngineOptions = nil },
		"program names":    func(f *popeftest.Fixture) { f.Metadata.Programs = nil },
		"hardware":         func(f *popeftest.Fixture) { f.Metadata.IPUVersion, f.Metadata.IsPOD = 21, true },
		"weights":          func(f *popeftest.Fixture) { clear(f.Tensors[0].Data) },
		"repeated program": func(f *popeftest.Fixture) { f.Metadata.Anchors[2].Programs = []uint32{5, 5} },
		"default repeats":  func(f *popeftest.Fixture) { f.Metadata.Anchors[2].Repeats = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			f := popeftest.ModelA()
			change(f)
			require.Empty(t, cmp.Diff(want, contract.Of(f.Load(t)).Text()))
		})
	}
}

func TestDeviceIterations(t *testing.T) {
	require.Equal(t, 1, contract.Contract{}.DeviceIterations(), "not recorded")
	require.Equal(t, 8, contract.Contract{Iterations: 8}.DeviceIterations())
}

func TestAnchorByHandle(t *testing.T) {
	c := contract.Of(popeftest.ModelA().Load(t))
	require.Equal(t, "init_input", c.Anchor("h2d_init_input").Name)
	require.Equal(t, popef.Input, c.Anchor("h2d_init_input").Type)
	require.Nil(t, c.Anchor("other"))
	require.Nil(t, contract.Contract{Anchors: []contract.Anchor{{Name: "remote"}}}.Anchor(""))
}

func TestParseErrors(t *testing.T) {
	good := contract.Of(popeftest.ModelA().Load(t)).Text()
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", `line 1: found "", want "popefgen contract 1"`},
		{"other version", "popefgen contract 2\n", `line 1: found "popefgen contract 2", want "popefgen contract 1"`},
		{"cut", good[:len(good)-1], "want the end of the line"},
		{"crlf", strings.ReplaceAll(good, "\n", "\r\n"), `line 1: found "\r", want the end of the line`},
		{"leading zero", strings.Replace(good, "replicas 1", "replicas 01", 1), "line 2: out of order or written in another way"},
		{"too large", strings.Replace(good, "replicas 1", "replicas 4294967296", 1), "line 2: "},
		{"no number", strings.Replace(good, "replicas 1", "replicas x", 1), `line 2: found "x", want a number below 2^32`},
		{"seed", strings.Replace(good, `seed ""`, `seed none`, 1), `line 5: found "none", want a quoted string`},
		{"raw string", strings.Replace(good, `seed ""`, "seed ``", 1), "line 5: out of order"},
		{"type", strings.Replace(good, "F32", "F33", 1), `want an element type`},
		{"direction", strings.Replace(good, " output ", " outward ", 1), `want a direction`},
		{"shape", strings.Replace(good, "[4 8]", "[4  8]", 1), "want a dimension"},
		{"open shape", strings.Replace(good, "[4 8]", "[4 8", 1), "want a dimension"},
		{"no space in shape", strings.Replace(good, "[4 8]", "[4,8]", 1), `want " "`},
		{"unsorted programs", strings.Replace(good, "[5]", "[7 5]", 1), "out of order"},
		{"unsorted anchors", good + strings.Split(good, "\n")[8] + "\n", "out of order"},
		{"role", strings.Replace(good, " data", " weights", 1), "want the end of the line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := contract.Parse(c.text)
			require.ErrorIs(t, err, contract.ErrText)
			require.Contains(t, err.Error(), c.want)
		})
	}
}

// anchors draws an anchor that may be odd in every way a file may be.
func anchors(odd bool) *rapid.Generator[contract.Anchor] {
	return rapid.Custom(func(t *rapid.T) contract.Anchor {
		name := rapid.SampledFrom([]string{"", "a", "b", "w", "a b", "\"q\"\n", "é", "\xff", "日本"})
		a := contract.Anchor{
			Name:         name.Draw(t, "name"),
			Handle:       name.Draw(t, "handle"),
			Type:         popef.TensorType(rapid.IntRange(0, 2).Draw(t, "direction")),
			Info:         popef.TensorInfo{DataType: popef.DataType(rapid.IntRange(0, 14).Draw(t, "type"))},
			Programs:     rapid.SliceOfN(rapid.Uint32Range(0, 9), 0, 3).Draw(t, "programs"),
			PerReplica:   rapid.Bool().Draw(t, "per replica"),
			RemoteBuffer: rapid.Bool().Draw(t, "remote"),
			Repeats:      rapid.Uint32Range(0, 3).Draw(t, "repeats"),
		}
		a.Info.Shape = rapid.SliceOfN(rapid.Int64Range(0, 5), 0, 3).Draw(t, "shape")
		if odd {
			a.Type = popef.TensorType(rapid.Uint16().Draw(t, "any direction"))
			a.Info.DataType = popef.DataType(rapid.Uint16().Draw(t, "any type"))
			a.Info.Shape = append(a.Info.Shape, rapid.SampledFrom([]int64{math.MinInt64, -1, math.MaxInt64}).Draw(t, "dimension"))
		}
		return a
	})
}

// contracts draws a contract in canonical form by way of a model's metadata.
func contracts(odd bool) *rapid.Generator[contract.Contract] {
	return rapid.Custom(func(t *rapid.T) contract.Contract {
		flow := rapid.SliceOfN(rapid.Uint32Range(0, 9), 0, 3)
		m := popef.Model{Metadata: popef.Metadata{
			ReplicationFactor: rapid.Uint32Range(0, 2).Draw(t, "replicas"),
			NumIPUs:           rapid.Uint32().Draw(t, "ipus"),
			DeviceIterations:  rapid.Uint32Range(0, 2).Draw(t, "iterations"),
			SeedHandle:        rapid.SampledFrom([]string{"", "a", "\xfe\""}).Draw(t, "seed"),
			ProgramFlow:       popef.ProgramFlow{Load: flow.Draw(t, "load"), Main: flow.Draw(t, "main"), Save: flow.Draw(t, "save")},
		}}
		for _, a := range rapid.SliceOfN(anchors(odd), 0, 5).Draw(t, "anchors") {
			m.Metadata.Anchors = append(m.Metadata.Anchors, popef.Anchor{Name: a.Name, Handle: a.Handle, Type: a.Type, Info: a.Info,
				Programs: a.Programs, PerReplica: a.PerReplica, RemoteBuffer: a.RemoteBuffer, Repeats: a.Repeats})
		}
		return contract.Of(&m)
	})
}

func TestTextAndParse(t *testing.T) {
	for name, odd := range map[string]bool{"valid": false, "odd": true} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			c := contracts(odd).Draw(t, "contract")
			text := c.Text()
			back, err := contract.Parse(text)
			require.NoError(t, err)
			require.Equal(t, text, back.Text())
			require.Empty(t, contract.Diff(c, back))
			for _, r := range text {
				require.Less(t, r, rune(0x7f), "the text is ASCII")
			}
		}))
	}
}

func TestDiffIsEmptyIffEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := contracts(false).Draw(t, "a"), contracts(false).Draw(t, "b")
		if rapid.Bool().Draw(t, "near") { // two random contracts are hardly ever equal
			b = a
			b.Anchors = slices.Clone(a.Anchors)
			if n := len(b.Anchors); n > 0 && rapid.Bool().Draw(t, "drop") {
				b.Anchors = b.Anchors[:n-1]
			}
		}
		changes := contract.Diff(a, b)
		require.Equal(t, a.Text() == b.Text(), len(changes) == 0)
		for _, c := range changes {
			require.NotContains(t, c.String(), "change(")
			require.NotEqual(t, c.Old, c.New)
		}
	})
}

func TestDiff(t *testing.T) {
	old := popeftest.ModelA()
	f := popeftest.ModelA()
	f.Metadata.DeviceIterations = 4
	f.Metadata.ProgramFlow.Save = []uint32{7}
	f.Metadata.SeedHandle = "h2d_seed"
	for i := range f.Metadata.Anchors {
		a := &f.Metadata.Anchors[i]
		switch {
		case a.Name == "input":
			a.Info.Shape = []int64{8, 16}
			a.Info.DataType = popef.F16
			a.Handle = "h2d_image"
		case a.Name == "Gemm:0":
			a.Name = "logits"
		case a.Name == "init_input/1" && a.Type == popef.Output:
			a.Type, a.Handle, a.Programs, a.PerReplica = popef.Input, "h2d_new", []uint32{0, 5}, true
			a.Name = "extra"
		}
	}
	var b strings.Builder
	for _, c := range contract.Diff(contract.Of(old.Load(t)), contract.Of(f.Load(t))) {
		fmt.Fprintf(&b, "%-16v %s\n", c.Kind, c)
	}
	golden(t, "diff.txt", b.String())
}

func FuzzParse(f *testing.F) {
	for _, fixture := range popeftest.All() {
		b, err := fixture.Bytes()
		require.NoError(f, err)
		m, err := popef.LoadBytes("seed", b)
		require.NoError(f, err)
		f.Add(contract.Of(m).Text())
	}
	f.Add("popefgen contract 1\nreplicas 1\nipus 1\niterations 0\nseed \"\\xff\"\nload\nmain 1 2\nsave 3\nanchor \"\" unknown DataType(99) [-1 0] handle \"\" programs [] per-replica remote repeats 2 data\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := contract.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, contract.ErrText)
			return
		}
		require.Equal(t, text, c.Text())
	})
}
