package genrt

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/session"
)

// Port is a run input or output of a core that [Core.OpenSession] opened.
type Port struct {
	Anchor *AnchorSpec
	Handle string // of its stream in the model
	Frozen bool   // it has the same data in every request
}

// OpenSession is [Core.Open] for package queues: it makes one session, connects
// the bindings, which are those of load inputs and the like, and has connect
// connect the others, run inputs and then run outputs, in the order of the
// specification. Then the load programs run. Requests go through what connect
// made; of the core's methods those that make requests fail.
func (c *Core) OpenSession(ctx context.Context, spec *Spec, source Source, bindings []Binding, connect func(s rt.Session, ports []Port) error, opts ...rt.RunnerOption) error {
	o, err := runnerOptions(opts)
	if err == nil && o.Replicas > 1 {
		err = fmt.Errorf("WithReplicas: %w: queues feed one session; open several", rt.ErrOption)
	}
	if err == nil {
		ctx = o.OnBudget(ctx)
		c.model, err = loadModel(ctx, source, o)
	}
	if err != nil {
		return callerr.Subject{Model: "package " + spec.Package}.Errorf("open queues", err)
	}
	c.about = callerr.Subject{Model: callerr.ModelName(c.model)}
	over := false // it is open, or was closed
	defer func() {
		if !over { // code of the caller has ended the goroutine
			_ = c.Close()
		}
	}()
	err = c.openSession(ctx, spec, bindings, connect, o)
	over = true
	if err != nil {
		return callerr.Join(c.about.Errorf("open queues", err), c.Close())
	}
	return nil
}

func (c *Core) openSession(ctx context.Context, spec *Spec, bindings []Binding, connect func(s rt.Session, ports []Port) error, o *session.Options) error {
	found, err := agree(spec, c.model)
	if err != nil {
		return err
	}
	found.freeze(spec, o)
	if err := c.resume(ctx, o); err != nil {
		return err
	}
	s, err := session.New(ctx, c.model, found.contract, 0, o)
	if err != nil {
		return err
	}
	r := &replica{session: s}
	c.replicas, c.only, c.config = []*replica{r}, s, o.Config
	ports, err := c.ports(ctx, r, spec, found, bindings)
	if err == nil {
		err = connect(s, ports)
	}
	if err == nil {
		err = s.Begin(ctx)
	}
	if err != nil {
		return s.Errorf("open queues", err)
	}
	defer s.Gate.Release(0)
	if err := s.Check(s.Main); err != nil {
		return s.Errorf("open queues", err)
	}
	if err := s.Activate(ctx, 0); err != nil {
		return s.Errorf("open queues", err)
	}
	return s.RunLoad(ctx, 0)
}

// ports connects bindings to the streams of r, and returns the others.
func (c *Core) ports(ctx context.Context, r *replica, spec *Spec, found *agreement, bindings []Binding) ([]Port, error) {
	s := r.session
	if err := s.Begin(ctx); err != nil {
		return nil, err
	}
	defer s.Gate.Release(0)
	for _, b := range bindings {
		if err := r.attach(spec, found, b); err != nil {
			return nil, err
		}
	}
	if err := found.drop(s); err != nil {
		return nil, err
	}
	var ports []Port
	for _, role := range []Role{RunInput, RunOutput} {
		for i := range spec.Anchors {
			a := &spec.Anchors[i]
			if a.Role != role {
				continue
			}
			at := s.IndexOf(found.handles[i])
			if at < 0 {
				return nil, fmt.Errorf("anchor %q: %w: the executable has no stream %q", a.Name, rt.ErrUnknownStream, found.handles[i])
			}
			if a.Bytes != s.Infos[at].Bytes {
				return nil, fmt.Errorf("anchor %q: %w: %s is %d bytes, and the executable moves %d", a.Name, rt.ErrGenerated, a.GoName, a.Bytes, s.Infos[at].Bytes)
			}
			if n := moving(s, at); n > 1 {
				return nil, fmt.Errorf("anchor %q: %w: %d main programs move it, and each would take data of its own out of a queue: use Open", a.Name, rt.ErrOption, n)
			}
			frozen := role == RunInput && s.Ends[at] == session.Frozen
			if role == RunInput {
				c.frozen = append(c.frozen, frozen)
			}
			ports = append(ports, Port{a, found.handles[i], frozen})
		}
	}
	return ports, nil
}

// moving returns how many main programs move a stream.
func moving(s *session.Session, stream int) int {
	n := 0
	for _, p := range s.Infos[stream].Programs {
		if slices.Contains(s.Main, p) {
			n++
		}
	}
	return n
}
