package agree

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/oip"
)

func text(fields ...string) string {
	return "popefgen contract 2\niterations 1\n" + strings.Join(fields, "\n") + "\n"
}

var (
	old      = text(`input "x" F32 [2 3]`, `output "y" F32 [2]`)
	more     = text(`input "x" F32 [2 3]`, `output "y" F32 [2]`, `output "z" F32 [2]`)
	breaking = text(`input "x" F32 [2 4]`, `output "y" F32 [2]`)
)

// ask is one request of a client to a server whose model has a contract, as transports make them. It
// returns how often the server was asked.
func ask(c *Client, mine, theirs *oip.Spec) (asked int, err error) {
	hash, err := Hash(theirs.Contract)
	if err != nil {
		return 0, err
	}
	for again := true; again; asked++ {
		sent, err := c.Hash(mine)
		if err != nil {
			return asked, err
		}
		err = Check(theirs, hash, sent)
		if asked > 0 {
			return asked + 1, err
		}
		if again, err = c.Answer(mine, sent, err); !again {
			return asked + 1, err
		}
	}
	return asked, nil
}

func TestAgree(t *testing.T) {
	for _, c := range []struct {
		name, client, server string
		asked                [2]int // by the first request and the second
		differs              string
	}{
		{"the same", old, old, [2]int{1, 1}, ""},
		{"the server has more", old, more, [2]int{2, 1}, ""},
		{"the server has less", more, old, [2]int{1, 1}, "breaking    run output \"z\""},
		{"another shape", old, breaking, [2]int{1, 1}, "shape was [2 3], is [2 4]"},
		{"the client does not say", "", old, [2]int{1, 1}, ""},
		{"the server does not know", old, "", [2]int{1, 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var client Client
			mine, theirs := &oip.Spec{Name: "m", Contract: c.client}, &oip.Spec{Name: "m", Contract: c.server}
			for _, want := range c.asked {
				asked, err := ask(&client, mine, theirs)
				require.Equal(t, want, asked)
				if c.differs == "" {
					require.NoError(t, err)
					continue
				}
				var e *oip.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, oip.FailedPrecondition, e.Code)
				require.ErrorContains(t, err, c.differs)
				require.Equal(t, c.server, e.Contract)
			}
		})
	}
}

// TestReload has a server change its model under a client: to one that has more, and back, which is
// compatible each time, and then to another.
func TestReload(t *testing.T) {
	var client Client
	mine := &oip.Spec{Name: "m", Contract: old}
	for i, c := range []struct {
		server string
		asked  int
		fails  bool
	}{{old, 1, false}, {more, 2, false}, {more, 1, false}, {old, 2, false}, {breaking, 1, true}, {old, 1, false}} {
		asked, err := ask(&client, mine, &oip.Spec{Name: "m", Contract: c.server})
		require.Equal(t, c.fails, err != nil, "%d: %v", i, err)
		require.Equal(t, c.asked, asked, i)
	}
}

func TestAnswerKeepsOtherErrors(t *testing.T) {
	var client Client
	spec := &oip.Spec{Name: "m", Contract: old}
	for _, err := range []error{
		nil, errors.New("broken"), oip.Errorf(oip.Exhausted, "full"),
		oip.Errorf(oip.FailedPrecondition, "without a text"),
	} {
		again, got := client.Answer(spec, "sent", err)
		require.False(t, again)
		require.Equal(t, err, got)
	}
	again, err := client.Answer(spec, "sent", fmt.Errorf("wrapped: %w", &oip.Error{Code: oip.FailedPrecondition, Contract: "nonsense"}))
	require.False(t, again)
	require.ErrorContains(t, err, "can not be compared")
}

func TestLongContractStaysAtHome(t *testing.T) {
	var fields []string
	for i := range 200 {
		fields = append(fields, fmt.Sprintf("input \"a rather long name %d\" F32 [2 3]", i))
	}
	spec := &oip.Spec{Name: "m", Contract: text(fields...)}
	hash, err := Hash(spec.Contract)
	require.NoError(t, err)
	var e *oip.Error
	require.ErrorAs(t, Check(spec, hash, "0123"), &e)
	require.Empty(t, e.Contract)
	require.Contains(t, e.Text, hash)
}

func TestHashAllocatesNothing(t *testing.T) {
	var client Client
	spec := &oip.Spec{Name: "m", Contract: old}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if h, err := client.Hash(spec); err != nil || len(h) != 64 {
			t.Fatal(h, err)
		}
	}))
}
