package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// Load says how a model is loaded.
type Load struct {
	Version string // its name; "" is "1"
	// Alone takes versions that are older out of service once this one serves.
	Alone bool
	// Warm has the model compute before it serves: it fills the inputs of the call, runs it, and may check the outputs. nil computes
	// inputs of zeros.
	Warm func(ctx context.Context, call oip.Call) error
	// Cold leaves the warm-up out.
	Cold bool
}

// Add serves a model under the name of its Spec, as version 1. The model is not warmed up: see Warm.
func (c *Core) Add(m oip.Model) (*Version, error) {
	if name := m.Spec().Name; (*c.models.Load())[name] != nil {
		return nil, oip.Errorf(oip.InvalidArgument, "there are two models with the name '%s'; give one another name", name)
	}
	return c.Load(context.Background(), m, Load{Cold: true})
}

// Load serves a model, which is the core's from then on, also if Load fails: as another version beside those
// that serve, or in place of the one of the same name. First it is warmed up. If it is to answer requests that another one
// answers now, because it takes its place or is later, its contract is compared with that one's: a
// breaking one is refused, and the index says why. Requests that the old one has are answered by it, then it is closed.
func (c *Core) Load(ctx context.Context, m oip.Model, l Load) (*Version, error) {
	if l.Version == "" {
		l.Version = "1"
	}
	v, err := c.prepare(ctx, m, l)
	if err == nil {
		err = c.publish(v, l.Alone)
	}
	if err != nil {
		c.Refuse(m.Spec().Name, l.Version, err)
		return nil, errors.Join(err, m.Shutdown(ctx))
	}
	return v, nil
}

// prepare makes a version of a model, warm.
func (c *Core) prepare(ctx context.Context, m oip.Model, l Load) (*Version, error) {
	spec := *m.Spec()
	if err := servable(&spec); err != nil {
		return nil, err
	}
	hash, err := agree.Hash(spec.Contract)
	if err != nil {
		return nil, fmt.Errorf("model '%s': %w", spec.Name, err)
	}
	c.mu.Lock()
	limits := c.limitsOf(m)
	if s := c.state(spec.Name, l.Version); s.state != Serving {
		s.state, s.reason, s.rejected = Loading, "", false
	}
	c.mu.Unlock()
	v := &Version{Name: l.Version, Spec: &spec, core: c, model: m, hash: hash, limits: limits, drained: make(chan struct{})}
	v.gate.computing, v.gate.waiting = limits.Computing, limits.Waiting
	v.counts = newCounts(&spec)
	v.held.Store(1)
	v.calls.New = v.newCall
	if m := (*c.models.Load())[spec.Name]; m != nil { // publish compares again: here it saves the warm-up
		if err := fits(m.versions, v); err != nil {
			return nil, err
		}
	}
	if l.Cold {
		return v, nil
	}
	warm := l.Warm
	if warm == nil {
		warm = v.zeros
	}
	return v, v.warm(ctx, warm)
}

// Warm has every version that serves compute zeros once. Its error is that of the first that fails otherwise than by refusing zeros.
func (c *Core) Warm(ctx context.Context) error {
	for _, m := range *c.models.Load() {
		for _, v := range m.versions {
			if v.warmed.Load() {
				continue
			}
			if err := v.warm(ctx, v.zeros); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *Version) warm(ctx context.Context, warm func(context.Context, oip.Call) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(v.Spec.Name, p)
		}
		if err != nil {
			err = fmt.Errorf("warm up model '%s', version %s: %w", v.Spec.Name, v.Name, err)
		}
	}()
	if err := warm(ctx, v.model.NewCall()); err != nil {
		return err
	}
	v.warmed.Store(true)
	return nil
}

// zeros computes inputs of zeros, as few as the model takes. That it takes no zeros, or not so few, is no error.
func (v *Version) zeros(ctx context.Context, call oip.Call) error {
	for i := range v.Spec.Inputs {
		t := &v.Spec.Inputs[i]
		shape := slices.Clone(t.Shape)
		for axis := range shape {
			if shape[axis] < 0 {
				shape[axis] = min(1, t.Largest(axis))
			}
		}
		mem, err := call.Input(i, shape)
		if err != nil {
			return err
		}
		clear(mem)
	}
	err := call.Run(ctx)
	if err != nil && Failure(v.Spec.Name, err).Code == oip.InvalidArgument {
		return nil
	}
	return err
}

