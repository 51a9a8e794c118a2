package popxl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/export"
)

// mostReplicas is how many replicas an Ir has at most.
const mostReplicas = 1 << 10

// SetReplicas makes a [Session] compute the model in n replicas, PopXL's replication_factor: copies in this process, each on a device of its own with variables of its own. Those of [IPUModel] run one after the other. Inputs and
// outputs are [tensors of a run, n, …shape], so that each replica has data of its own; random numbers are those of its seeds, so feed each another seed. Only
// [IPUModel] and [Hardware] have replicas. n is 1 without this call, and at most 1024. It is called before [Minimize], whose step is by the gradients of all replicas, and before collectives ([Collect]). What [Ir.Export] makes is one replica, or of an Ir
// that learns a model which computes the micro-batches of all replicas one after the other, and so makes the same steps.
func (ir *Ir) SetReplicas(n int) {
	const call = "popxl.Ir.SetReplicas"
	switch {
	case !ir.usable():
	case ir.taken:
		ir.fail(call, ErrTaken)
	case len(ir.optimizers) > 0 || ir.collects:
		ir.fail(call, errors.New("the Ir has an optimizer or a collective already, which depends on the number of replicas: call it before"))
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

// compute gives a run its inputs, runs it, and takes its outputs: of several replicas of one after the other, or of all of them together if they exchange tensors.
func (s *Session) compute(ctx context.Context, bindings []Binding, evaluate bool) error {
	switch {
	case s.crew != nil:
		if i, err := s.crew.run(ctx, bindings, evaluate); err != nil {
			return fmt.Errorf("replica %d: %w", i, err)
		}
	case s.copies != nil:
		for i, c := range s.copies {
			if err := c.move(ctx, bindings, i, len(s.copies), evaluate); err != nil {
				return fmt.Errorf("replica %d: %w", i, err)
			}
		}
	default:
		if err := s.borrow(ctx, bindings, evaluate); err != nil {
			return err
		}
	}
	for i := range bindings {
		if b := &bindings[i]; b.used != nil {
			*b.used = int(s.loads[b.at])
		}
	}
	return nil
}

// once runs the program of a replica.
func (s *Session) once(ctx context.Context, evaluate bool) error {
	if s.ir.stage != update {
		return s.s.Run(ctx)
	}
	if evaluate {
		return s.s.RunLoaded(ctx, export.EvaluateProgram)
	}
	s.stale = true
	return s.s.Run(ctx)
}

// move is compute for replica i of n.
func (s *Session) move(ctx context.Context, bindings []Binding, i, n int, evaluate bool) error {
	for k := range bindings {
		if b := &bindings[k]; b.kind == feedInput {
			own := s.inputs[b.at].own
			each(len(own), int(s.loads[b.at]), i, n, func(at, of, size int) { copy(own[at:at+size], b.data[of:]) })
		}
	}
	if err := s.once(ctx, evaluate); err != nil {
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
