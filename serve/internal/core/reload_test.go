package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// TestVersions: the latest version is asked by default, others by their name.
func TestVersions(t *testing.T) {
	c := New()
	for _, name := range []string{"2", "10", "9", "beta"} {
		load(t, c, script(1, nil), Load{Version: name})
	}
	require.Equal(t, []string{"10", "9", "2", "beta"}, c.Versions("script"))
	require.Equal(t, []string{"script"}, c.Names())
	for _, test := range []struct{ ask, want string }{{"", "10"}, {"9", "9"}, {"beta", "beta"}} {
		v, err := c.Lookup([]byte("script"), []byte(test.ask))
		require.NoError(t, err)
		require.Equal(t, test.want, v.Name)
		v.Release()
	}
	for _, ask := range [][2]string{{"script", "3"}, {"other", ""}, {"other", "1"}, {"../script", ""}} {
		_, err := c.Lookup([]byte(ask[0]), []byte(ask[1]))
		require.Contains(t, codeIs(t, oip.NotFound, err).Text, "Request for unknown model")
	}
	_, err := c.Lookup([]byte("script"), []byte("gamma"))
	require.ErrorContains(t, err, "version gamma is not found: failed to get model version from specified version string 'gamma', the latest is 10")
	require.NoError(t, c.Unload("script", "10"))
	v, err := c.Lookup([]byte("script"), nil)
	require.NoError(t, err)
	require.Equal(t, "9", v.Name)
	v.Release()
	require.NoError(t, c.Unload("script", ""))
	require.Empty(t, c.Names())
	codeIs(t, oip.NotFound, c.Unload("script", ""))
	codeIs(t, oip.NotFound, ask(t.Context(), c, 1, nil))
	until(t, func() bool { return c.Index()[0].State == Unavailable })
	require.Equal(t, Entry{Model: "script", Version: "10", State: Unavailable, Reason: "unloaded"}, c.Index()[0])
	load(t, c, script(1, nil), Load{Version: "2"}) // and again
	require.NoError(t, ask(t.Context(), c, 1, nil))
	require.NoError(t, c.Close(t.Context()))
}

// TestForget: what was refused and is gone is in the index no more; what serves stays, with what it says.
func TestForget(t *testing.T) {
	c := New()
	load(t, c, script(1, nil), Load{Version: "1"})
	c.Refuse("script", "1", errors.New("half of it"))
	c.Refuse("script", "2", errors.New("half of it"))
	c.Refuse("other", "1", errors.New("half of it"))
	require.Len(t, c.Index(), 3)
	c.Forget("script", "1")
	c.Forget("script", "2")
	c.Forget("other", "1")
	c.Forget("none", "1")
	require.Equal(t, []Entry{{Model: "script", Version: "1", State: Serving, Reason: "half of it", Refused: 1, Rejected: true}}, c.Index())
	c.SetAvailable(func() (map[string][]string, error) { return map[string][]string{"other": {"1"}}, nil })
	require.Equal(t, "not loaded", c.Index()[0].Reason, "of a model whose files are there again")
	require.NoError(t, c.Close(t.Context()))
}

// TestReload: the new version takes the old one's place at once, the old one answers what it has and is closed then.
func TestReload(t *testing.T) {
	c := New()
	next := make(chan struct{})
	old := script(1, func(context.Context) error { <-next; return nil })
	load(t, c, old, Load{Cold: true})
	first := make(chan error, 1)
	go func() { first <- ask(t.Context(), c, 1, nil) }()
	until(t, func() bool { return old.Runs.Load() == 1 })

	new := script(1, nil)
	load(t, c, new, Load{})
	require.EqualValues(t, 1, new.Runs.Load(), "it is warm before it serves")
	require.NoError(t, ask(t.Context(), c, 2, nil))
	require.EqualValues(t, 2, new.Runs.Load())
	require.Never(t, old.Closed.Load, 30*time.Millisecond, time.Millisecond, "it has a request")
	close(next)
	require.NoError(t, <-first)
	until(t, old.Closed.Load)
	require.Equal(t, []Entry{{Model: "script", Version: "1", State: Serving, Reloads: 1}}, c.Index())
	require.EqualValues(t, 2, c.Statistics("script")[0].Latency.Count, "the counters go on")

	third := script(1, nil)
	load(t, c, third, Load{Version: "2", Alone: true})
	require.Equal(t, []string{"2"}, c.Versions("script"))
	until(t, new.Closed.Load)
	until(t, func() bool { return c.Index()[1].State == Unavailable })

	older := script(1, nil)
	load(t, c, older, Load{Version: "1", Alone: true})
	require.Equal(t, []string{"2", "1"}, c.Versions("script"), "a later one stays")
}

