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

// Close refuses requests and closes every model, whose requests end first unless ctx does.
func (c *Core) Close(ctx context.Context) error {
	c.mu.Lock()
	models := c.models
	c.models = map[string]*Version{}
	c.mu.Unlock()
	var errs []error
	for _, v := range models {
		errs = append(errs, v.model.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
