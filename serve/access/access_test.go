package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/reloaded"
	"github.com/popefgen/popefgen/serve/oip"
)

const (
	plain  = "plain-token-of-20-by"
	narrow = "narrow-token-of-21-by"
	admin  = "admin-token-of-20-byt"
)

func tokenFile(t *testing.T) (*Tokens, string, *bytes.Buffer) {
	path := filepath.Join(t.TempDir(), "tokens")
	text := fmt.Sprintf("# people\n\n%s\n%s infer,health digits,words\nsha256:%x * *\n", plain, narrow, sha256.Sum256([]byte(admin)))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	var log bytes.Buffer
	tokens, err := TokenFile(path, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	return tokens, path, &log
}

// TestTokens: who may do what.
func TestTokens(t *testing.T) {
	tokens, _, _ := tokenFile(t)
	code := func(token string, api API, model string) string {
		err := tokens.Allow(t.Context(), Access{API: api, Model: model, Token: token})
		if err == nil {
			return ""
		}
		require.NotContains(t, err.Error(), plain)
		return err.(*oip.Error).Code.String()
	}
	const none, not = "UNAUTHENTICATED", "PERMISSION_DENIED"
	for _, c := range []struct {
		token string
		api   API
		model string
		want  string
	}{
		{"", Health, "", ""},
		{"", Health, "digits", none},
		{"", Infer, "digits", none},
		{"another-token-of-24-byte", Infer, "digits", none},
		{plain[:19], Infer, "digits", none},
		{plain + "x", Infer, "digits", none},
		{strings.Repeat("x", 10_000), Infer, "digits", none},
		{plain, Infer, "digits", ""},
		{plain, Metadata, "", ""},
		{plain, Statistics, "any", ""},
		{plain, Repository, "", not},
		{plain, Admin, "", not},
		{narrow, Infer, "digits", ""},
		{narrow, Infer, "words", ""},
		{narrow, Infer, "other", not},
		{narrow, Metadata, "digits", not},
		{narrow, Health, "words", ""},
		{admin, Admin, "", ""},
		{admin, Repository, "other", ""},
		{fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(admin))), Admin, "", none},
	} {
		require.Equal(t, c.want, code(c.token, c.api, c.model), "%+v", c)
	}
	a := Access{API: Infer, Model: "digits", Token: narrow}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if tokens.Allow(context.Background(), a) != nil {
			panic("refused")
		}
	}))
}

// TestTokensAreReplaced: a token that is taken out of the file is refused an interval later; a damaged file leaves the tokens
// that were there, and the log has no token.
func TestTokensAreReplaced(t *testing.T) {
	tokens, path, log := tokenFile(t)
	allow := func(token string) error {
		tokens.file.Look()
		return tokens.Allow(t.Context(), Access{API: Infer, Model: "digits", Token: token})
	}
	require.NoError(t, allow(plain))
	require.NoError(t, os.WriteFile(path, []byte(plain+" infer a b c\n"), 0o600))
	require.NoError(t, allow(plain))
	require.Contains(t, log.String(), "tokens:1: 5 words")
	require.NotContains(t, log.String(), plain)
	require.NoError(t, os.WriteFile(path, []byte(narrow+"\n"), 0o600))
	require.Error(t, allow(plain))
	require.NoError(t, allow(narrow))
	require.LessOrEqual(t, reloaded.Interval, time.Second)
}