// TestRefused: what would break callers, does not warm up or can not be served is refused and closed; the old
// version serves, and the index says why.
func TestRefused(t *testing.T) {
	type change func(*testmodel.Model)
	for _, test := range []struct {
		name   string
		change change
		load   Load
		want   string
	}{
		{"input gone", func(m *testmodel.Model) { m.Described.Inputs[0].Name = "X" }, Load{}, "input 'INPUT0' is gone; input 'X' is new"},
		{"type", func(m *testmodel.Model) { m.Described.Outputs[0].Type = oip.Int32 }, Load{}, "output 'OUTPUT0' was UINT32 [-1,1] of at most [4,1], is INT32 [-1,1] of at most [4,1]"},
		{"shape", func(m *testmodel.Model) { m.Described.Inputs[0].Shape[1] = 2; m.Described.Inputs[0].Max[1] = 2 }, Load{}, "input 'INPUT0' was UINT32 [-1,1] of at most [4,1], is UINT32 [-1,2] of at most [4,2]"},
		{"fewer samples", func(m *testmodel.Model) { m.Described.Samples = 2 }, Load{}, "samples of a request at most were 4, are 2"},
		{"output gone", func(m *testmodel.Model) { m.Described.Outputs[0].Name = "Y" }, Load{}, "output 'OUTPUT0' is gone"},
		{"a later version", func(m *testmodel.Model) { m.Described.Inputs[0].Name = "X" }, Load{Version: "2"}, "version 2 would break callers of version 1, which goes on serving"},
		{"no warm-up", func(m *testmodel.Model) { m.Before = func(context.Context) error { return errors.New("no memory") } }, Load{}, "warm up model 'script', version 1: no memory"},
		{"panics", func(m *testmodel.Model) { m.Before = func(context.Context) error { panic("at once") } }, Load{}, "warm up model 'script', version 1: model 'script' failed"},
		{"wrong answers", func(*testmodel.Model) {}, Load{Warm: func(context.Context, oip.Call) error { return errors.New("differs from golden 0") }}, "differs from golden 0"},
		{"contract unreadable", func(m *testmodel.Model) { m.Described.Contract = "x" }, Load{}, "hash of a contract"},
		{"too many tensors", func(m *testmodel.Model) { m.Described.Inputs = make([]oip.Tensor, 65) }, Load{}, "at most 64 can be served"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := New()
			load(t, c, script(1, nil), Load{})
			m := script(1, nil)
			test.change(m)
			_, err := c.Load(t.Context(), m, test.load)
			require.ErrorContains(t, err, test.want)
			require.True(t, m.Closed.Load())
			require.Equal(t, []string{"1"}, c.Versions("script"))
			require.NoError(t, ask(t.Context(), c, 1, nil))
			e := c.Index()[0]
			require.Contains(t, e.Reason, test.want)
			require.EqualValues(t, 1, e.Refused)
			if test.load.Version == "" {
				require.Equal(t, Serving, e.State)
			} else {
				require.Equal(t, Unavailable, e.State)
			}
			test.load.Warm = nil
			load(t, c, script(1, nil), test.load) // once it is mended
			require.Equal(t, Serving, c.Index()[0].State)
			require.Empty(t, c.Index()[0].Reason)
		})
	}
}

