package contract_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// TestJudgeHidden wants findings to say what callers did not see or do not see
// any more.
func TestJudgeHidden(t *testing.T) {
	of := func(data bool) contract.Published {
		f := popeftest.ModelA()
		f.Metadata.Anchors = append(f.Metadata.Anchors, popef.Anchor{Name: "rate", Handle: "h2d_rate", Type: popef.Input,
			Info: popef.TensorInfo{DataType: popef.F32}, Programs: slices.Clone(f.Metadata.ProgramFlow.Load)})
		if data {
			f.Tensors = append(f.Tensors, popeftest.Tensor{Name: "rate", Info: popef.TensorInfo{DataType: popef.F32}, Data: make([]byte, 4)})
		}
		return contract.Of(f.Load(t)).Published()
	}
	gone := contract.Judge(of(false), of(true))
	require.Len(t, gone, 1)
	require.ErrorContains(t, errors.New(gone[0].String()), "the model has an anchor of this name that callers do not see: load data, its data is in the file")
	come := contract.Judge(of(true), of(false))
	require.Len(t, come, 1)
	require.ErrorContains(t, errors.New(come[0].String()), "before, callers did not see the anchor of this name: load data, its data is in the file")
}

// TestJudgeUnused has an anchor of a name that is gone, which no program moves:
// it is not what became of it.
func TestJudgeUnused(t *testing.T) {
	old := edited(t, verdictBase)
	for role, want := range map[contract.Role]string{contract.Unused: "", contract.LoadData: "the model has an anchor of this name"} {
		now := edited(t, verdictBase, `-save "w"`)
		now.Hidden = []contract.Anchor{{Name: "w", Role: role}}
		found := contract.Judge(old, now)
		require.Len(t, found, 1)
		require.Contains(t, found[0].Why, want)
		require.Equal(t, want != "", strings.Contains(found[0].Why, "callers do not see"))
	}
}
