package contract_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// withTransfers returns fixture D, a training model of 10 batches, with a blob of transfers.
func withTransfers(t testing.TB, payload string) *popef.Model {
	t.Helper()
	f := popeftest.ModelD()
	f.Files = append(f.Files, popeftest.File{Name: "transfers.popef", Write: func(w *popef.Writer) error {
		b, err := w.CreateOpaque(contract.TransfersBlob, f.Metadata.Executable)
		if err != nil {
			return err
		}
		if _, err := b.Write([]byte(payload)); err != nil {
			return err
		}
		return b.Close()
	}})
	return f.Load(t)
}

const lossOnce = `{"version":1,"transfers":[{"handle":"anchor_d2h_Nll:0","count":1}]}`

// TestTransfers: numbers of their own are in the text, its hash, and what a run moves.
func TestTransfers(t *testing.T) {
	require.Equal(t, lossOnce, string(contract.EncodeTransfers([]contract.Transfers{{Handle: "anchor_d2h_Nll:0", Count: 1}})))
	c := contract.Of(withTransfers(t, lossOnce))
	require.NoError(t, c.Refused)
	counts := map[string]int{}
	for i := range c.Anchors {
		if a := &c.Anchors[i]; a.Group() != contract.Hidden {
			counts[fmt.Sprintf("%v %s", a.Role, a.Name)] = c.Transfers(a)
		}
	}
	require.Equal(t, "", cmp.Diff(map[string]int{
		"run input input": 10, "run input input/1": 10, "run output Nll:0": 1,
		"save output init_input": 1, "save output init_input/1": 1, "save output randomSeed___fromHost": 1, "save output rngStateTensor": 1,
		"optimizer scaledLearningRate0___default___FLOAT": 1, "optimizer weightDecayScaleFactor0___default___FLOAT": 1,
	}, counts))
	text := c.Callers().Text()
	plain := contract.Of(popeftest.ModelD().Load(t)).Callers().Text()
	want := strings.Replace(plain, `output "Nll:0" F32 [2]`, `output "Nll:0" F32 [2] transfers 1`, 1)
	require.Equal(t, "", cmp.Diff(want, text))
	back, err := contract.Parse(text)
	require.NoError(t, err)
	require.Equal(t, text, back.Text())
	require.Empty(t, contract.Judge(c.Published(), contract.Published{Callers: back}))
	file := c.Published().FileText()
	require.True(t, contract.IsFile([]byte(file)))
	published, err := contract.ParseFile(file)
	require.NoError(t, err)
	require.Equal(t, c.Callers().Hash(), published.Hash())

	// The number that iterations says is none of its own.
	same := contract.Of(withTransfers(t, strings.Replace(lossOnce, `"count":1`, `"count":10`, 1)))
	require.NoError(t, same.Refused)
	require.Equal(t, plain, same.Callers().Text())
}

// TestTransfersVerdict: another number is another type for callers.
func TestTransfersVerdict(t *testing.T) {
	ten := contract.Of(popeftest.ModelD().Load(t)).Published()
	one := contract.Of(withTransfers(t, lossOnce)).Published()
	five := contract.Of(withTransfers(t, strings.Replace(lossOnce, `"count":1`, `"count":5`, 1))).Published()
	for _, test := range []struct {
		old, new contract.Published
		want     string
	}{
		{ten, one, `run output "Nll:0": transfers was 10, is 1 (the type of its field of Outputs changes: *[10]T becomes *T`},
		{one, ten, `run output "Nll:0": transfers was 1, is 10 (the type of its field of Outputs changes: *T becomes *[10]T`},
		{five, one, `run output "Nll:0": transfers was 5, is 1 (the type of its field of Outputs changes: *[5]T becomes *T`},
	} {
		found := contract.Judge(test.old, test.new)
		require.Len(t, found, 1)
		require.Contains(t, found[0].String(), test.want)
		require.Equal(t, contract.KindTransfers, found[0].Kind)
		require.Equal(t, contract.Breaking, found[0].Verdict)
		require.False(t, contract.Opens(found))
	}
}

// TestTransfersRefused: a blob that the file does not agree with.
func TestTransfersRefused(t *testing.T) {
	entry := func(s string) string { return `{"version":1,"transfers":[` + s + `]}` }
	for _, test := range []struct{ blob, want string }{
		{``, "it is not read as JSON"},
		{`{"version":1,"transfers":[],"more":1}`, "it is not read as JSON"},
		{entry(``) + "x", "there is more behind the JSON"},
		{`{"version":2,"transfers":[]}`, "it is of version 2"},
		{entry(`{"handle":"nobody","count":1}`), `no anchor has the stream handle "nobody"`},
		{entry(`{"handle":"","count":1}`), `no anchor has the stream handle ""`},
		{entry(`{"handle":"h2d_init_input","count":1}`), `anchor "init_input" is a load data`},
		{entry(`{"handle":"anchor_d2h_Nll:0","count":0}`), `anchor "Nll:0" has 0 transfers in a run, want 1 to 2147483648`},
		{entry(`{"handle":"anchor_d2h_Nll:0","count":2147483649}`), `has 2147483649 transfers`},
		{entry(`{"handle":"anchor_d2h_Nll:0","count":1},{"handle":"anchor_d2h_Nll:0","count":2}`), `anchor "Nll:0" is there twice`},
	} {
		c := contract.Of(withTransfers(t, test.blob))
		require.ErrorIs(t, c.Refused, contract.ErrTransfers, test.blob)
		require.ErrorContains(t, c.Refused, test.want)
	}
	good := contract.Of(withTransfers(t, lossOnce)).Callers().Text()
	for _, test := range []struct{ old, new, want string }{
		{" transfers 1", " transfers 10", "those that the line iterations says"},
		{" transfers 1", " transfers 0", "written in another way"},
		{"contract 6", "contract 5", "want the end of the line"},
		{`save "init_input" F32 [6 4]`, `save "init_input" F32 [6 4] transfers 2`, "want the end of the line"},
	} {
		text := strings.Replace(good, test.old, test.new, 1)
		require.NotEqual(t, good, text)
		_, err := contract.Parse(text)
		require.ErrorIs(t, err, contract.ErrText, text)
		require.ErrorContains(t, err, test.want)
	}
}

// FuzzTransfers: whatever the blob holds, it is refused, or every number is one that a run can make and the text has them.
func FuzzTransfers(f *testing.F) {
	f.Add([]byte(lossOnce))
	f.Add([]byte(`{"version":1,"transfers":[{"handle":"h2d_input","count":2147483648},{"handle":"anchor_d2h_Nll:0","count":10}]}`))
	f.Add([]byte(`{"version":1,"transfers":[{"handle":"h2d_input","count":1e3}]}`))
	f.Add([]byte(`{"version":1,"transfers":null}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c := contract.Of(withTransfers(t, string(payload)))
		if c.Refused != nil {
			require.ErrorIs(t, c.Refused, contract.ErrTransfers)
			return
		}
		for i := range c.Anchors {
			n := c.Transfers(&c.Anchors[i])
			require.Positive(t, n)
			require.LessOrEqual(t, n, 1<<31)
		}
		text := c.Callers().Text()
		back, err := contract.Parse(text)
		require.NoError(t, err)
		require.Equal(t, text, back.Text())
	})
}
