package modelrt

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// NewSession makes an engine for the model, connects the data that the model's
// files carry, attaches a device that fits it and loads the executable onto it,
// all of it or nothing. What remains to be done is to [rt.Session.Connect] the
// other streams and to run. With [Deferred] it takes no device: see
// [rt.Session.Bind]. ctx bounds the making of the session alone. The model must
// stay open until the session is closed.
func NewSession(ctx context.Context, m *popef.Model, opts ...SessionOption) (rt.Session, error) {
	o, err := sessionOptions(opts)
	if err != nil {
		return nil, callerr.Subject{Model: callerr.ModelName(m)}.Errorf("open", err)
	}
	if o.PrivateCopy {
		return nil, callerr.Subject{Model: callerr.ModelName(m)}.Errorf("open", fmt.Errorf("WithPrivateCopy: %w: the model is already open; popef.LoadCopy opens a copy", rt.ErrOption))
	}
	s, err := session.New(o.OnBudget(ctx), m, contract.Of(m), 0, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// OpenSession is NewSession for the model in these files, which it loads and
// Close closes. A model may be spread over several files.
func OpenSession(ctx context.Context, files []string, opts ...SessionOption) (_ rt.Session, err error) {
	o, err := sessionOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	read := popef.LoadContext
	if o.PrivateCopy {
		read = popef.LoadCopyContext
	}
	ctx = o.OnBudget(ctx)
	m, err := read(ctx, files...)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	open := false
	defer func() {
		if !open {
			err = callerr.Join(err, m.Close())
		}
	}()
	s, err := session.New(ctx, m, contract.Of(m), 0, o)
	if err != nil {
		return nil, err
	}
	s.Owned, open = m, true
	return s, nil
}
