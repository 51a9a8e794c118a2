// Package access says who may do what with a server: a function is asked for every request, with the call, the model and
// the caller's credentials. Ready-made ones are [TokenFile] and [Certificates]; a program may give its own.
//
//	tokens, err := access.TokenFile("/etc/popefgen/tokens", slog.Default())
//	...
//	srv, err := serve.New(serve.WithAuthorization(tokens.Allow), ...)
package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/serve/oip"
)

// API is a group of calls.
type API uint8

// The groups.
const (
	Health     API = iota // live and ready, of the server and of models
	Metadata              // what the server and its models are, their configuration, the OpenAPI document
	Infer                 // requests to a model
	Statistics            // what is counted, by model; /metrics
	Repository            // which models there are, loading and unloading them
	Admin                 // the admin page and profiles
	apis
)

var names = [apis]string{"health", "metadata", "infer", "statistics", "repository", "admin"}

// String returns the name that token files have for it, such as infer.
func (a API) String() string {
	if a >= apis {
		return fmt.Sprintf("API(%d)", uint8(a))
	}
	return names[a]
}

// Access is what a caller asks for and who it is.
type Access struct {
	API         API
	Model       string            // as the request names it, there may be no such model; "" if it is about none
	Token       string            // of "Authorization: Bearer TOKEN", "" if there is none
	Certificate *x509.Certificate // of the client, verified; nil if there is none
}

// Func decides: nil allows. It should return an [*oip.Error] of the code Unauthenticated if the caller did not say who it is, or
// PermissionDenied; the text of other errors stays in the server's log. It is called from many goroutines.
type Func func(ctx context.Context, a Access) error

// Bearer returns the token of a value of the header (or metadata) "authorization", "" if it has none.
func Bearer(header string) string {
	const scheme = "bearer "
	if len(header) <= len(scheme) || !strings.EqualFold(header[:len(scheme)], scheme) {
		return ""
	}
	return strings.TrimSpace(header[len(scheme):])
}

// Certificate returns the client's certificate if the connection has one that was verified, otherwise nil. The state
// may be nil.
func Certificate(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

// Any allows what one of the functions allows. If none does, the error is that of the first that knew the caller, or else the first.
func Any(funcs ...Func) Func {
	return func(ctx context.Context, a Access) error {
		var first, denied error
		for _, f := range funcs {
			err := f(ctx, a)
			if err == nil {
				return nil
			}
			if first == nil {
				first = err
			}
			if e, ok := err.(*oip.Error); denied == nil && !(ok && e.Code == oip.Unauthenticated) {
				denied = err
			}
		}
		if denied != nil {
			return denied
		}
		if first == nil {
			return oip.Errorf(oip.PermissionDenied, "nobody may call this server")
		}
		return first
	}
}

// Certificates allows clients whose verified certificate has one of the names, for the calls and models of its rule. A name
// is a URI or a DNS name of the certificate, or its common name if it has neither. Whether the server is alive and ready anybody may ask.
func Certificates(rules map[string]Rule) Func {
	return func(_ context.Context, a Access) error {
		if free(a) {
			return nil
		}
		if a.Certificate == nil {
			return oip.Errorf(oip.Unauthenticated, "%s needs a client certificate", a.API)
		}
		known := false
		for _, name := range CertificateNames(a.Certificate) {
			if r, ok := rules[name]; ok {
				if known = true; r.allows(a) {
					return nil
				}
			}
		}
		if !known {
			return oip.Errorf(oip.PermissionDenied, "the names of the client's certificate are not among those that may call this server")
		}
		return denied(a)
	}
}

// CertificateNames returns the names of a certificate that [Certificates] compares.
func CertificateNames(c *x509.Certificate) []string {
	var all []string
	for _, u := range c.URIs {
		all = append(all, u.String())
	}
	all = append(all, c.DNSNames...)
	if len(all) == 0 && c.Subject.CommonName != "" {
		all = append(all, c.Subject.CommonName)
	}
	return all
}

// Rule says what a caller may do.
type Rule struct {
	APIs   []API    // nil: health, metadata, infer and statistics
	Models []string // nil: all
}

func (r *Rule) allows(a Access) bool {
	if r.APIs == nil && a.API > Statistics {
		return false
	}
	if r.APIs != nil && !slices.Contains(r.APIs, a.API) {
		return false
	}
	// What is about no model (the server's metadata, its metrics, the list of models) is of the API alone.
	return a.Model == "" || r.Models == nil || slices.Contains(r.Models, a.Model)
}

// free reports whether anybody may do it: probes of whoever runs the server have no credentials.
func free(a Access) bool { return a.API == Health && a.Model == "" }

func denied(a Access) error {
	if a.Model == "" {
		return oip.Errorf(oip.PermissionDenied, "these credentials do not allow %s", a.API)
	}
	return oip.Errorf(oip.PermissionDenied, "these credentials do not allow %s of that model", a.API)
}
