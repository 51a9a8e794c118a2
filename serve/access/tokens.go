package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/serve/internal/reloaded"
	"github.com/popefgen/popefgen/serve/oip"
)

// leastToken is how many bytes a token has at least: what can be guessed protects nothing.
const leastToken = 16

// Tokens are the tokens of a file, read again when the file changes. They are compared in constant time, by their hashes, and
// appear in no log and no error.
type Tokens struct {
	file *reloaded.Value[[]token]
}

type token struct {
	hash [sha256.Size]byte
	rule Rule
}

// TokenFile reads a file with a token in each line, and after it, if it is not to have the default of [Rule], the calls that it
// allows and the models, separated by commas, * for all:
//
//	# token                             calls            models
//	k3RZqE0v5mBxJ8wTn2ay                infer,metadata   digits,words
//	sha256:9f86d081884c7d659a2fea...    *                *
//
// sha256: is followed by the SHA-256 hash of a token in hexadecimal digits, so that the file has no secret. A token has at least 16
// bytes. If the file is damaged later, log says so, and the tokens that were read before stay.
func TokenFile(path string, log *slog.Logger) (*Tokens, error) {
	file, err := reloaded.Open(func(contents [][]byte) ([]token, error) {
		return parseTokens(path, contents[0])
	}, func(err error) {
		log.Error("the token file can not be read again, the tokens from before stay", "error", err)
	}, path)
	if err != nil {
		return nil, err
	}
	return &Tokens{file: file}, nil
}

// Allow is the [Func] of the tokens. Whether the server is alive and ready anybody may ask.
func (t *Tokens) Allow(_ context.Context, a Access) error {
	if free(a) {
		return nil
	}
	if a.Token == "" {
		return oip.Errorf(oip.Unauthenticated, "%s needs a token: Authorization: Bearer TOKEN", a.API)
	}
	var buf [256]byte
	hash := sha256.Sum256(append(buf[:0], a.Token...))
	tokens := t.file.Get()
	found := -1
	for i := range tokens { // all of them: the time does not say which one was near
		if subtle.ConstantTimeCompare(hash[:], tokens[i].hash[:]) == 1 {
			found = i
		}
	}
	switch {
	case found < 0:
		return oip.Errorf(oip.Unauthenticated, "the token is not valid")
	case !tokens[found].rule.allows(a):
		return denied(a)
	}
	return nil
}

// parseTokens reads the lines of a token file. Its errors name lines, never what is in them.
func parseTokens(path string, text []byte) ([]token, error) {
	var all []token
	number := 0
	for line := range bytes.Lines(text) {
		number++
		fields := strings.Fields(string(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		fail := func(format string, args ...any) ([]token, error) {
			return nil, fmt.Errorf("%s:%d: %s", path, number, fmt.Sprintf(format, args...))
		}
		if len(fields) > 3 {
			return fail("%d words, expected a token, the calls that it allows, and the models", len(fields))
		}
		var one token
		if digits, ok := strings.CutPrefix(fields[0], "sha256:"); ok {
			hash, err := hex.DecodeString(digits)
			if err != nil || len(hash) != sha256.Size {
				return fail("expected %d hexadecimal digits after sha256:, found %d characters", 2*sha256.Size, len(digits))
			}
			copy(one.hash[:], hash)
		} else {
			if len(fields[0]) < leastToken {
				return fail("a token of %d bytes, expected at least %d", len(fields[0]), leastToken)
			}
			one.hash = sha256.Sum256([]byte(fields[0]))
		}
		if slices.ContainsFunc(all, func(t token) bool { return t.hash == one.hash }) {
			return fail("a token that stands in the file before")
		}
		if len(fields) > 1 {
			apis, err := ParseAPIs(fields[1])
			if err != nil {
				return fail("the second word: %v", err)
			}
			one.rule.APIs = apis
		}
		if len(fields) > 2 && fields[2] != "*" {
			one.rule.Models = strings.Split(fields[2], ",")
		}
		all = append(all, one)
	}
	return all, nil
}

// ParseAPIs reads names of APIs separated by commas, * for all. Its error does not repeat the text.
func ParseAPIs(text string) ([]API, error) {
	var all []API
	if text == "*" {
		for a := range apis {
			all = append(all, a)
		}
		return all, nil
	}
	for i, name := range strings.Split(text, ",") {
		at := slices.Index(names[:], name)
		if at < 0 {
			return nil, fmt.Errorf("name %d is of no group of calls, expected * or some of %s", i+1, strings.Join(names[:], ","))
		}
		all = append(all, API(at))
	}
	return all, nil
}
