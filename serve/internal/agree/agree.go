// Package agree lets a client and a server find out whether they mean the same model. A request carries the
// hash of the contract that its client was generated for. A server whose model has another one answers
// FailedPrecondition with the text of its own; the client compares the two as `popefgen diff` does, and either
// goes on, saying from then on that it knows the server's contract, or says what differs.
package agree

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/serve/oip"
)

// Where a request has the hash, 64 hexadecimal digits.
const (
	Parameter = "popefgen_contract" // among its parameters
	Header    = "popefgen-contract" // as a header of HTTP or metadata of gRPC, which have it in lower case
)

// MaxText is the longest text of a contract, in bytes, that an error carries: gRPC puts it in a
// header, and servers in between limit these.
const MaxText = 4 << 10

// Hash returns the hash of the contract with that text, "" of "".
func Hash(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	c, err := contract.Parse(text)
	if err != nil {
		return "", fmt.Errorf("hash of a contract: %w", err)
	}
	return c.Hash(), nil
}

// Check returns the error that a request gets whose client was generated for the contract with the hash given, from a
// server whose model is spec, with the contract of that hash. It is nil if they are the same, or one of
// them is "": the tensors of a request that does not say it are checked all the same.
func Check[S string | []byte](spec *oip.Spec, hash string, given S) error {
	if hash == "" || len(given) == 0 || string(given) == hash {
		return nil
	}
	e := oip.Errorf(oip.FailedPrecondition, "model '%s' has the contract %s, and the client was generated for %.64q", spec.Name, hash, string(given))
	if len(spec.Contract) <= MaxText {
		e.Contract = spec.Contract
	}
	return e
}

// Client is what a transport knows of the contracts of its server. The zero Client is ready to use, from any goroutine.
type Client struct {
	mu   sync.RWMutex
	says map[*oip.Spec]string // the hash that requests carry
}

// Hash returns the hash that the next request to the model carries: that of spec.Contract, or of the
// server's, if that turned out to be compatible. "" says that the request carries none.
func (c *Client) Hash(spec *oip.Spec) (string, error) {
	c.mu.RLock()
	h, ok := c.says[spec]
	c.mu.RUnlock()
	if ok {
		return h, nil
	}
	h, err := Hash(spec.Contract)
	if err != nil {
		return "", fmt.Errorf("model %q: %w", spec.Name, err)
	}
	c.say(spec, h)
	return h, nil
}

func (c *Client) say(spec *oip.Spec, hash string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.says == nil {
		c.says = map[*oip.Spec]string{}
	}
	c.says[spec] = hash
}

// Answer looks at the error with which a server answered a request that carried the hash sent. It reports whether the
// request should be sent again, with what Hash returns now, because the server's contract has all that
// the client relies on; otherwise it returns the error for the caller, which is err unless that is about
// the contract. A transport asks at most once for a request.
func (c *Client) Answer(spec *oip.Spec, sent string, err error) (again bool, _ error) {
	var e *oip.Error
	if !errors.As(err, &e) || e.Code != oip.FailedPrecondition || e.Contract == "" || sent == "" {
		return false, err
	}
	old, err := contract.Parse(spec.Contract)
	if err != nil {
		return false, fmt.Errorf("model %q: its contract: %w", spec.Name, err)
	}
	new, err := contract.Parse(e.Contract)
	if err != nil {
		return false, &oip.Error{Code: e.Code, Text: e.Text + "; its text can not be compared: " + err.Error(), Contract: e.Contract, Cause: err}
	}
	findings := contract.Judge(contract.Published{Callers: old}, contract.Published{Callers: new})
	hash := new.Hash()
	if contract.Opens(findings) && hash != sent {
		c.say(spec, hash)
		return true, nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the server's model '%s' has another contract than this client was generated for:", spec.Name)
	for _, f := range findings {
		fmt.Fprintf(&b, "\n%-10s  %s", f.Verdict, f) // as popefgen diff prints it
	}
	return false, &oip.Error{Code: e.Code, Text: b.String(), Contract: e.Contract, Cause: err}
}
