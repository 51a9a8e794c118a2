package rt_test

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
)

// soaker is one of the goroutines that make requests.
type soaker struct {
	*soak
	in  *Inputs
	out *Outputs
	x   []XSample
	y   []YSample
}

func (k *soaker) work() {
	k.renew()
	for !k.over.Load() && !k.t.Failed() {
		r := k.runners[[]int{0, 0, 0, 0, 0, 1, 2, 2}[rand.IntN(8)]]
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		switch rand.IntN(8) {
		case 0:
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(300))*time.Microsecond)
		case 1:
			ctx, cancel = context.WithCancel(ctx)
			go func() {
				runtime.Gosched()
				cancel()
			}()
		}
		switch rand.IntN(8) {
		case 0, 1, 2:
			k.run(ctx, r)
		case 3, 4:
			k.submit(ctx, r)
		case 5, 6:
			k.samples(ctx, r)
		case 7:
			k.queued.request(ctx)
		}
		cancel()
	}
}

// renew gets memory that no request has seen.
func (k *soaker) renew() {
	k.in, k.out = NewInputs(), NewOutputs()
	k.x, k.y = make([]XSample, 3*group), make([]YSample, 3*group)
}

// replica chooses a replica, or leaves that to the runner.
func (k *soaker) replica(r *soaked) int { return rand.IntN(r.replicas+1) - 1 }

// fill gives a whole request numbers.
func (k *soaker) fill() {
	for i := range k.in.X {
		for j := range k.in.X[i].Data {
			k.in.X[i].Data[j], k.out.Y[i].Data[j] = k.number(), 0
		}
	}
}

// check judges the end of a whole request.
func (k *soaker) check(ctx context.Context, r *soaked, oldest int64, err error) {
	right := k.excuse(ctx, r, err, true)
	for i := range k.in.X {
		for j, x := range k.in.X[i].Data {
			k.judge(r, oldest, x, k.out.Y[i].Data[j], right)
		}
	}
}

func (k *soaker) run(ctx context.Context, r *soaked) {
	k.count[soakRun].Add(1)
	k.fill()
	oldest := r.done.Load()
	k.check(ctx, r, oldest, r.RunOn(ctx, k.replica(r), k.in, k.out))
}

func (k *soaker) submit(ctx context.Context, r *soaked) {
	k.count[soakSubmit].Add(1)
	k.fill()
	oldest := r.done.Load()
	own := ctx // of the request
	if rand.IntN(2) == 0 {
		own = context.Background()
	}
	var ticket rt.Ticket
	var err error
	if rand.IntN(4) == 0 {
		ticket, err = r.TrySubmitOn(k.replica(r), k.in, k.out)
	} else {
		ticket, err = r.SubmitOn(own, k.replica(r), k.in, k.out)
	}
	if err == nil {
		err = k.end(ctx, ticket)
		if errors.Is(err, errDropped) { // it goes on, with its memory
			k.count[soakAbandoned].Add(1)
			k.renew()
			return
		}
	}
	k.check(ctx, r, oldest, err)
}

var errDropped = errors.New("the ticket is dropped")

// end waits for a ticket, gives up, and does one thing or another then.
func (k *soaker) end(ctx context.Context, ticket rt.Ticket) error {
	err := ticket.Wait(ctx)
	if err == nil || err != ctx.Err() {
		if again := ticket.Wait(ctx); !errors.Is(again, rt.ErrTicketUsed) {
			k.t.Errorf("a ticket ended twice, with %v and %v", err, again)
		}
		return err
	}
	switch rand.IntN(3) {
	case 0:
		return errDropped
	case 1:
		ticket.Cancel()
		err = ticket.Wait(context.Background())
	default:
		<-ticket.Done()
		err = ticket.Err()
	}
	if errors.Is(err, context.Canceled) { // by Cancel
		err = ctx.Err()
	}
	return err
}

func (k *soaker) samples(ctx context.Context, r *soaked) {
	k.count[soakSamples].Add(1)
	n := 1 + rand.IntN(len(k.x))
	x, y := k.x[:n], k.y[:n]
	for i := range x {
		x[i].Data, y[i].Data = k.number(), 0
	}
	oldest := r.done.Load()
	var err error
	if on := k.replica(r); rand.IntN(2) == 0 {
		err = r.RunSamplesOn(ctx, on, x, y)
	} else {
		var ticket rt.Ticket
		if ticket, err = r.SubmitSamplesOn(ctx, on, x, y); err == nil {
			err = ticket.Wait(context.Background())
		}
	}
	right := k.excuse(ctx, r, err, true)
	for i := range x {
		k.judge(r, oldest, x[i].Data, y[i].Data, right)
	}
	if !right {
		k.renew() // a batch that goes on must not care: the race detector would tell
		clear(x)
		clear(y)
	}
}

// excuse reports whether a request, or another call, succeeded, and fails the
// test if its error is none that it can have.
func (k *soaker) excuse(ctx context.Context, r *soaked, err error, request bool) (right bool) {
	var device *rt.DeviceError
	var own *ipu.Error
	switch {
	case err == nil:
		k.count[soakRight].Add(1)
		return true
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		k.count[soakCanceled].Add(1)
	case errors.Is(err, rt.ErrQueueFull):
		k.count[soakRefused].Add(1)
		runtime.Gosched()
	case errors.As(err, &device) && r.counted:
		k.count[soakDevice].Add(1)
		if request && device.Request == 0 || device.Replica >= r.replicas || !errors.As(device.Err, &own) || own.Recovery != device.Recovery {
			k.t.Errorf("%s: %#v: %v", r.name, device, err)
		}
		if !device.AutoReset {
			runtime.Gosched()
		}
	case errors.Is(err, rt.ErrStopped), errors.Is(err, rt.ErrUnbound) && r.counted: // stopped, or its Reload failed
		k.count[soakStopped].Add(1)
		runtime.Gosched()
	case (errors.Is(err, errSoak) || errors.As(err, &own)) && r.counted:
		k.count[soakInjected].Add(1)
	default:
		k.t.Errorf("%s: unexpected error: %v", r.name, err)
	}
	return false
}

// judge checks what became of one sample. Weights may be those that were in use
// at the beginning of its request, or any since.
func (k *soaker) judge(r *soaked, oldest int64, x, y float32, right bool) {
	n := uint32(x)
	if used := k.used[n/2].Load(); r.counted && (used > 1 || right && used != 1) {
		k.t.Errorf("%s: sample %d was computed %d times, answered: %v", r.name, n, used, right)
	}
	if !right {
		return
	}
	wx := (y - r.bias()) / r.sign
	product := uint32(wx)
	version := bits.TrailingZeros32(product)
	if float32(product) != wx || product>>version != n || version >= len(r.weights) {
		k.t.Errorf("%s: sample %d got %v, which is not its answer", r.name, n, y)
		return
	}
	newest := r.begun.Load()
	for v := oldest; v <= newest; v++ {
		if v%int64(len(r.weights)) == int64(version) {
			return
		}
	}
	k.t.Errorf("%s: sample %d was computed with weights %d, while versions %d to %d were in use", r.name, n, version, oldest, newest)
}
