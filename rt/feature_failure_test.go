package rt_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
)

// failing makes the device fail during a request, with three more in the queue,
// one of them of samples.
func failing(t *testing.T, kind ipu.ErrorKind, action ipu.Recovery, opts ...rt.RunnerOption) (*Runner, *events, []error) {
	t.Helper()
	ctx := context.Background()
	script := affineScript()
	var seen events
	main := script.programs[mainProgram]
	started, proceed := make(chan struct{}), make(chan struct{})
	script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		started <- struct{}{}
		<-proceed
		script.programs[mainProgram] = main
		return &ipu.Error{Kind: kind, Recovery: action, Message: "it broke"}
	}
	r := fakeAffine(t, "failing", script).open(t, append(opts, rt.WithObserver(seen.observe))...)
	compute := func(wait int) <-chan error {
		result := make(chan error, 1)
		go func() { result <- r.Run(ctx, NewInputs(), NewOutputs()) }()
		if wait == 0 {
			<-started
		} else {
			require.Eventually(t, func() bool { return waiting(r.Session()) == wait }, 5*time.Second, 10*time.Microsecond)
		}
		return result
	}
	first, second := compute(0), compute(1)
	ticket, err := r.Submit(ctx, NewInputs(), NewOutputs())
	require.NoError(t, err)
	batch := make(chan error)
	go func() { batch <- r.RunSamples(ctx, make([]XSample, 4), make([]YSample, 4)) }()
	require.Eventually(t, func() bool { return waiting(r.Session()) == 3 }, 5*time.Second, 10*time.Microsecond)
	close(proceed)
	return r, &seen, []error{<-first, <-second, ticket.Wait(ctx), <-batch}
}

// checkFailed checks the errors of a request during which the device failed
// and of those that were in the queue.
func checkFailed(t *testing.T, errs []error, is error, action ipu.Recovery, reset bool) {
	t.Helper()
	for i, err := range errs {
		require.ErrorIs(t, err, rt.ErrDevice)
		require.ErrorIs(t, err, is)
		var device *rt.DeviceError
		require.ErrorAs(t, err, &device)
		require.EqualValues(t, i+1, device.Request, "each names itself")
		require.EqualValues(t, 1, device.Cause, "and the one to blame")
		require.Equal(t, action, device.Recovery)
		require.Equal(t, reset, device.AutoReset)
	}
}

// Feature 85.
func TestApplicationError(t *testing.T) {
	for _, reset := range []bool{false, true} {
		var opts []rt.RunnerOption
		if reset {
			opts = append(opts, rt.AutoReset())
		}
		r, seen, errs := failing(t, ipu.KindApplication, ipu.RecoveryNone, opts...)
		checkFailed(t, errs, ipu.ErrApplication, ipu.RecoveryNone, reset)
		if !reset {
			err := r.Run(context.Background(), NewInputs(), NewOutputs())
			checkFailed(t, append(slices.Clone(errs), err), ipu.ErrApplication, ipu.RecoveryNone, false)
			require.ErrorContains(t, err, "request 5: the device failed during request 1: ")
			require.ErrorContains(t, err, "application error: it broke; Reload resets it")
			err = r.Save(context.Background(), &SaveOutputs{W: new(W)})
			require.ErrorIs(t, err, rt.ErrDevice)
			require.ErrorContains(t, err, "save: the device failed during request 1: ", "no request of its own")
			require.NotContains(t, seen.kinds(), rt.EventReset)
			require.NoError(t, r.Session().Reload(context.Background()))
		}
		compute(t, r, 2)
		if reset {
			require.Contains(t, seen.kinds(), rt.EventReset)
			require.ErrorContains(t, errs[1], "request 2: the device failed during request 1: ")
			require.ErrorContains(t, errs[1], "application error: it broke; the next request resets it")
		}
		stats := r.Session().Stats()
		require.EqualValues(t, map[bool]int{false: 6, true: 5}[reset], stats.Requests)
		require.EqualValues(t, stats.Requests-1, stats.Errors)
	}
}

// TestApplicationErrorOnSharedDevice has an error on a device that has nothing to reset.
//
// Feature 85.
func TestApplicationErrorOnSharedDevice(t *testing.T) {
	script := affineScript()
	main := script.programs[mainProgram]
	script.programs[mainProgram] = func(context.Context, *engine) error { return &ipu.Error{Kind: ipu.KindApplication} }
	shared := mine()
	shared.info.Shared = true
	r := fakeAffine(t, "shared", script).open(t, rt.WithDevice(shared), rt.WithReplicas(2))
	err := r.RunOn(context.Background(), 0, NewInputs(), NewOutputs())
	require.ErrorIs(t, err, ipu.ErrApplication)
	require.NotErrorIs(t, err, rt.ErrDevice, "it concerns this request alone")
	script.programs[mainProgram] = main
	for range 3 {
		compute(t, r, 1)
	}
}

