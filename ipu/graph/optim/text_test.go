package optim_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
)

func TestParse(t *testing.T) {
	adam := optim.NewAdam()
	adam.Rule, adam.L2 = graph.UpdateAdam, true
	adam.LearningRate = optim.Changeable(0.01)
	adam.Beta1 = optim.Const(0.8)
	adam.WeightDecay = optim.Const(0.1).With("*.bias", optim.Value{V: 0, Const: true})
	adamw := optim.NewAdam()
	adamw.Rule, adamw.LearningRate, adamw.NoBias = graph.UpdateAdam, optim.Const(0.001), true
	sgd := optim.NewSGD()
	sgd.Nesterov, sgd.Momentum = true, optim.Changeable(0.9)
	rms := optim.NewAdaptive(graph.UpdateCentredRMSProp)
	rms.TensorFlow, rms.L2 = true, true
	for _, c := range []struct {
		text string
		want optim.Optimizer
		full string
	}{
		{"adam,lr=~0.01,beta1=0.8,weight-decay=0.1,weight-decay@*.bias=0", adam,
			"adam,learning-rate=~0.01,weight-decay=0.1,weight-decay@*.bias=0,beta1=0.8,beta2=0.999,eps=1e-06,loss-scaling=1"},
		{"adamw, no-bias", adamw, "adamw,no-bias,learning-rate=0.001,weight-decay=0,beta1=0.9,beta2=0.999,eps=1e-06,loss-scaling=1"},
		{"sgd,nesterov,momentum=~0.9", sgd, "sgd,nesterov,learning-rate=0.1,weight-decay=0,momentum=~0.9,dampening=0,velocity-scaling=1,loss-scaling=1"},
		{"centred-rmsprop,tensorflow,l2", rms, "centred-rmsprop,l2,tensorflow,learning-rate=0.01,weight-decay=0,eps=1e-06,momentum=0,loss-scaling=1,alpha=0.99"},
	} {
		got, err := optim.Parse(c.text)
		require.NoError(t, err, c.text)
		require.Empty(t, cmp.Diff(c.want, got), c.text)
		require.Equal(t, c.full, optim.Text(got))
	}
	for _, name := range optim.Names() {
		o, err := optim.Parse(name)
		require.NoError(t, err)
		again, err := optim.Parse(optim.Text(o))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(o, again))
		require.NotEmpty(t, optim.Settings(o))
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                       `it names no optimizer: optimizer "": want one of sgd, adam`,
		"adm":                    `did you mean "adam"?`,
		"adam,beta3=1":           `optimizer adam has no "beta3"; did you mean "beta1"?`,
		"sgd,beta1=1":            `optimizer sgd has no "beta1"`,
		"adam,lr":                `"lr": the number is missing, as in lr=0.01, or lr=~0.01 if it is to be changeable`,
		"adam,lr=":               `"" is no number`,
		"adam,lr=~~1":            `"~~1" is no number`,
		"adam,lr=nan":            `"nan" is no number`,
		"adam,lr=1e99":           `"1e99" is no number`,
		"adam,lr=-1":             `learning rate is -1, want 0 or more`,
		"adam,beta1=1":           `beta1 is 1, want 0 or more and less than 1`,
		"adam,lr=1,lr=2":         `"lr" is given twice`,
		"adam,weight-decay@[=1":  `pattern "[" is malformed`,
		"adam,nesterov":          `optimizer adam has no "nesterov"`,
		"adadelta,tensorflow":    `has no "tensorflow"`,
		"adam,max-weight-norm=1": `has no "max-weight-norm"`,
	} {
		_, err := optim.Parse(text)
		require.ErrorIs(t, err, optim.ErrText, text)
		require.ErrorContains(t, err, want, text)
	}
}

// FuzzParse holds what [optim.Parse] takes to its text.
func FuzzParse(f *testing.F) {
	f.Add("adam,lr=~0.001,beta1=0.9,weight-decay@*.bias=0")
	f.Add("sgd,nesterov,momentum=1e-3")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := optim.Parse(text)
		if err != nil {
			return
		}
		again, err := optim.Parse(optim.Text(o))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(o, again))
	})
}
