package modelrt

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// Callback is a stream made of functions, of which all but OnFetch may be nil.
// They are called like the methods of [ipu.Stream], which says what each has to
// do; the memory is theirs only during the call.
type Callback struct {
	OnFetch      func(ctx context.Context, buf []byte) error // fill buf, or take what is in it
	OnPrefetch   func(buf []byte) bool                       // fill buf ahead of time if that is possible
	OnComplete   func()
	OnInvalidate func()
}

// Fetch calls OnFetch. Without one it fails with [rt.ErrUnconnected].
func (c *Callback) Fetch(ctx context.Context, buf []byte) error {
	if c.OnFetch == nil {
		return fmt.Errorf("%w: the callback has no OnFetch", rt.ErrUnconnected)
	}
	return c.OnFetch(ctx, buf)
}

// Prefetch calls OnPrefetch. Without one nothing is available ahead of time.
func (c *Callback) Prefetch(buf []byte) bool { return c.OnPrefetch != nil && c.OnPrefetch(buf) }

// Complete calls OnComplete.
func (c *Callback) Complete() {
	if c.OnComplete != nil {
		c.OnComplete()
	}
}

// InvalidatePrefetched calls OnInvalidate.
func (c *Callback) InvalidatePrefetched() {
	if c.OnInvalidate != nil {
		c.OnInvalidate()
	}
}

// SetCallback makes f move the data of the stream named handle, replacing
// whatever was connected: an input's f fills buf, an output's takes what is in
// buf. f gets the context of the run; buf is valid only during the call. ctx is
// as for [rt.Session.Connect].
func SetCallback(ctx context.Context, of rt.Session, handle string, f func(ctx context.Context, buf []byte) error) error {
	if f == nil {
		return session.Of(of).Errorf(fmt.Sprintf("connect stream %q", handle), fmt.Errorf("%w: nil callback", rt.ErrOption))
	}
	return of.Connect(ctx, handle, &Callback{OnFetch: f})
}

// Factory makes the host's side of an anchor's stream. nil leaves the anchor as
// it is.
type Factory func(a Anchor) ipu.Stream

// HandleInputs calls factory once for every input that policy returns
// [BindUser] for, and connects what it returns in place of what was connected.
// Inputs that policy returns [BindEmpty] for get an empty end, and those of
// [SkipBind] stay as they are. A nil policy is BindUser for all.
//
// With skipConnected, inputs that are connected already, also to data of the
// model's files, stay as they are, whatever policy says. ctx is as for
// [rt.Session.Connect].
func HandleInputs(ctx context.Context, of rt.Session, factory Factory, policy CallbackPredicate, skipConnected bool) error {
	return handle(ctx, session.Of(of), ipu.HostToDevice, "connect inputs", factory, policy, skipConnected)
}

// HandleOutputs is [HandleInputs] for outputs.
func HandleOutputs(ctx context.Context, of rt.Session, factory Factory, policy CallbackPredicate, skipConnected bool) error {
	return handle(ctx, session.Of(of), ipu.DeviceToHost, "connect outputs", factory, policy, skipConnected)
}

func handle(ctx context.Context, s *session.Session, d ipu.Direction, doing string, factory Factory, policy CallbackPredicate, skipConnected bool) error {
	if factory == nil {
		return s.Errorf(doing, fmt.Errorf("%w: nil factory", rt.ErrOption))
	}
	if err := s.Begin(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	defer s.Gate.Release(0)
	c := s.Contract()
	for i := range s.Infos {
		st := &s.Infos[i]
		a := c.Anchor(st.Handle)
		if a == nil || st.Direction != d || skipConnected && s.Ends[i] > session.Drained {
			continue
		}
		stream, err := streamOf(*a, factory, policy)
		if err == nil && stream != nil {
			err = s.Attach(i, stream, session.Given)
		}
		if err != nil {
			return s.Errorf(doing, err)
		}
	}
	return nil
}

// streamOf asks the caller what an anchor's stream is to be; nil leaves it as it
// is.
func streamOf(a Anchor, factory Factory, policy CallbackPredicate) (stream ipu.Stream, err error) {
	defer ipu.Guard(&err)
	by := BindUser
	if policy != nil {
		by = policy(a)
	}
	switch by {
	case BindUser:
		return factory(a), nil
	case BindEmpty:
		return hostmem.Nothing{}, nil
	case SkipBind:
		return nil, nil
	}
	return nil, fmt.Errorf("anchor %q: %w: callback policy %d", a.Name, rt.ErrOption, by)
}