// Feature 86.
func TestRecoverableError(t *testing.T) {
	for _, action := range []ipu.Recovery{ipu.IPUReset, ipu.LinkReset, ipu.PartitionReset, ipu.FullReset} {
		r, _, errs := failing(t, ipu.KindRecoverable, action, rt.AutoReset())
		checkFailed(t, errs, ipu.ErrRecoverable, action, action == ipu.IPUReset)
		if action == ipu.IPUReset {
			compute(t, r, 2)
			continue
		}
		err := r.Run(context.Background(), NewInputs(), NewOutputs())
		require.ErrorIs(t, err, rt.ErrDevice, "nothing but an IPU reset is done by itself")
		require.ErrorContains(t, err, "it needs "+action.String())
		require.NoError(t, r.Session().Reload(context.Background()), "after repair")
		compute(t, r, 2)
	}
	// On a device that insists on being repaired.
	sys, v := tested(t, 1)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.AutoReset())
	sys.Inject(iputest.OnRun(mainProgram), &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset})
	require.ErrorIs(t, r.Run(context.Background(), NewInputs(), NewOutputs()), rt.ErrDevice)
	compute(t, r, 3)
	sys.Inject(iputest.OnRun(mainProgram), &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.PartitionReset})
	for range 3 {
		require.ErrorIs(t, r.Run(context.Background(), NewInputs(), NewOutputs()), rt.ErrDevice)
	}
	require.Error(t, r.Session().Reload(context.Background()))
	sys.Repair(0)
	require.NoError(t, r.Session().Reload(context.Background()))
	compute(t, r, 4)
}

// Feature 87.
func TestOtherDeviceErrors(t *testing.T) {
	for _, kind := range []ipu.ErrorKind{ipu.KindUnknown, ipu.KindUnrecoverable, ipu.KindOther} {
		r, seen, errs := failing(t, kind, ipu.RecoveryNone, rt.AutoReset())
		for _, err := range append(errs, r.Run(context.Background(), NewInputs(), NewOutputs())) {
			require.ErrorIs(t, err, rt.ErrDevice)
		}
		require.NotContains(t, seen.kinds(), rt.EventReset)
	}
	// A replica that failed does not draw the requests of the others.
	sys, v := tested(t, 2)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.WithReplicas(2))
	sys.Inject(iputest.OnRun(mainProgram), &ipu.Error{Kind: ipu.KindUnknown})
	require.ErrorIs(t, r.RunOn(context.Background(), 1, NewInputs(), NewOutputs()), rt.ErrDevice)
	for range 5 {
		compute(t, r, 1)
	}
	require.EqualValues(t, 5, r.Replica(0).Stats().Requests)
}

// Feature 88.
func TestCloseFailsPendingRequests(t *testing.T) {
	ctx := context.Background()
	sys, v := tested(t, 2)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.WithReplicas(2))
	sys.Inject(iputest.OnRun(mainProgram).Always(), iputest.ErrHang)
	var tickets []rt.Ticket
	for range QueueDepth {
		ticket, err := r.Submit(ctx, NewInputs(), NewOutputs())
		require.NoError(t, err)
		tickets = append(tickets, ticket)
	}
	require.NoError(t, r.Close())
	for _, ticket := range tickets {
		require.ErrorIs(t, ticket.Wait(ctx), rt.ErrClosed)
	}
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Run(ctx, NewInputs(), NewOutputs()), rt.ErrClosed)
	require.ErrorIs(t, r.RunSamples(ctx, make([]XSample, 1), make([]YSample, 1)), rt.ErrClosed)
	require.ErrorIs(t, r.UpdateWeights(ctx), rt.ErrClosed)
	require.False(t, sys.Attached(0) || sys.Attached(1))
}

// Feature 90.
func TestUpdateWeights(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		r := v.open(t, rt.WithReplicas(2), rt.WithReplicaDevices(twoDevices(v)))
		for round, w := range [][2]float32{{1, 1}, {-2, 5}} {
			b := B{[2]float32{float32(round), 0}}
			require.NoError(t, r.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(w[0], w[1])}, rt.WeightOf(NameB, &b)))
			for i := range 2 {
				in, out := NewInputs(), NewOutputs()
				fill(in, 1)
				require.NoError(t, r.RunOn(ctx, i, in, out))
				require.Equal(t, [2]float32{w[0] + float32(round), 2 * w[1]}, out.Y[0].Data)
			}
		}
		require.ErrorIs(t, r.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(1)}), rt.ErrData)
		require.ErrorIs(t, r.UpdateWeights(ctx, rt.Weight{Anchor: "none"}), rt.ErrUnknownStream)
		require.ErrorIs(t, r.UpdateWeights(ctx, rt.Weight{Anchor: "x", Data: floats(1, 2)}), rt.ErrData, "a run input")

		// All of another file.
		m := load(t, file(t, affineMetadata(), []byte("x"), map[string][]byte{"w": floats(10, 10)}))
		weights, err := rt.FileWeights(m)
		require.NoError(t, err)
		require.Len(t, weights, 1)
		require.NoError(t, r.UpdateWeights(ctx, weights...))
		in, out := NewInputs(), NewOutputs()
		fill(in, 1)
		require.NoError(t, r.Run(ctx, in, out))
		require.Equal(t, [2]float32{11, 20}, out.Y[0].Data)
		require.NoError(t, r.Close())
	}
}

