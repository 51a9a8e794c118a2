package contract_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// trained is the fixture of a training model as PopART writes it, changed.
func trained(t *testing.T, change func(meta *popef.Metadata)) contract.Contract {
	f := popeftest.ModelD()
	change(&f.Metadata)
	return contract.Of(f.Load(t))
}

const trainedText = `popefgen contract 6
iterations 8
input "x" F32 [2]
output "loss" F32 [] transfers 1 evaluate
output "norm" F32 [] transfers 1
save "w" F32 [2] weight
save "Accl___w" F32 [2] state
optimizer "learningRate___default___FLOAT" F32 []
optimizer "weightDecay___default___FLOAT" F32 []
`

// TestTraining finds out of a file what a package of a training model has.
func TestTraining(t *testing.T) {
	plain := trained(t, func(*popef.Metadata) {}).Callers()
	require.True(t, plain.Trains)
	require.NotContains(t, plain.Text(), " evaluate\n", "program 9 is one of PopART's custom programs")
	require.Contains(t, plain.Text(), "save \"init_input\" F32 [6 4] weight\n")
	require.Contains(t, plain.Text(), "save \"rngStateTensor\" U32 [2 2 1472 6 4] state\n")
	evaluates := trained(t, func(meta *popef.Metadata) {
		meta.Programs = append(slices.Clone(meta.Programs), popef.ProgramInfo{Index: 12, Name: "Evaluate"})
		for i := range meta.Anchors {
			if a := &meta.Anchors[i]; slices.Equal(a.Programs, []uint32{5}) {
				a.Programs = []uint32{5, 12}
			}
		}
	})
	require.Equal(t, uint32(12), evaluates.Evaluate)
	require.Contains(t, evaluates.Callers().Text(), "output \"Nll:0\" F32 [2] evaluate\n")
	fixed := trained(t, func(meta *popef.Metadata) {
		meta.IsInference = true
		meta.Programs = nil // nobody knows what is a value of the optimizer
	}).Callers()
	require.False(t, fixed.Trains)
	require.NotContains(t, fixed.Text(), "weight\n")
	require.NotContains(t, fixed.Text(), "state\n")
}

// TestTrainingText: the text says all, and nothing else is read.
func TestTrainingText(t *testing.T) {
	c, err := contract.Parse(trainedText)
	require.NoError(t, err)
	require.Equal(t, "", cmp.Diff(trainedText, c.Text()))
	file := contract.Published{Callers: c}.FileText()
	require.True(t, contract.IsFile([]byte(file)))
	back, err := contract.ParseFile(file)
	require.NoError(t, err)
	require.Equal(t, "", cmp.Diff(c, back.Callers))
	uneven := "popefgen contract 5\niterations 8\ninput \"x\" F32 [2]\noutput \"loss\" F32 [] transfers 1\n"
	c, err = contract.Parse(uneven)
	require.NoError(t, err)
	require.Equal(t, uneven, c.Text())
	for _, bad := range []struct{ old, new string }{
		{"contract 6", "contract 2"},
		{"contract 6", "contract 5"},
		{"transfers 1 evaluate", "evaluate transfers 1"},
		{`input "x" F32 [2]`, `input "x" F32 [2] evaluate`},
		{`save "w" F32 [2] weight`, `save "w" F32 [2] evaluate`},
		{`optimizer "weightDecay___default___FLOAT" F32 []`, `optimizer "weightDecay___default___FLOAT" F32 [] weight`},
	} {
		_, err := contract.Parse(strings.Replace(trainedText, bad.old, bad.new, 1))
		require.ErrorIs(t, err, contract.ErrText, bad.new)
	}
	_, err = contract.Parse("popefgen contract 6\niterations 1\ninput \"x\" F32 [2]\n")
	require.ErrorIs(t, err, contract.ErrText)
}

const trainedSizesText = `popefgen contract 7
iterations 1
dims batch
input "x" F32 [batch 2]
output "loss" F32 [] evaluate
output "y" F32 [batch]
save "w" F32 [2] weight
save "Accl___w" F32 [2] state
optimizer "learningRate___default___FLOAT" F32 []
member 2
member 4
`

// TestTrainingSizesText: the text of a family that trains says what both say, and nothing else is read.
func TestTrainingSizesText(t *testing.T) {
	c, err := contract.Parse(trainedSizesText)
	require.NoError(t, err)
	require.True(t, c.Trains)
	require.True(t, c.Family())
	require.Equal(t, "", cmp.Diff(trainedSizesText, c.Text()))
	file := contract.Published{Callers: c}.FileText()
	require.True(t, contract.IsFile([]byte(file)))
	back, err := contract.ParseFile(file)
	require.NoError(t, err)
	require.Equal(t, "", cmp.Diff(c, back.Callers))
	for _, bad := range []struct{ old, new string }{
		{"contract 7", "contract 3"},
		{"contract 7", "contract 6"},
		{"dims batch\n", ""},
		{" evaluate", " transfers 2 evaluate"},
		{`save "w" F32 [2] weight`, `save "w" F32 [2] evaluate`},
		{" evaluate", " state"},
		{"member 2\nmember 4\n", ""},
	} {
		_, err := contract.Parse(strings.Replace(trainedSizesText, bad.old, bad.new, 1))
		require.ErrorIs(t, err, contract.ErrText, bad.new)
	}
	neither := strings.NewReplacer(" weight", "", " state", "", "optimizer \"learningRate___default___FLOAT\" F32 []\n", "").Replace(trainedSizesText)
	_, err = contract.Parse(neither)
	require.ErrorIs(t, err, contract.ErrText)

	parse := func(text string) contract.Published {
		of, err := contract.Parse(text)
		require.NoError(t, err)
		return contract.Published{Callers: of}
	}
	more := strings.Replace(trainedSizesText, "member 4\n", "member 4\nmember 8\n", 1)
	found := contract.Judge(parse(trainedSizesText), parse(more))
	require.True(t, contract.Opens(found), "%v", found)
	require.Equal(t, c.Hash(), parse(more).Hash())
	found = contract.Judge(parse(more), parse(trainedSizesText))
	require.False(t, contract.Opens(found), "%v", found)
	infers := strings.NewReplacer("contract 7", "contract 3", " weight", "", " state", "", " evaluate", "", "optimizer \"learningRate___default___FLOAT\" F32 []\n", "").Replace(trainedSizesText)
	found = contract.Judge(parse(trainedSizesText), parse(infers))
	require.True(t, slices.ContainsFunc(found, func(f contract.Finding) bool {
		return f.Kind == contract.KindTraining && f.Verdict == contract.Breaking
	}), "%v", found)
}

