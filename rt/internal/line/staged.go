package line

import "context"

// Ticket makes the request of a reserved slot, which somebody else than the lane serves: who
// calls Start and then [Queue.Complete].
func (q *Queue) Ticket(ctx context.Context, slot int, l *Lane) Ticket {
	t, _ := q.ticket(ctx, slot, l)
	return t
}

// Start begins a request that Ticket made: it returns the context that it runs with, or why it
// is not to run.
func (q *Queue) Start(slot int) (context.Context, error) {
	p := q.Slots[slot].request
	if err := p.start(); err != nil {
		return nil, p.lane.Refused(err)
	}
	return p, nil
}
