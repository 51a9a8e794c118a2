package contract_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// fusedBase is a model of two, with a value that both of them are given.
const fusedBase = `popefgen contract 4
iterations 1
branches detector reader
input "detector/image" F32 [8 8]
input "reader/image" U8 [8]
output "detector/boxes" F32 [100 4]
output "reader/text" S64 [24]
load "scale" F32 [2]
`

// TestFused reads the contract of a fused file.
func TestFused(t *testing.T) {
	model := func(blob string) *popef.Model {
		f := popeftest.ModelA()
		meta := &f.Metadata
		meta.ProgramFlow = popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5, 10}}
		meta.Anchors, f.Tensors = nil, nil
		for _, a := range []struct {
			name    string
			typ     popef.TensorType
			program uint32
			info    popef.TensorInfo
		}{
			{"detector/image", popef.Input, 5, popef.TensorInfo{DataType: popef.F32, Shape: []int64{8, 8}}},
			{"detector/boxes", popef.Output, 5, popef.TensorInfo{DataType: popef.F32, Shape: []int64{100, 4}}},
			{"reader/image", popef.Input, 10, popef.TensorInfo{DataType: popef.U8, Shape: []int64{8}}},
			{"reader/text", popef.Output, 10, popef.TensorInfo{DataType: popef.S64, Shape: []int64{24}}},
			{"scale", popef.Input, 0, popef.TensorInfo{DataType: popef.F32, Shape: []int64{2}}},
		} {
			meta.Anchors = append(meta.Anchors, popef.Anchor{Name: a.name, Handle: "stream " + a.name, Programs: []uint32{a.program}, Info: a.info, Type: a.typ})
		}
		write := f.Files[0].Write
		f.Files[0].Write = func(w *popef.Writer) error {
			if err := write(w); err != nil {
				return err
			}
			o, err := w.CreateOpaque(family.BranchesBlob, meta.Executable)
			if err != nil {
				return err
			}
			_, err = o.Write([]byte(blob))
			return err
		}
		b, err := f.Bytes()
		require.NoError(t, err)
		m, err := popef.LoadBytes("fused", b)
		require.NoError(t, err)
		return m
	}
	m := model(`{"version":1,"branches":[{"name":"detector","program":5},{"name":"reader","program":10}]}`)
	c := contract.Of(m)
	require.NoError(t, c.Refused)
	require.Nil(t, c.Family)
	require.Equal(t, fusedBase, c.Callers().Text())
	callers := c.Callers()
	require.Equal(t, "reader", callers.Fields[1].Branch(&callers))
	require.Equal(t, "", callers.Fields[4].Branch(&callers))

	// A branch alone is the contract of its model.
	require.Equal(t, "popefgen contract 2\niterations 1\ninput \"image\" U8 [8]\noutput \"text\" S64 [24]\nload \"scale\" F32 [2]\n",
		contract.Of(c.Branches[1].Single(m)).Callers().Text())

	c = contract.Of(model(`{"version":1,"branches":[{"name":"detector","program":5}]}`))
	require.ErrorIs(t, c.Refused, family.ErrBranches)
	require.ErrorContains(t, c.Refused, "main program 10 is no branch")
}

