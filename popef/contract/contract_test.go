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
			text := c.Callers().Text()
			var b strings.Builder
			b.WriteString(text)
			fmt.Fprintf(&b, "hash %s\n", c.Callers().Hash())
			for _, a := range c.Anchors {
				fmt.Fprintf(&b, "role of %v %s: %v\n", a.Type, a.Name, a.Role)
			}
			golden(t, f.Name+".txt", b.String())

			back, err := contract.Parse(text)
			require.NoError(t, err)
			require.Equal(t, text, back.Text())
			require.Empty(t, contract.Judge(c.Published(), contract.Published{Callers: back}))

			roles := contract.Roles(m)
			require.Len(t, roles, len(m.Metadata.Anchors))
			for _, a := range c.Anchors {
				require.Equal(t, m.Metadata.Anchors[a.Index].Handle, a.Handle)
				require.Equal(t, a.Role, roles[a.Index], a.Name)
			}
		})
	}
}

// TestIndependent checks that what is not part of a contract does not change
// it.
func TestIndependent(t *testing.T) {
	want := contract.Of(popeftest.ModelA().Load(t)).Callers().Text()
	for name, change := range map[string]func(f *popeftest.Fixture){
		"order of different groups": func(f *popeftest.Fixture) { slices.Reverse(f.Metadata.Anchors) },
		"IPUs":                      func(f *popeftest.Fixture) { f.Metadata.NumIPUs = 16 },
		"iterations not recorded":   func(f *popeftest.Fixture) { f.Metadata.DeviceIterations = 0 },
		"load programs": func(f *popeftest.Fixture) {
			f.Metadata.ProgramFlow.Load = append([]uint32{9}, f.Metadata.ProgramFlow.Load...)
		},
		"handles": func(f *popeftest.Fixture) {
			for i := range f.Metadata.Anchors {
				f.Metadata.Anchors[i].Handle += "/again"
			}
		},
		"names of weights": func(f *popeftest.Fixture) {
			for i := range f.Metadata.Anchors {
				if strings.HasPrefix(f.Metadata.Anchors[i].Name, "init") {
					f.Metadata.Anchors[i].Name += "/again"
				}
			}
			for i := range f.Tensors {
				f.Tensors[i].Name += "/again"
			}
		},
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
			require.Empty(t, cmp.Diff(want, contract.Of(f.Load(t)).Callers().Text()))
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
	const good = verdictBase
	_, err := contract.Parse(good)
	require.NoError(t, err)
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", `line 1: found "", want "popefgen contract 2"`},
		{"other version", "popefgen contract 1\n", `line 1: found "popefgen contract 1", want "popefgen contract 2"`},
		{"cut", good[:len(good)-1], "want the end of the line"},
		{"crlf", strings.ReplaceAll(good, "\n", "\r\n"), `line 1: found "\r", want the end of the line`},
		{"one replica is not said", strings.Replace(good, "iterations", "replicas 1\niterations", 1), "line 2: written in another way"},
		{"leading zero", strings.Replace(good, "iterations 1", "iterations 01", 1), "line 2: written in another way"},
		{"too large", strings.Replace(good, "iterations 1", "iterations 4294967296", 1), "line 2: "},
		{"no number", strings.Replace(good, "iterations 1", "iterations x", 1), `line 2: found "x", want a number below 2^32`},
		{"no name", strings.Replace(good, `"image"`, `image`, 1), `line 3: found "image F32 [4 1 28 28]", want a quoted string`},
		{"raw string", strings.Replace(good, `"image"`, "`image`", 1), "line 3: written in another way"},
		{"type", strings.Replace(good, "F32", "F33", 1), `want an element type`},
		{"direction", strings.Replace(good, "output ", "outward ", 1), `line 4: found "outward \"logits\" F32 [4 10]", want input, output, load, save or optimizer`},
		{"shape", strings.Replace(good, "[4 10]", "[4  10]", 1), "want a dimension"},
		{"open shape", strings.Replace(good, "[4 10]", "[4 10", 1), `want " "`},
		{"no space in shape", strings.Replace(good, "[4 10]", "[4,10]", 1), `want " "`},
		{"groups out of order", good + "input \"x\" F32 []\n", `run input "x": out of order`},
		{"more", strings.Replace(good, "[4 10]", "[4 10] data", 1), "want the end of the line"},
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

// contracts draws a contract by way of a model's metadata.
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
			text := c.Callers().Text()
			back, err := contract.Parse(text)
			require.NoError(t, err)
			require.Equal(t, text, back.Text())
			for _, r := range text {
				require.Less(t, r, rune(0x7f), "the text is ASCII")
			}
		}))
	}
}

func FuzzParse(f *testing.F) {
	for _, fixture := range popeftest.All() {
		b, err := fixture.Bytes()
		require.NoError(f, err)
		m, err := popef.LoadBytes("seed", b)
		require.NoError(f, err)
		f.Add(contract.Of(m).Callers().Text())
	}
	f.Add(fusedBase)
	f.Add("popefgen contract 6\niterations 8\ninput \"x\" F32 [2]\noutput \"loss\" F32 [] transfers 1 evaluate\nsave \"w\" F32 [2] weight\noptimizer \"lr\" F32 []\n")
	f.Add("popefgen contract 5\niterations 8\ninput \"x\" F32 [2]\noutput \"loss\" F32 [] transfers 1\n")
	f.Add("popefgen contract 2\nreplicas 0\niterations 3\ninput \"\" DataType(99) [-1 0] repeats 2 handle \"\\xff\"\n")
	f.Add(familyBase)
	f.Add(countedBase)
	f.Add(looseBase)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := contract.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, contract.ErrText)
			return
		}
		require.Equal(t, text, c.Text())
	})
}
