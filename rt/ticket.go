package rt

import (
	"context"

	"github.com/popefgen/popefgen/rt/internal/line"
)

// Ticket stands for a submitted request. It is a plain value: copy it, share it
// between goroutines, or drop it; the place in the queue is free again when the
// request ends, whoever waits for that.
//
// Wait returns the request's error once and uses the ticket up, as well as every
// copy. Err and Done may be used in its place.
type Ticket line.Ticket

// Ended returns the ticket of a request that has ended with err, nil if it
// succeeded: what the SubmitFunc of a generated Fake returns. Like any other it
// can be waited for once.
func Ended(err error) Ticket { return Ticket(line.Ended(err)) }

// Wait blocks until the request has ended and returns its error; that uses the
// ticket up. If ctx ends first, Wait returns ctx's error: the request goes on,
// and the ticket remains as good as before. One goroutine at a time may wait
// for a request. [errs.ErrTicketUsed] means that another one does, or that the
// ticket is used up.
func (t Ticket) Wait(ctx context.Context) error { return line.Ticket(t).Wait(ctx) }

// Done returns a channel that is closed when the request has ended: its memory
// is the caller's again. It works after a Wait that gave up too. Of a ticket
// that was used up, and of the zero Ticket, it is closed. The first call
// allocates it.
func (t Ticket) Done() <-chan struct{} { return line.Ticket(t).Done() }

// Err returns the request's error if it has ended, and nil if it succeeded or
// goes on: see Done. It does not use the ticket up; of one that is, and of the
// zero Ticket, it is [errs.ErrTicketUsed].
func (t Ticket) Err() error { return line.Ticket(t).Err() }

// Cancel ends the request as if the context that it was submitted with had been
// cancelled: one that waits for its turn never reaches the engine, one that
// computes ends as soon as the engine notices. The ticket can be waited for as
// before, with an error that wraps [context.Canceled] unless the request was
// faster. Cancel of a request that has ended does nothing.
func (t Ticket) Cancel() { line.Ticket(t).Cancel() }