// servable returns why a model can not be served, nil if it can.
func servable(s *oip.Spec) error {
	if s.Name == "" {
		return errors.New("a model without a name can not be served: give it one")
	}
	for _, of := range [][]oip.Tensor{s.Inputs, s.Outputs} {
		if len(of) > wire.MaxTensors {
			return fmt.Errorf("model '%s' has %d inputs or outputs, and at most %d can be served", s.Name, len(of), wire.MaxTensors)
		}
	}
	return nil
}

// publish has a version serve, unless it breaks those that rely on what serves now.
func (c *Core) publish(v *Version, alone bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Load() {
		return oip.Errorf(oip.Unavailable, "the server stops")
	}
	name := v.Spec.Name
	var versions []*Version
	if m := (*c.models.Load())[name]; m != nil {
		versions = slices.Clone(m.versions)
	}
	if err := fits(versions, v); err != nil {
		return err
	}
	at := slices.IndexFunc(versions, func(o *Version) bool { return o.Name == v.Name })
	var out []*Version
	if at >= 0 {
		old := versions[at]
		if len(old.counts.runs) == len(v.counts.runs) {
			v.counts = old.counts // a counter that begins again looks like a server that did
		}
		out = append(out, old)
		versions[at] = v
	} else {
		versions = append(versions, v)
		slices.SortFunc(versions, func(a, b *Version) int { return later(b.Name, a.Name) })
	}
	if alone {
		i := slices.Index(versions, v)
		out = append(out, versions[i+1:]...)
		versions = versions[:i+1]
	}
	c.replace(name, versions)
	s := c.state(name, v.Name)
	s.state, s.reason, s.rejected = Serving, "", false
	if len(out) > 0 {
		s.reloads++
	}
	for _, o := range out {
		c.retire(o, o.Name != v.Name)
	}
	return nil
}

// replace makes these the versions of a model that requests find.
func (c *Core) replace(name string, versions []*Version) {
	d := maps.Clone(*c.models.Load())
	if len(versions) == 0 {
		delete(d, name)
	} else {
		d[name] = &serving{versions: versions}
	}
	c.models.Store(&d)
}

// retire closes a version that requests do not find any more, once those that it has are answered.
func (c *Core) retire(v *Version, gone bool) {
	if gone {
		c.state(v.Spec.Name, v.Name).state = Unloading
	}
	v.Release()
	c.draining.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		select {
		case <-v.drained:
		case <-c.cut:
			cancel()
		}
		err := v.model.Shutdown(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if s := c.state(v.Spec.Name, v.Name); s.state == Unloading {
			s.state, s.reason, s.rejected = Unavailable, "unloaded", false
			if err != nil {
				s.reason = "unloaded; closing it: " + err.Error()
			}
		}
	})
}

// later compares names of versions: by number, and names that are no numbers before those by text.
func later(a, b string) int {
	m, errA := strconv.ParseUint(a, 10, 63)
	n, errB := strconv.ParseUint(b, 10, 63)
	switch {
	case errA == nil && errB == nil:
		return cmp.Compare(m, n)
	case errA == nil:
		return 1
	case errB == nil:
		return -1
	}
	return cmp.Compare(a, b)
}

// Unload takes a version of a model out of service, "" all of them. Requests that they have are answered, then they
// are closed.
func (c *Core) Unload(model, version string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := (*c.models.Load())[model]
	if m == nil || version != "" && m.find(version) == nil {
		return oip.Errorf(oip.NotFound, "Request for unknown model: '%s' is not found", model)
	}
	var stay []*Version
	for _, v := range m.versions {
		if version != "" && v.Name != version {
			stay = append(stay, v)
		}
	}
	c.replace(model, stay)
	for _, v := range m.versions {
		if version == "" || v.Name == version {
			c.retire(v, true)
		}
	}
	return nil
}

// stopped waits until the versions that do not serve any more are closed, or ctx ends.
func (c *Core) stopped(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		c.draining.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		close(c.cut)
		<-done
		return ctx.Err()
	}
}
