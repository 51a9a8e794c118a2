package train_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx/train"
)

func TestParseLoss(t *testing.T) {
	axis, ignore := int64(-1), int64(-100)
	for text, want := range map[string]train.Loss{
		"cross-entropy": {Kind: "cross-entropy"},
		"mse=y":         {Kind: "mse", Output: "y"},
		"nll=y,axis=-1,ignore=-100,labels=target,reduction=sum": {Kind: "nll", Output: "y", Labels: "target", Axis: &axis, Ignore: &ignore, Reduction: optim.Sum},
		"huber,threshold=0.5": {Kind: "huber", Threshold: 0.5},
	} {
		got, err := train.ParseLoss(text)
		require.NoError(t, err, text)
		require.Empty(t, cmp.Diff(want, got), text)
	}
	for text, want := range map[string]string{
		"nll,axis":            `found "axis", want a setting such as axis=-1`,
		"nll,axis=one":        `axis is "one", want a whole number`,
		"nll,axes=1":          `there is no setting "axes"; did you mean "axis"?`,
		"nll,reduction=none":  `reduction is "none", want mean or sum`,
		"huber,threshold=-1":  `threshold is "-1", want a number of more than 0`,
		"huber,threshold=NaN": `threshold is "NaN"`,
	} {
		_, err := train.ParseLoss(text)
		require.ErrorIs(t, err, train.ErrOptions, text)
		require.ErrorContains(t, err, want)
	}
}

func TestParseReturn(t *testing.T) {
	for text, want := range map[string]train.Return{
		"a=b=final": {Type: export.Final}, "a=b=SUM": {Type: export.Sum}, "a=b=all": {}, "a=b=none": {None: true}, "a=b=every:10": {Type: export.EveryN, N: 10},
	} {
		name, got, err := train.ParseReturn(text)
		require.NoError(t, err, text)
		require.Equal(t, "a=b", name)
		require.Equal(t, want, got)
	}
	for text, want := range map[string]string{
		"final": "want OUTPUT=all", "=all": "want OUTPUT=all", "y=last": `"y=last": want OUTPUT=all, final, sum, every:N or none`, "y=every:x": `found "x", want after how many batches`, "y=everyn": "want OUTPUT=all",
	} {
		_, _, err := train.ParseReturn(text)
		require.ErrorIs(t, err, train.ErrOptions, text)
		require.ErrorContains(t, err, want)
	}
}
