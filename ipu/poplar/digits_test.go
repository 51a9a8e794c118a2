//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/generated_examples/words/letters"
	"github.com/popefgen/popefgen/ipu/poplar"
	"github.com/popefgen/popefgen/rt"
)

// answers returns what a runner of the digits example says of scans.
func answers(t *testing.T, n int, options ...rt.RunnerOption) [][10]float32 {
	heldOut, err := scans.HeldOut()
	require.NoError(t, err)
	r, err := classifier.Open(context.Background(), options...)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	in, out := classifier.NewInputs(), classifier.NewOutputs()
	all := make([][10]float32, n)
	for i := range all {
		for y, row := range heldOut[i].Grey {
			for x, g := range row {
				in.Image.Data[0][0][y][x] = float32(g) / 16
			}
		}
		require.NoError(t, r.Run(context.Background(), in, out))
		all[i] = out.Probabilities.Data[0]
	}
	return all
}

// TestDigits runs a generated package on the back end, chosen by an option and by the environment: the answers are those
// of the cpu back end, to the bit.
func TestDigits(t *testing.T) {
	want := answers(t, 40)
	require.Equal(t, want, answers(t, 40, rt.WithBackend(poplar.Name)))
	t.Setenv(rt.BackendVariable, poplar.Name)
	t.Setenv("FAKE_POPLAR_NASTY", "poison,refuse,extra,delay,discard,silent,forget")
	require.Equal(t, want, answers(t, 40))
	t.Setenv("FAKE_POPLAR_IPUS", "0")
	_, err := classifier.Open(context.Background())
	require.ErrorContains(t, err, "no device", "the environment was not looked at")
}

// next returns what a runner of the words example says of letters, one after another: what it keeps between them goes from a run's
// outputs to the next one's inputs.
func next(t *testing.T, options ...rt.RunnerOption) (all [][]float32) {
	r, err := letters.Open(context.Background(), options...)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	stream, err := r.NewStream()
	require.NoError(t, err)
	in, out := letters.NewStreamInputs(), letters.NewStreamOutputs()
	for _, c := range "popefgen makes words of letters" {
		in.Letter.Data[0][0] = max(0, int32(c)-'a'+1)
		require.NoError(t, stream.Run(context.Background(), in, out))
		all = append(all, slices.Clone(out.Next.Flat()))
	}
	return all
}

// TestWords runs another generated package, which keeps a state, chosen in both ways.
func TestWords(t *testing.T) {
	want := next(t)
	require.NotEqual(t, want[1], want[3], "the same letter after others")
	require.Equal(t, want, next(t, rt.WithBackend(poplar.Name)))
	t.Setenv(rt.BackendVariable, poplar.Name)
	t.Setenv("FAKE_POPLAR_NASTY", "poison,refuse,extra,delay,discard,silent,forget")
	require.Equal(t, want, next(t))
	t.Setenv("FAKE_POPLAR_IPUS", "0")
	_, err := letters.Open(context.Background())
	require.ErrorContains(t, err, "no device", "the environment was not looked at")
}

// TestAutoReset has the device fail in the middle of requests: the next request of a runner that resets it has the right
// answer, weights included.
func TestAutoReset(t *testing.T) {
	ctx := context.Background()
	want := answers(t, 1)[0]
	heldOut, err := scans.HeldOut()
	require.NoError(t, err)
	r, err := classifier.Open(ctx, rt.WithBackend(poplar.Name), rt.AutoReset())
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	in, out := classifier.NewInputs(), classifier.NewOutputs()
	for y, row := range heldOut[0].Grey {
		for x, g := range row {
			in.Image.Data[0][0][y][x] = float32(g) / 16
		}
	}
	for _, fault := range []string{"run:5@2=application", "fetch@3=recoverable:IPU_RESET"} {
		t.Setenv("FAKE_POPLAR_FAULT", fault)
		failed := 0
		for range 4 {
			if err := r.Run(ctx, in, out); err != nil {
				var device *rt.DeviceError
				require.ErrorAs(t, err, &device)
				require.True(t, device.AutoReset)
				failed++
				continue
			}
			require.Equal(t, want, out.Probabilities.Data[0])
		}
		require.Equal(t, 1, failed, fault)
	}
}

// TestNoReset has the device fail in all ways after which loading again does not help: no request computes any more, and
// each says why, with the action that helps.
func TestNoReset(t *testing.T) {
	ctx := context.Background()
	for _, c := range classes {
		if c.effect == "application" || c.effect == "recoverable:IPU_RESET" {
			continue
		}
		t.Run(c.effect, func(t *testing.T) {
			r, err := classifier.Open(ctx, rt.WithBackend(poplar.Name), rt.AutoReset())
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			in, out := classifier.NewInputs(), classifier.NewOutputs()
			require.NoError(t, r.Run(ctx, in, out))
			t.Setenv("FAKE_POPLAR_FAULT", "run:5="+c.effect)
			for range 3 {
				err = r.Run(ctx, in, out)
				require.Error(t, err)
				for _, is := range c.is {
					require.ErrorIs(t, err, is)
				}
				if _, action, _ := strings.Cut(c.effect, ":"); action != "" && action != "ODD" {
					require.ErrorContains(t, err, "needs "+action)
				}
			}
		})
	}
}
