package line

import "context"

// parted is a request that has ended when all its parts have.
type parted struct {
	pending
	Part   func(error) // to be called for each part
	left   int         // parts that are not done; guarded by mu
	failed error       // the first error of one; guarded by mu
}

// Parted returns a request that is not in use.
func (k *Tickets) Parted() *parted {
	if p := k.get(); p != nil {
		return p.group
	}
	r := &parted{}
	r.pool, r.group, r.ended = k, r, make(chan struct{}, 1)
	r.Part = r.partDone
	return r
}

// Begin makes it a request of so many parts.
func (r *parted) Begin(parts int) Ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parent, r.phase, r.left, r.failed = context.Background(), runs, parts, nil
	return Ticket{pending: &r.pending, generation: r.generation}
}

// partDone is called when a queue is done with one part.
func (r *parted) partDone(err error) {
	r.mu.Lock()
	r.left--
	if r.failed == nil {
		r.failed = err
	}
	last, err := r.left == 0, r.failed
	r.mu.Unlock()
	if last {
		r.finish(err, func() {})
	}
}
