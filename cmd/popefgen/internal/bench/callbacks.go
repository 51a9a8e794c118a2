package bench

import (
	"context"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// openCallbacks opens a session and connects a callback to every stream that a
// run moves. A callback copies: its memory is its own during the call alone.
func (t *Target) openCallbacks(ctx context.Context) (*driver, error) {
	s, end, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	c := s.Contract()
	data := map[string][][]byte{} // of one transfer each, by handle
	for _, in := range t.Inputs {
		data[in.Anchor.Handle] = cut(in.Requests, c.Transfers(&in.Anchor))
	}
	only := func(role contract.Role) modelrt.CallbackPredicate {
		return func(a modelrt.Anchor) modelrt.CallbackPolicy {
			if a.Role == role {
				return modelrt.BindUser
			}
			return modelrt.SkipBind
		}
	}
	err = modelrt.HandleInputs(ctx, s, func(a modelrt.Anchor) ipu.Stream { return callback(data[a.Handle], true) }, only(contract.RunInput), true)
	if err == nil {
		var all [][]byte
		if all, err = memories(c); err == nil {
			for i, a := range outputs(c) {
				data[a.Handle] = cut(all[i:i+1], c.Transfers(&a))
			}
			err = modelrt.HandleOutputs(ctx, s, func(a modelrt.Anchor) ipu.Stream { return callback(data[a.Handle], false) }, only(contract.RunOutput), true)
		}
	}
	if err != nil {
		end()
		return nil, err
	}
	return &driver{clients: []client{&caller{ctx, s}}, close: end}, nil
}

// cut cuts each of the requests' data into transfers.
func cut(requests [][]byte, iterations int) [][]byte {
	var out [][]byte
	for _, r := range requests {
		size := len(r) / iterations
		for i := range iterations {
			out = append(out, r[i*size:(i+1)*size])
		}
	}
	return out
}

// callback moves transfers between the engine and memory, which takes turns.
func callback(memory [][]byte, input bool) *modelrt.Callback {
	done, ahead := 0, 0
	fetch := func(buf []byte) error {
		m := memory[(done+ahead)%len(memory)]
		if input {
			copy(buf, m)
		} else {
			copy(m, buf)
		}
		ahead++
		return nil
	}
	return &modelrt.Callback{
		OnFetch:      func(_ context.Context, buf []byte) error { return fetch(buf) },
		OnPrefetch:   func(buf []byte) bool { return input && fetch(buf) == nil },
		OnComplete:   func() { done++; ahead = max(0, ahead-1) },
		OnInvalidate: func() { ahead = 0 },
	}
}

// caller is a client that runs a session.
type caller struct {
	ctx     context.Context
	session rt.Session
}

func (c *caller) start(int) error  { return c.session.Run(c.ctx) }
func (c *caller) finish(int) error { return nil }