// TestCompatible: a model that has more serves in place of one that has less.
func TestCompatible(t *testing.T) {
	c := New()
	load(t, c, script(1, nil), Load{})
	m := script(1, nil)
	m.Described.Samples, m.Described.Inputs[0].Max[0], m.Described.Outputs[0].Max[0] = 8, 8, 8
	m.Described.Outputs = append(m.Described.Outputs, oip.Tensor{Name: "MORE", Type: oip.Uint32, Shape: []int64{-1, 1}, Max: []int64{8, 1}})
	load(t, c, m, Load{})
	require.NoError(t, ask(t.Context(), c, 1, nil))
}

// contracted is the model script with a contract of those fields.
func contracted(fields ...string) *testmodel.Model {
	m := script(1, nil)
	m.Described.Contract = "popefgen contract 2\niterations 1\n" + strings.Join(fields, "\n") + "\n"
	return m
}

// TestContracts: contracts are compared as popefgen diff does, and requests of another contract get the server's.
func TestContracts(t *testing.T) {
	c := New()
	in, out := `input "INPUT0" U32 [4 1]`, `output "OUTPUT0" U32 [4 1]`
	v := load(t, c, contracted(in, out), Load{})
	say := func(hash string) error {
		return ask(t.Context(), c, 1, func(c *Call) { c.Contract = append(c.Contract, hash...) })
	}
	require.Len(t, v.Hash(), 64)
	require.NoError(t, say(v.Hash()))
	require.NoError(t, say(""))
	e := codeIs(t, oip.FailedPrecondition, say(strings.Repeat("0", 64)))
	require.Equal(t, v.Spec.Contract, e.Contract)

	more := contracted(in, out, `output "MORE" U32 [4 1]`)
	w := load(t, c, more, Load{})
	require.NotEqual(t, v.Hash(), w.Hash())
	codeIs(t, oip.FailedPrecondition, say(v.Hash()))
	require.NoError(t, say(w.Hash()))

	_, err := c.Load(t.Context(), contracted(in, out), Load{})
	require.ErrorContains(t, err, `run output "MORE" is gone`)
	require.Contains(t, c.Index()[0].Reason, `run output "MORE" is gone`)
	require.NoError(t, say(w.Hash()))
}

// TestTypedClients: a reload is refused if and only if a client that was generated for the model before it would be.
func TestTypedClients(t *testing.T) {
	in, out := `input "INPUT0" U32 [4 1]`, `output "OUTPUT0" U32 [4 1]`
	counted := func(bound string) *testmodel.Model {
		m := contracted(in, `output "OUTPUT0" U32 [<=`+bound+` 1]`)
		m.Described.Contract = strings.Replace(m.Described.Contract, "contract 2", "contract 3", 1)
		return m
	}
	long := func(more int) *testmodel.Model {
		fields := []string{in}
		for i := range 60 + more {
			fields = append(fields, fmt.Sprintf(`output "OUTPUT%d%s" U32 [4 1]`, 1000+i, strings.Repeat("x", 60)))
		}
		return contracted(append(fields, out)...)
	}
	for _, test := range []struct {
		name     string
		old, new *testmodel.Model
		refused  string // "" if it is not
	}{
		{"the same", contracted(in, out), contracted(in, out), ""},
		{"an output more", contracted(in, out), contracted(in, `output "MORE" U32 [4 1]`, out), ""},
		{"an output less", contracted(in, `output "MORE" U32 [4 1]`, out), contracted(in, out), `run output "MORE" is gone`},
		{"another type", contracted(in, out), contracted(in, `output "OUTPUT0" S32 [4 1]`), "type was U32, is S32"},
		{"a larger bound", counted("4"), counted("5"), "shape was [<=4 1], is [<=5 1]"},
		{"a smaller bound", counted("5"), counted("4"), "shape was [<=5 1], is [<=4 1]"},
		{"long, the same", long(0), long(0), ""},
		{"long, more", long(0), long(1), "typed clients can compare 4096 at most"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := New()
			load(t, c, test.old, Load{})
			_, err := c.Load(t.Context(), test.new, Load{})

			var client agree.Client
			sent, e := client.Hash(test.old.Spec())
			require.NoError(t, e)
			hash, e := agree.Hash(test.new.Spec().Contract)
			require.NoError(t, e)
			answer := agree.Check(test.new.Spec(), hash, sent)
			again, e := client.Answer(test.old.Spec(), sent, answer)
			if again {
				sent, e = client.Hash(test.old.Spec())
				require.NoError(t, e)
				require.Equal(t, hash, sent)
			}
			if test.refused == "" {
				require.NoError(t, err)
				require.NoError(t, e)
			} else {
				require.ErrorContains(t, err, test.refused)
				require.Error(t, e, "the client would have gone on")
				v, err := c.Lookup([]byte("script"), nil)
				require.NoError(t, err)
				require.Equal(t, test.old.Described.Contract, v.Spec.Contract)
				v.Release()
			}
			require.NoError(t, c.Close(t.Context()))
		})
	}
}

