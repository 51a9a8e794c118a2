package core

import (
	"context"
	"errors"

	"github.com/popefgen/popefgen/serve/oip"
)

// Start makes the server ready, once its models are warm and its listeners listen.
func (c *Core) Start() { c.ready.Store(true) }

// StartDraining makes the server not ready. Requests are served as before, until [Core.Close].
func (c *Core) StartDraining() { c.ready.Store(false) }

// Ready returns nil if requests should be sent to the server, else an error that says why not.
func (c *Core) Ready() error {
	if !c.ready.Load() {
		return oip.Errorf(oip.Unavailable, "the server starts or drains: it is not ready")
	}
	return nil
}

// Close refuses requests and closes every model once the requests that it has are answered, or ctx ends. It returns the errors of
// models, and that of ctx if it ended first.
func (c *Core) Close(ctx context.Context) error {
	c.ready.Store(false)
	c.mu.Lock()
	c.closing.Store(true)
	models := *c.models.Load()
	c.models.Store(&directory{})
	c.mu.Unlock()
	var errs []error
	for _, m := range models {
		for _, v := range m.versions {
			v.Release()
			select {
			case <-v.drained:
			case <-ctx.Done(): // Shutdown closes at once, which fails what computes
			}
			errs = append(errs, v.model.Shutdown(ctx))
		}
	}
	return errors.Join(append(errs, c.stopped(ctx))...)
}
