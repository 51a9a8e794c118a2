package popart_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/onnx/popart"
	"github.com/popefgen/popefgen/rt"
)

// panicking is a context that panics when it is asked.
type panicking struct{ context.Context }

func (panicking) Err() error { panic("asked too much") }

// TestErrorClasses reaches every class of errors, and every sentinel, by what really causes it: PopART's classes, and below them Poplar's kinds as devices report them.
// Feature 118.
func TestErrorClasses(t *testing.T) {
	flow := popart.DataFlow{1, popart.Anchors{"z": popart.All}}
	inference := func(o *popart.Options) (*popart.InferenceSession, error) {
		return popart.NewInferenceSession(t.Context(), doubler(), flow, popart.CPU(), shapes, o)
	}
	run := func(io popart.StepIO) error { return prepared(t, flow, nil).Run(t.Context(), io) }
	arrays := func(x popart.Array) popart.StepIO {
		return popart.Arrays(map[string]popart.Array{"x": x}, map[string]popart.Array{"z": popart.Of(make([]float32, 6))})
	}
	// onDevice is what a run fails with whose device reports an error.
	onDevice := func(e *ipu.Error) error {
		sys := iputest.New(iputest.Config{})
		devices := popart.Devices{Manager: sys.Manager()}
		device, err := devices.AcquireAvailable(t.Context(), 1)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, device.Close()) })
		s, err := popart.NewInferenceSession(t.Context(), doubler(), flow, device, shapes, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() }) // what the device said again
		require.NoError(t, s.PrepareDevice(t.Context()))
		sys.Inject(iputest.OnRun(5), e)
		return s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(count(6))}, s.InitAnchorArrays()))
	}
	type is []error
	plain, runtime := is{popart.ErrPopART}, is{popart.ErrPopART, popart.ErrRuntime}
	for name, c := range map[string]struct {
		cause func() error
		want  is
		also  error
		text  string
	}{
		"data flow": {func() error {
			_, err := popart.NewInferenceSession(t.Context(), doubler(), popart.DataFlow{}, popart.CPU(), shapes, nil)
			return err
		}, plain, popart.ErrDataFlow, "0 batches per step"},
		"option": {func() error { _, err := inference(&popart.Options{ReplicationFactor: -1}); return err }, plain, popart.ErrOption, "replication factor -1"},
		"stage":  {func() error { _, err := inference(&popart.Options{DotChecks: []string{"x"}}); return err }, plain, popart.ErrOption, `no stage "x"`},
		"not prepared": {func() error {
			s, err := inference(nil)
			require.NoError(t, err)
			return s.Run(t.Context(), arrays(popart.Of(count(6))))
		}, runtime, popart.ErrNotPrepared, "call PrepareDevice"},
		"offline": {func() error {
			devices := popart.Devices{Connection: popart.ConnectNever}
			d, err := devices.AcquireByID(t.Context(), "cpu", 0)
			require.NoError(t, err)
			s, err := popart.NewInferenceSession(t.Context(), doubler(), flow, d, shapes, nil)
			require.NoError(t, err)
			return s.PrepareDevice(t.Context())
		}, runtime, popart.ErrOffline, "take one that connects"},
		"weights": {func() error { return training(t, regression()).Run(t.Context(), nil) }, runtime, popart.ErrWeightsNotLoaded, "WeightsFromHost"},
		"constant weights": {func() error {
			return prepared(t, flow, nil).WriteWeights(t.Context(), nil)
		}, plain, popart.ErrConstantWeights, "VariableWeights"},
		"replacement": {func() error { return training(t, regression()).UpdateOptimizer(t.Context(), popart.Adam{}) }, plain, popart.ErrReplacement, ""},
		"tensor":      {func() error { return run(popart.Arrays(nil, nil)) }, plain, popart.ErrTensor, `"x"`},
		"size":        {func() error { return run(arrays(popart.Of(count(5)))) }, plain, popart.ErrSize, "5 elements"},
		"type":        {func() error { return run(arrays(popart.Of(make([]float64, 6)))) }, plain, popart.ErrType, "F64"},
		"buffer": {func() error {
			return run(popart.Callbacks{In: func(string, int, bool) []byte { return nil }, Out: func(string, int) []byte { return nil }})
		}, runtime, popart.ErrNilBuffer, ""},
		"closed": {func() error {
			s := prepared(t, flow, nil)
			require.NoError(t, s.Close())
			return s.Run(t.Context(), nil)
		}, plain, popart.ErrClosed, ""},
		"file": {func() error {
			return training(t, regression()).SaveExecutable(filepath.Join(t.TempDir(), "nowhere", "x"))
		}, plain, nil, "nowhere"},
		"panic": {func() error {
			_, err := popart.NewInferenceSession(panicking{t.Context()}, doubler(), flow, popart.CPU(), shapes, nil)
			return err
		}, is{popart.ErrPopART, popart.ErrInternal}, nil, "asked too much"},
		"no device": {func() error { _, err := (&popart.Devices{}).AcquireByID(t.Context(), "cpu", 9); return err }, runtime, ipu.ErrNoDevice, "9"},
		"too little memory": {func() error {
			s, err := inference(&popart.Options{EngineOptions: map[string]string{"memory": "100"}})
			require.NoError(t, err)
			return s.PrepareDevice(t.Context())
		}, runtime, ipu.ErrMemory, "100"},
		"wrong engine option": {func() error {
			s, err := inference(&popart.Options{EngineOptions: map[string]string{"threads": "no"}})
			require.NoError(t, err)
			return s.PrepareDevice(t.Context())
		}, runtime, ipu.ErrInvalidOption, "threads"},
		"device":        {func() error { return onDevice(&ipu.Error{Message: "odd"}) }, runtime, rt.ErrDevice, "odd"},
		"application":   {func() error { return onDevice(&ipu.Error{Kind: ipu.KindApplication}) }, is{popart.ErrPopART, popart.ErrRuntime, ipu.ErrRuntime}, ipu.ErrApplication, "application error"},
		"recoverable":   {func() error { return onDevice(&ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset}) }, is{popart.ErrRuntime, ipu.ErrRuntime, ipu.ErrSystem}, ipu.ErrRecoverable, "IPU_RESET"},
		"unrecoverable": {func() error { return onDevice(&ipu.Error{Kind: ipu.KindUnrecoverable}) }, is{popart.ErrRuntime, ipu.ErrRuntime, ipu.ErrSystem}, ipu.ErrUnrecoverable, "unrecoverable"},
		"unknown":       {func() error { return onDevice(&ipu.Error{Kind: ipu.KindUnknown}) }, is{popart.ErrRuntime, ipu.ErrRuntime, ipu.ErrSystem}, ipu.ErrUnknown, "unknown cause"},
		"connection":    {func() error { return onDevice(&ipu.Error{Kind: ipu.KindStreamConnection}) }, runtime, ipu.ErrStreamConnection, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.cause()
			require.Error(t, err)
			for _, w := range c.want {
				require.ErrorIs(t, err, w)
			}
			for _, class := range []error{popart.ErrRuntime, popart.ErrInternal} {
				found := false
				for _, w := range c.want {
					found = found || w == class
				}
				if !found {
					require.NotErrorIs(t, err, class)
				}
			}
			if c.also != nil {
				require.ErrorIs(t, err, c.also)
			}
			require.ErrorContains(t, err, c.text)
			var own *popart.Error
			require.ErrorAs(t, err, &own)
			require.NotEmpty(t, own.Doing)
		})
	}
}