// twoDevices are devices for two replicas where they don't share one.
func twoDevices(v variant) map[int]ipu.Device {
	if v.backend == fakeName {
		return map[int]ipu.Device{0: mine(), 1: mine()}
	}
	return nil
}

// Feature 90.
func TestUpdateWeightsWhileRequestsGoOn(t *testing.T) {
	ctx := context.Background()
	r := variants(t)[2].open(t)
	var group sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		group.Go(func() {
			in, out := NewInputs(), NewOutputs()
			fill(in, 1)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := r.Run(ctx, in, out); err != nil {
					t.Error(err)
					return
				}
				if y := out.Y[0].Data[0]; y != 12 && y != 13 {
					t.Errorf("got %v, want the result with the old or with the new weights", y)
					return
				}
			}
		})
	}
	for i := range 50 {
		require.NoError(t, r.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(float32(2+i%2), 3)}))
	}
	close(stop)
	group.Wait()
}

// TestTwoRunnersOnOneDevice lets two runners of one model, with weights of their
// own, take turns on one device: each gets its weights back with it.
//
// Feature 90.
func TestTwoRunnersOnOneDevice(t *testing.T) {
	ctx := context.Background()
	sys, v := tested(t, 1)
	d := sys.Device(0)
	var runners [2]*Runner
	for i := range runners {
		runners[i] = v.open(t, rt.WithManager(sys.Manager()), rt.WithDevice(d))
	}
	result := func(r *Runner) [2]float32 {
		in, out := NewInputs(), NewOutputs()
		in.X[0].Data = [2]float32{1, 1}
		require.NoError(t, r.Run(ctx, in, out))
		return out.Y[0].Data
	}
	require.NoError(t, runners[0].UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(100, 200)}))
	for range 3 {
		require.Equal(t, [2]float32{110, 220}, result(runners[0]))
		require.Equal(t, [2]float32{12, 23}, result(runners[1]), "the file's")
	}
	loads := len(sys.Events(iputest.EventLoad))
	require.NoError(t, runners[0].UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(-1, -1)}))
	require.Len(t, sys.Events(iputest.EventLoad), loads, "it waits until the runner has the device again")
	require.Equal(t, [2]float32{9, 19}, result(runners[0]))

	// Stopped, the one leaves the device to the other and comes back.
	require.NoError(t, runners[0].Session().Stop())
	require.Equal(t, [2]float32{12, 23}, result(runners[1]))
	require.NoError(t, runners[0].Session().Reload(ctx))
	require.Equal(t, [2]float32{9, 19}, result(runners[0]))
	require.Equal(t, [2]float32{12, 23}, result(runners[1]))
	require.Len(t, sys.Engines(), 2, "nothing was built again")
}

// TestApplicationErrorWhileLoading has the device fail while load programs run, for a
// request and for nobody's.
//
// Feature 85.
func TestApplicationErrorWhileLoading(t *testing.T) {
	ctx := context.Background()
	sys, v := tested(t, 1)
	r := v.open(t, rt.WithManager(sys.Manager()))
	for _, c := range []struct {
		call    func() error
		request uint64
		text    string
	}{
		{func() error { return r.Run(ctx, NewInputs(), NewOutputs()) }, 1, "load: request 1: the device failed: "},
		{func() error { return r.Session().Load(ctx) }, 0, "load: the device failed: "},
		{func() error { return r.Session().RunPrograms(ctx, mainProgram) }, 0, "run programs: the device failed: "},
	} {
		require.NoError(t, r.Session().Reload(ctx))
		sys.Inject(iputest.OnRun(), &ipu.Error{Kind: ipu.KindApplication})
		err := c.call()
		var device *rt.DeviceError
		require.ErrorAs(t, err, &device)
		require.Equal(t, c.request, device.Request)
		require.Equal(t, c.request, device.Cause)
		require.ErrorContains(t, err, c.text)
		require.ErrorIs(t, r.Session().Load(ctx), rt.ErrDevice, "until Reload")
	}
	require.NoError(t, r.Session().Reload(ctx))
	compute(t, r, 1)
}
