package grpcserve

import (
	"context"
	"encoding/csv"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/serve/oip"
)

// scans reads the scans of digits of the example.
func scans(t *testing.T) (all [][64]float32) {
	t.Helper()
	f, err := os.Open("../../generated_examples/digits/scans/heldout.csv")
	require.NoError(t, err)
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment, r.FieldsPerRecord = '#', -1
	rows, err := r.ReadAll()
	require.NoError(t, err)
	for _, row := range rows {
		var scan [64]float32
		ok := len(row) == 1+len(scan) // behind the label
		for i := 0; ok && i < len(scan); i++ {
			v, err := strconv.ParseFloat(row[1+i], 32)
			scan[i], ok = float32(v), err == nil
		}
		if ok {
			all = append(all, scan)
		}
	}
	require.Greater(t, len(all), 300)
	return all
}

// TestGenerated has callers of a generated client ask for every scan of the example, and compares each answer with that of
// Run here.
func TestGenerated(t *testing.T) {
	ctx := context.Background()
	r, err := classifier.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	addr, _ := running(t, []oip.Model{classifier.Served(r)})
	c := classifier.NewClient(dial(t, addr))
	all := scans(t)
	const callers = 4 // as many as may wait
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			in, want, got := classifier.NewInputs(), classifier.NewOutputs(), classifier.NewOutputs()
			for i := caller; i < len(all); i += callers {
				copy(in.Image.Flat(), all[i][:])
				if err := r.Run(ctx, in, want); err != nil {
					t.Error(err)
					return
				}
				if err := c.Run(ctx, in, got); err != nil {
					t.Error(err)
					return
				}
				if *want.Probabilities != *got.Probabilities {
					t.Errorf("scan %d: %v, and Run gives %v", i, got.Probabilities.Data, want.Probabilities.Data)
				}
			}
		})
	}
	group.Wait()
}

// another is a model with another contract than the package was generated for.
type another struct {
	oip.Model
	spec oip.Spec
}

func (m *another) Spec() *oip.Spec { return &m.spec }

// TestGeneratedContract asks servers whose model has more than the client was generated for, or another shape.
func TestGeneratedContract(t *testing.T) {
	ctx := context.Background()
	r, err := classifier.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	ask := func(old, new string) error {
		m := &another{Model: classifier.Served(r), spec: *classifier.Served(r).Spec()}
		require.Contains(t, m.spec.Contract, old)
		m.spec.Contract = strings.Replace(m.spec.Contract, old, new, 1)
		addr, _ := running(t, []oip.Model{m})
		return classifier.NewClient(dial(t, addr)).Run(ctx, classifier.NewInputs(), classifier.NewOutputs())
	}
	require.NoError(t, ask("F32 [1 10]\n", "F32 [1 10]\noutput \"more\" F32 [7]\n"))
	err = ask("F32 [1 10]", "F32 [1 12]")
	var e *oip.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, oip.FailedPrecondition, e.Code)
	require.ErrorContains(t, err, `breaking    run output "probabilities": shape was [1 10], is [1 12]`)
}
