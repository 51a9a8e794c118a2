package genrt

// provide makes a batch unless there is one that can be used again. mu is held.
func (b *batcher) provide() error {
	if b.batches != nil {
		return nil
	}
	bytes := 0
	for _, t := range b.tensors {
		if !t.frozen {
			bytes += t.bytes
		}
	}
	if err := b.room.Take(int64(bytes), "memory of a batch of %d samples", b.group); err != nil {
		return err
	}
	o := &batch{mem: make([][]byte, len(b.tensors))}
	for i, t := range b.tensors {
		if !t.frozen {
			o.mem[i] = make([]byte, t.bytes)
		}
	}
	if b.family != nil {
		for i := range o.mem {
			o.all = append(o.all, Samples{Data: o.mem[i]})
		}
	}
	b.batches = o
	return nil
}

// takeBatch returns an empty batch, after provide. mu is held.
func (b *batcher) takeBatch() *batch {
	o := b.batches
	b.batches, o.next = o.next, nil
	return o
}

// recycle keeps a batch that nobody uses any more. mu is held.
func (b *batcher) recycle(o *batch) {
	clear(o.calls[:cap(o.calls)])
	o.calls, o.leader = o.calls[:0], nil
	o.count, o.late, o.ended, o.err = 0, false, false, nil
	if o.follow {
		o.follow = false
		o.record.Clear()
	}
	o.next, b.batches = b.batches, o
}

// newCall returns a call without parts. mu is held.
func (b *batcher) newCall() *call {
	if c := b.calls; c != nil {
		b.calls, c.next = c.next, nil
		return c
	}
	return &call{wake: make(chan struct{}, 1)}
}

// recycleCall keeps a call that has ended. mu is held.
func (b *batcher) recycleCall(c *call) {
	select {
	case <-c.wake:
	default:
	}
	c.parts, c.n, c.follows = [2]part{}, 0, nil
	c.next, b.calls = b.calls, c
}