// TestTrainingVerdicts judges what callers of Step, Evaluate, SetOptimizer and Weights see.
func TestTrainingVerdicts(t *testing.T) {
	decay := "optimizer \"weightDecay___default___FLOAT\" F32 []\n"
	for _, c := range []struct {
		name     string
		old, new string // replaced in the text
		verdict  contract.Verdict
		opens    bool
		says     string
		back     contract.Verdict // the other way around
		backOpen bool
	}{
		{"a value that is constant now", decay, "", contract.Breaking, false, `optimizer value "weightDecay___default___FLOAT" is gone; it was F32 [] (its field of Optimizer is gone)`, contract.Compatible, true},
		{"another optimizer", "weightDecay___default", "adamBeta1___default", contract.Breaking, false, "weightDecay___default___FLOAT", contract.Breaking, false},
		{"not returned by Evaluate", " evaluate", "", contract.Breaking, false, `run output "loss": returned by Evaluate was yes, is no`, contract.Compatible, true},
		{"no weight any more", "save \"w\" F32 [2] weight", "save \"w\" F32 [2]", contract.Breaking, false, `save output "w": what it is was a weight, is not loaded again`, contract.Compatible, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			parse := func(text string) contract.Published {
				of, err := contract.Parse(text)
				require.NoError(t, err)
				return contract.Published{Callers: of}
			}
			old, new := parse(trainedText), parse(strings.Replace(trainedText, c.old, c.new, 1))
			found := contract.Judge(old, new)
			require.Equal(t, c.verdict, contract.Worst(found), "%v", found)
			require.Equal(t, c.opens, contract.Opens(found), "%v", found)
			require.Contains(t, found[0].String(), c.says)
			found = contract.Judge(new, old)
			require.Equal(t, c.back, contract.Worst(found), "%v", found)
			require.Equal(t, c.backOpen, contract.Opens(found), "%v", found)
		})
	}
	t.Run("an optimizer of another rule", func(t *testing.T) {
		parse := func(text string) contract.Published {
			of, err := contract.Parse(text)
			require.NoError(t, err)
			return contract.Published{Callers: of}
		}
		const state = "save \"Accl___w\" F32 [2] state\n"
		adam := strings.Replace(trainedText, state, "save \"Accl1___w\" F32 [2] state\nsave \"Accl2___w\" F32 [2] state\n", 1)
		found := contract.Judge(parse(trainedText), parse(strings.Replace(adam, decay, "", 1)))
		require.Len(t, found, 2, "%v", found)
		require.Equal(t, contract.KindOptimizer, found[0].Kind)
		require.Equal(t, "optimizer: was one with the states Accl, is one with the states Accl1, Accl2", found[0].Change())
		require.Equal(t, `fields of the optimizer: was optimizer value "weightDecay___default___FLOAT", save output "Accl___w", is save output "Accl1___w", save output "Accl2___w"`, found[1].Change())
		require.False(t, contract.Opens(found))
		found = contract.Judge(parse(strings.Replace(trainedText, state, "", 1)), parse(trainedText)) // nothing goes, and checkpoints do not fit
		require.Len(t, found, 2, "%v", found)
		require.Equal(t, []contract.Verdict{contract.Breaking, contract.Compatible}, []contract.Verdict{found[0].Verdict, found[1].Verdict})
		require.False(t, contract.Opens(found))
		layer := strings.Replace(trainedText, state, state+"save \"v\" F32 [2] weight\nsave \"Accl___v\" F32 [2] state\n", 1)
		require.False(t, slices.ContainsFunc(contract.Judge(parse(trainedText), parse(layer)), func(f contract.Finding) bool { return f.Kind == contract.KindOptimizer }), "a weight more, and the same rule")
	})
	t.Run("inference", func(t *testing.T) {
		train, err := contract.Parse(trainedText)
		require.NoError(t, err)
		infer, err := contract.Parse("popefgen contract 2\niterations 8\ninput \"x\" F32 [2]\n")
		require.NoError(t, err)
		found := contract.Judge(contract.Published{Callers: train}, contract.Published{Callers: infer})
		require.True(t, slices.ContainsFunc(found, func(f contract.Finding) bool {
			return f.Kind == contract.KindTraining && f.Verdict == contract.Breaking && !f.Opens
		}), "%v", found)
	})
}