// TestClose: requests that a server has are answered, those that come get "unavailable" and never "unknown model"; a model
// that does not end is closed when the time is over.
func TestClose(t *testing.T) {
	c, v, m, next := blocked(t, Limits{Computing: 1, Waiting: 2}, 1)
	results := make(chan error, 2)
	for i := range 2 {
		go func() { results <- ask(t.Context(), c, uint32(i), nil) }()
	}
	until(t, func() bool { s := v.Statistics(); return s.Computing+s.Waiting == 2 })
	require.ErrorContains(t, c.Ready(), "not ready")
	c.Start()
	require.NoError(t, c.Ready())
	c.StartDraining()
	require.Error(t, c.Ready())
	closed := make(chan error, 1)
	go func() { closed <- c.Close(t.Context()) }()
	until(t, func() bool { _, err := c.Lookup([]byte("script"), nil); return err != nil })
	codeIs(t, oip.Unavailable, ask(t.Context(), c, 1, nil))
	codeIs(t, oip.Unavailable, v.Refusal())
	_, err := c.Load(t.Context(), script(1, nil), Load{})
	codeIs(t, oip.Unavailable, err)
	require.False(t, m.Closed.Load())
	close(next)
	require.NoError(t, <-results)
	require.NoError(t, <-results)
	require.NoError(t, <-closed)
	require.True(t, m.Closed.Load())

	c, _, m, next = blocked(t, Limits{}, 1)
	go func() { results <- ask(context.Background(), c, 1, nil) }()
	until(t, func() bool { return m.Runs.Load() == 1 })
	load(t, c, script(1, nil), Load{}) // one that was replaced must not be waited for without end either
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Close(ctx), context.DeadlineExceeded)
	require.True(t, m.Closed.Load())
	close(next)
	require.NoError(t, <-results)
}

// TestReloadUnderLoad: while versions are replaced all the time no request fails.
func TestReloadUnderLoad(t *testing.T) {
	c := New()
	load(t, c, script(2, nil), Load{})
	c.SetLimits("", Limits{Waiting: 64})
	var stop atomic.Bool
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := uint32(i); !stop.Load(); n++ {
				if err := ask(t.Context(), c, n, nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var models []*testmodel.Model
	for i := range 200 {
		m := script(2, nil)
		m.Before = func(context.Context) error {
			if m.Closed.Load() {
				t.Error("a model that is closed got a request")
			}
			return nil
		}
		models = append(models, m)
		l := Load{Version: "1"}
		if i%2 == 0 {
			l = Load{Version: "2", Alone: true}
		}
		load(t, c, m, l)
		if i%2 == 1 {
			require.NoError(t, c.Unload("script", "2"))
		}
	}
	stop.Store(true)
	all.Wait()
	require.NoError(t, c.Close(t.Context()))
	for _, m := range models {
		require.True(t, m.Closed.Load())
	}
}
