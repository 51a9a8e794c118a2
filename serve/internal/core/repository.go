package core

import (
	"context"

	"github.com/popefgen/popefgen/serve/oip"
)

// Repository is where models come from that clients load and unload by name, for the extension "model_repository".
type Repository interface {
	// Load loads a model, or loads it again: what its files are now. What serves goes on until it is ready, or for good if
	// that is refused.
	Load(ctx context.Context, model string) error
	// Unload takes a model out of service, until Load.
	Unload(ctx context.Context, model string) error
	// Names lists the models that could be loaded, those that serve among them.
	Names() ([]string, error)
}

// SetRepository says where models come from. Without it clients can not load and unload any.
func (c *Core) SetRepository(r Repository) { c.repository = r }

// Repository returns where models come from. Without one its methods refuse with the code Unimplemented.
func (c *Core) Repository() Repository {
	if c.repository == nil {
		return closedRepository{}
	}
	return c.repository
}

// closedRepository is that of a server whose clients do not load models.
type closedRepository struct{}

func (closedRepository) Load(context.Context, string) error   { return errClosed() }
func (closedRepository) Unload(context.Context, string) error { return errClosed() }
func (closedRepository) Names() ([]string, error)             { return nil, nil }

func errClosed() error {
	return oip.Errorf(oip.Unimplemented, "this server does not load and unload models for clients")
}
