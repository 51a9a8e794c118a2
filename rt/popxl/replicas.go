package popxl

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// mostReplicas is how many replicas an Ir has at most.
const mostReplicas = 1 << 10

// SetReplicas makes a [Session] compute the model in n replicas, PopXL's replication_factor: copies in this process that run one after the other, each on a device of its own with variables of its own. Inputs and
// outputs are [tensors of a run, n, …shape], so that each replica has data of its own; random numbers are those of its seeds, so feed each another seed. Only
// [IPUModel] and [Hardware] have replicas. n is 1 without this call, and at most 1024. Nothing is added up over replicas: an Ir of several can't learn ([Minimize]). What [Ir.Export] makes is one replica.
func (ir *Ir) SetReplicas(n int) {
	const call = "popxl.Ir.SetReplicas"
	switch {
	case !ir.usable():
	case ir.taken:
		ir.fail(call, ErrTaken)
	case n < 1 || n > mostReplicas:
		ir.fail(call, fmt.Errorf("%d replicas, want 1 to %d", n, mostReplicas))
	default:
		ir.copies = n
	}
}

// replicas returns how many replicas there are.
func (ir *Ir) replicas() int { return max(1, ir.copies) }

// replicas returns how many replicas the session runs.
func (s *Session) replicas() int { return max(1, len(s.copies)) }

// each calls f for every replica, and returns the first error with its number.
func (s *Session) each(f func(*Session) error) error {
	for i, c := range s.copies {
		if err := f(c); err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
	}
	return nil
}

// reload puts the model onto its device, or each replica onto its own: all of them, or none.
func (s *Session) reload(ctx context.Context) error {
	if s.copies == nil {
		return s.s.Reload(ctx)
	}
	for i, c := range s.copies {
		if err := c.s.Reload(ctx); err != nil {
			err = fmt.Errorf("replica %d: %w", i, err)
			for _, before := range s.copies[:i] {
				err = errors.Join(err, before.detach(ctx))
			}
			return err
		}
		c.attached = true
	}
	return nil
}

// forget makes the host's copies of variables count, whatever runs have changed.
func (s *Session) forget() {
	s.stale = false
	for _, c := range s.copies {
		c.stale = false
	}
}

// compute gives a run its inputs, runs it, and takes its outputs, of one replica after the other.
func (s *Session) compute(bindings []Binding, run func(*Session) error) error {
	if s.copies == nil {
		if err := s.borrow(bindings, run); err != nil {
			return err
		}
	}
	for i, c := range s.copies {
		if err := c.move(bindings, i, len(s.copies), run); err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
	}
	for i := range bindings {
		if b := &bindings[i]; b.used != nil {
			*b.used = int(s.loads[b.at])
		}
	}
	return nil
}

// move is compute for replica i of n.
func (s *Session) move(bindings []Binding, i, n int, run func(*Session) error) error {
	for k := range bindings {
		if b := &bindings[k]; b.kind == feedInput {
			own := s.inputs[b.at].own
			each(len(own), int(s.loads[b.at]), i, n, func(at, of, size int) { copy(own[at:at+size], b.data[of:]) })
		}
	}
	if err := run(s); err != nil {
		return err
	}
	for k := range bindings {
		if b := &bindings[k]; b.kind == takeOutput {
			own := s.outputs[b.at].own
			each(len(own), int(s.stores[b.at]), i, n, func(at, of, size int) { copy(b.data[of:of+size], own[at:]) })
		}
	}
	return nil
}

// each calls f for each of count tensors of replica i of n, with its place among those of the replica, and among those of all, and its bytes. Of one replica all are in one piece.
func each(bytes, count, i, n int, f func(at, of, size int)) {
	if n == 1 {
		f(0, 0, bytes)
		return
	}
	size := bytes / count
	for k := range count {
		f(k*size, (k*n+i)*size, size)
	}
}

// fetch copies the host's value of a variable, or of each replica's, to a binding.
func (s *Session) fetch(b *Binding) {
	if s.copies == nil {
		copy(b.data, s.host[b.at].data)
		return
	}
	for i, c := range s.copies {
		value := c.host[b.at].data
		if at := i * len(value); at < len(b.data) {
			copy(b.data[at:], value)
		}
	}
}

// change gives a variable of the host the value of a binding, or each replica's its own.
func (s *Session) change(b *Binding) {
	if s.copies == nil {
		s.host[b.at].data = slices.Clone(b.data)
		return
	}
	for i, c := range s.copies {
		size := len(c.host[b.at].data)
		own := b.data[:size]
		if len(b.data) > size {
			own = b.data[i*size : (i+1)*size]
		}
		c.host[b.at].data = slices.Clone(own)
	}
}