// TestTokenFileErrors: errors name the line and nothing of the token.
func TestTokenFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"secret-short":              "f:1: a token of 12 bytes, expected at least 16",
		"secret-of-15-by":           "f:1: a token of 15 bytes, expected at least 16",
		"\nsha256:secret":           "f:2: expected 64 hexadecimal digits after sha256:, found 6 characters",
		plain + "\n" + plain + "\n": "f:2: a token that stands in the file before",
		plain + " infer,secret":     "f:1: the second word: name 2 is of no group of calls, expected * or some of health,metadata,infer,statistics,repository,admin",
		plain + " a b c":            "f:1: 4 words, expected a token, the calls that it allows, and the models",
		"sha256:" + strings.Repeat("0", 62) + " secret": "f:1: expected 64 hexadecimal digits after sha256:, found 62 characters",
	} {
		_, err := parseTokens("f", []byte(text))
		require.EqualError(t, err, want, text)
	}
	_, err := TokenFile(filepath.Join(t.TempDir(), "missing"), slog.Default())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestCertificates: by a URI, by a DNS name, by the common name if there is nothing else.
func TestCertificates(t *testing.T) {
	allow := Certificates(map[string]Rule{
		"spiffe://here/ns/a": {},
		"worker.local":       {APIs: []API{Infer}, Models: []string{"digits"}},
		"ann":                {APIs: []API{Admin}},
	})
	spiffe, err := url.Parse("spiffe://here/ns/a")
	require.NoError(t, err)
	a := &x509.Certificate{URIs: []*url.URL{spiffe}}
	worker := &x509.Certificate{DNSNames: []string{"other", "worker.local"}, Subject: pkix.Name{CommonName: "ann"}}
	ann := &x509.Certificate{Subject: pkix.Name{CommonName: "ann"}}
	none := &x509.Certificate{}
	for _, c := range []struct {
		certificate *x509.Certificate
		api         API
		model, want string
	}{
		{nil, Health, "", ""},
		{nil, Infer, "digits", "UNAUTHENTICATED"},
		{none, Infer, "digits", "PERMISSION_DENIED"},
		{a, Infer, "digits", ""},
		{a, Admin, "", "PERMISSION_DENIED"},
		{worker, Infer, "digits", ""},
		{worker, Infer, "words", "PERMISSION_DENIED"},
		{worker, Admin, "", "PERMISSION_DENIED"},
		{ann, Admin, "", ""},
		{ann, Infer, "digits", "PERMISSION_DENIED"},
	} {
		err := allow(t.Context(), Access{API: c.api, Model: c.model, Certificate: c.certificate})
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, c.want, err.(*oip.Error).Code.String(), "%s %s", c.api, c.model)
	}
}

// TestAny: one function that allows is enough; a caller that is known and not allowed gets PermissionDenied.
func TestAny(t *testing.T) {
	fails := func(err error) Func { return func(context.Context, Access) error { return err } }
	unknown, not := oip.Errorf(oip.Unauthenticated, "who?"), oip.Errorf(oip.PermissionDenied, "no")
	other := errors.New("other")
	for _, c := range []struct {
		funcs []Func
		want  error
	}{
		{[]Func{fails(unknown), fails(nil)}, nil},
		{[]Func{fails(unknown), fails(not)}, not},
		{[]Func{fails(unknown), fails(unknown)}, unknown},
		{[]Func{fails(unknown), fails(other)}, other},
	} {
		require.Equal(t, c.want, Any(c.funcs...)(t.Context(), Access{}))
	}
	require.Error(t, Any()(t.Context(), Access{}))
}

// TestCredentials: what of a request is a token, and which certificate counts.
func TestCredentials(t *testing.T) {
	for header, want := range map[string]string{
		"": "", "Bearer": "", "Bearer ": "", "Bearer abc": "abc", "bearer  abc ": "abc", "Basic abc": "", "Bearerabc": "",
	} {
		require.Equal(t, want, Bearer(header), header)
	}
	c := &x509.Certificate{}
	require.Nil(t, Certificate(nil))
	require.Nil(t, Certificate(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}), "not verified")
	require.Same(t, c, Certificate(&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}}))
	all, err := ParseAPIs("*")
	require.NoError(t, err)
	require.Equal(t, []API{Health, Metadata, Infer, Statistics, Repository, Admin}, all)
	require.Equal(t, "API(9)", API(9).String())
}