// TestJudgeFused compares the verdicts on pairs of fused models with the rules.
func TestJudgeFused(t *testing.T) {
	single := `popefgen contract 2
iterations 1
input "image" F32 [8 8]
output "boxes" F32 [100 4]
load "scale" F32 [2]
`
	more := []string{"branches detector reader => branches detector reader writer", `+input "writer/x" F32 [8] < output "detector`, `+output "writer/y" F32 [8] < load`}
	less := []string{"branches detector reader => branches detector", `-input "reader`, `-output "reader`}
	turned := []string{"branches detector reader => branches reader detector"}
	for _, c := range []struct {
		name     string
		old, new contract.Published
		want     []string
	}{
		{"nothing", edited(t, fusedBase), edited(t, fusedBase), nil},
		{"branch added", edited(t, fusedBase), edited(t, fusedBase, more...), []string{"compatible branch-added +"}},
		{"branch taken away", edited(t, fusedBase), edited(t, fusedBase, less...), []string{"breaking branch-removed"}},
		{"another name", edited(t, fusedBase), edited(t, strings.ReplaceAll(fusedBase, "reader", "scribe")), []string{"breaking branch-removed", "compatible branch-added +"}},
		{"another order", edited(t, fusedBase), edited(t, fusedBase, turned...), []string{"compatible order +"}},
		{"one model is fused", edited(t, single), edited(t, fusedBase),
			[]string{"breaking branches", "breaking removed", "breaking removed", "breaking added", "breaking added", "compatible added +", "compatible added +"}},
		{"fused no more", edited(t, fusedBase), edited(t, single),
			[]string{"breaking branches", "breaking removed", "breaking removed", "breaking removed", "breaking removed", "breaking added", "compatible added +"}},
		{"an input more", edited(t, fusedBase), edited(t, fusedBase, `+input "reader/mask" U8 [8] < output "detector`), []string{"breaking added"}},
		{"an output more", edited(t, fusedBase), edited(t, fusedBase, `+output "reader/mask" U8 [8] < load`), []string{"compatible added +"}},
		{"a tensor has another name", edited(t, fusedBase), edited(t, fusedBase, "reader/text => reader/words"), []string{"breaking renamed"}},
		{"a tensor goes to another branch", edited(t, fusedBase, `+output "reader/more" F32 [100 4] < load`), edited(t, fusedBase, `+output "detector/more" F32 [100 4] < load`),
			[]string{"breaking removed", "compatible added +"}},
		{"another shape", edited(t, fusedBase), edited(t, fusedBase, "[100 4] => [50 4]"), []string{"breaking shape"}},
		{"batches of both", edited(t, fusedBase), edited(t, fusedBase, `"detector/image" F32 [8 8] => "detector/image" F32 [4 8]`), []string{"breaking shape"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			found := contract.Judge(c.old, c.new)
			for _, f := range found {
				got = append(got, fmt.Sprint(f.Verdict, " ", f.Kind))
				if f.Opens {
					got[len(got)-1] += " +"
				}
				require.NotEmpty(t, f.Why)
				require.NotEmpty(t, f.Do)
			}
			require.Empty(t, cmp.Diff(c.want, got))
			require.Equal(t, c.old.Text() == c.new.Text(), len(found) == 0)
		})
	}
	found := contract.Judge(edited(t, fusedBase), edited(t, fusedBase, less...))
	require.Equal(t, `branch "reader" is gone (callers of RunReader do not build, nor does what names BranchReader, InputsReader or OutputsReader); to do: adapt the callers, or compile the model with it`, found[0].String())
	found = contract.Judge(edited(t, fusedBase), edited(t, fusedBase, `+output "reader/mask" U8 [8] < load`))
	require.Contains(t, found[0].String(), "NewOutputsReader allocates it")
}

// TestFusedFile writes and reads a fused model's contract.txt, and wants faults named.
func TestFusedFile(t *testing.T) {
	p := edited(t, fusedBase)
	p.GoNames = strings.Fields("DetectorImage ReaderImage DetectorBoxes ReaderText Scale")
	text := p.FileText()
	require.True(t, contract.IsFile([]byte(text)))
	back, err := contract.ParseFile(text)
	require.NoError(t, err)
	require.Equal(t, p, back)
	for _, c := range []struct{ old, new, want string }{
		{"branches detector reader", "branches", "line 3"},
		{"branches detector reader", "dims detector reader", `want "branches"`},
		{"branches detector reader", "branches detector  reader", "is empty"},
		{"branches detector reader", "branches detector detector", `two branches are called "detector"`},
		{"branches detector reader", "branches detector", "called after a branch"},
		{`"reader/text"`, `"text"`, "line 7"},
		{"contract 4", "contract 8", "line 1"},
		{`load "scale" F32 [2]`, `save "scale" F32 [2`, "line 8"},
	} {
		_, err := contract.Parse(strings.Replace(fusedBase, c.old, c.new, 1))
		require.ErrorIs(t, err, contract.ErrText, c.new)
		require.ErrorContains(t, err, c.want)
	}
}
