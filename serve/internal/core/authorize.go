package core

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/oip"
)

// SetAuthorization has f asked for every request. It is called before the server serves.
func (c *Core) SetAuthorization(f access.Func) { c.authorize = f }

// Guarded reports whether there is a function to ask: if not, protocols need not look for credentials.
func (c *Core) Guarded() bool { return c.authorize != nil }

// Authorize asks whether the caller may do that. Protocols call it before they look for the model and read the body: a caller that
// is refused learns nothing of what there is. header is the value of "authorization", state that of the connection, nil without TLS.
func (c *Core) Authorize(ctx context.Context, api access.API, model, header string, state *tls.ConnectionState) (err error) {
	if c.authorize == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = &oip.Error{Code: oip.Internal, Text: "the authorisation of this server failed", Cause: fmt.Errorf("panic: %v", p)}
		}
	}()
	err = c.authorize(ctx, access.Access{API: api, Model: model, Token: access.Bearer(header), Certificate: access.Certificate(state)})
	var known *oip.Error
	if err != nil && !errors.As(err, &known) {
		return &oip.Error{Code: oip.PermissionDenied, Text: "not allowed", Cause: err}
	}
	return err
}
