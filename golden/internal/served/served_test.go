package served_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	served "github.com/popefgen/popefgen/golden/internal/served/want"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve/oip"
	"github.com/popefgen/popefgen/serve/servetest"
)

var ctx = context.Background()

func open(t testing.TB, opts ...rt.RunnerOption) *served.Runner {
	t.Helper()
	r, err := served.Open(ctx, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// total is what a user writes once, for a model here or on a server.
func total(s served.Service, x float32) (float32, error) {
	in, out := served.NewInputs(), served.NewOutputs()
	in.X.Data[0] = [3]float32{x, x, x}
	if err := s.Run(ctx, in, out); err != nil {
		return 0, err
	}
	return out.Y.Data[0][0] + out.Y.Data[0][1], nil
}

func TestLocalAndRemote(t *testing.T) {
	r := open(t)
	for _, s := range []served.Service{r, served.NewClient(servetest.Local(served.Served(r)))} {
		got, err := total(s, 2)
		require.NoError(t, err)
		require.Equal(t, float32(2*(1+3+5)+2*(2+4+6)), got)
	}
}

// TestHooks has hooks see and change what a request has.
func TestHooks(t *testing.T) {
	var calls []string
	refuse := errors.New("no")
	c := served.NewClient(servetest.Local(served.Served(open(t),
		served.Before(func(_ context.Context, in *served.Inputs) error {
			calls = append(calls, "before")
			switch {
			case in.Count.Data == 1:
				return oip.Errorf(oip.PermissionDenied, "not this one")
			case in.Count.Data == 2:
				return refuse
			case in.Count.Data == 3:
				panic("three")
			}
			if in.Count.Data == 7 {
				return nil
			}
			in.Count.Data *= 10
			in.X = &served.X{Data: [2][3]float32{{1}}} // of this request alone
			return nil
		}),
		served.After(func(_ context.Context, in *served.Inputs, out *served.Outputs) error {
			calls = append(calls, "after")
			out.Next.Data += in.Count.Data
			if in.Count.Data == 50 {
				out.Y = nil
			}
			return nil
		}))))
	in, out := served.NewInputs(), served.NewOutputs()
	run := func(count int64) error {
		in.Count.Data = count
		return c.Run(ctx, in, out)
	}
	require.NoError(t, run(4))
	require.Equal(t, int64(81), out.Next.Data)
	require.Equal(t, [2]float32{1.5, 1.5}, out.Y.Data[0])
	require.Equal(t, []string{"before", "after"}, calls)
	for _, e := range []struct {
		count int64
		code  oip.Code
		text  string
	}{{1, oip.PermissionDenied, "not this one"}, {2, oip.Internal, "no"}, {3, oip.Internal, "a hook of model 'served' panicked"}, {5, oip.Internal, "left output 'y'"}} {
		err := run(e.count)
		var failed *oip.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, e.code, failed.Code)
		require.ErrorContains(t, err, e.text)
		require.NotContains(t, err.Error(), "three", "what a hook panics with is not for clients")
	}
	require.NoError(t, run(6))
	require.Equal(t, int64(121), out.Next.Data)
	require.NoError(t, run(7))
	require.Equal(t, [2]float32{0.5, -0.5}, out.Y.Data[0], "what a hook put in place of an input was another request's")
}

// TestFrozen serves a runner that has the data of an input: clients do not see it.
func TestFrozen(t *testing.T) {
	m := served.Served(open(t, served.FreezeCount(&served.Count{Data: 41})))
	require.Len(t, m.Spec().Inputs, 1)
	c := served.NewClient(servetest.Local(m))
	in, out := served.NewInputs(), served.NewOutputs()
	in.X.Data[1][2] = 1
	require.ErrorContains(t, c.Run(ctx, in, out), "unexpected inference input 'count'")
	in.Count = nil
	require.NoError(t, c.Run(ctx, in, out))
	require.Equal(t, int64(42), out.Next.Data)
	require.Equal(t, [2]float32{5.5, 5.5}, out.Y.Data[1])

	c = served.NewClient(servetest.Local(served.Served(open(t))))
	require.ErrorContains(t, c.Run(ctx, in, out), "Input 'count' is missing")
	in.X = nil
	require.ErrorContains(t, c.Run(ctx, in, out), "2 inputs but got 0")
}

func TestNil(t *testing.T) {
	c := served.NewClient(servetest.Local(served.Served(open(t))))
	in, out := served.NewInputs(), served.NewOutputs()
	require.ErrorIs(t, c.Run(ctx, nil, out), rt.ErrNilAnchor)
	require.ErrorIs(t, c.Run(ctx, in, nil), rt.ErrNilAnchor)
	require.ErrorIs(t, c.Run(ctx, in, &served.Outputs{Y: out.Y}), rt.ErrNilAnchor)
}

// TestErrors serves a runner that is closed, and requests that are over.
func TestErrors(t *testing.T) {
	r := open(t)
	m := served.Served(r)
	c := served.NewClient(servetest.Local(m))
	in, out := served.NewInputs(), served.NewOutputs()
	is := func(want oip.Code, err error) {
		t.Helper()
		var e *oip.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, want, e.Code, "%v", err)
	}
	over, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
	defer cancel()
	is(oip.Deadline, c.Run(over, in, out))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	is(oip.Canceled, c.Run(gone, in, out))
	require.NoError(t, m.Shutdown(ctx))
	is(oip.Unavailable, c.Run(ctx, in, out))
	require.NoError(t, c.Close())
}

// TestManyCallers has callers of one client, each with its own answer.
func TestManyCallers(t *testing.T) {
	c := served.NewClient(servetest.Local(served.Served(open(t, rt.WithReplicas(2)))))
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			in, out := served.NewInputs(), served.NewOutputs()
			for k := range 50 {
				in.Count.Data = int64(1000*i + k)
				if err := c.Run(ctx, in, out); err != nil || out.Next.Data != in.Count.Data+1 {
					t.Errorf("caller %d: %v, %d", i, err, out.Next.Data)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestClientAllocatesNothing(t *testing.T) {
	c := served.NewClient(servetest.Local(served.Served(open(t))))
	in, out := served.NewInputs(), served.NewOutputs()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := c.Run(ctx, in, out); err != nil {
			t.Fatal(err)
		}
	}))
}

// TestLinks lists what packages link: one that serves no net/http, and one that does not no word of servers.
func TestLinks(t *testing.T) {
	links := func(of string) string {
		out, err := exec.Command("go", "list", "-deps", of).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	with, without := links("./want"), links("../affine/want")
	require.Contains(t, with, "popefgen/serve/genserve\n")
	for _, never := range []string{"net/http\n", "grpc", "testing\n"} {
		require.NotContains(t, with, never)
		require.NotContains(t, without, never)
	}
	require.False(t, strings.Contains(without, "popefgen/serve"), without)
}

// another is a model with another contract than the package was generated for.
type another struct {
	oip.Model
	spec oip.Spec
}

func (m *another) Spec() *oip.Spec { return &m.spec }

// TestAnotherContract asks servers over REST, and in the process, whose model has more than the client was generated for, or another
// shape.
func TestAnotherContract(t *testing.T) {
	r := open(t)
	server := func(old, new string) *another {
		m := &another{Model: served.Served(r), spec: *served.Served(r).Spec()}
		require.Contains(t, m.spec.Contract, old)
		m.spec.Contract = strings.Replace(m.spec.Contract, old, new, 1)
		return m
	}
	const count = "output \"next\" S64 []\n"
	more, breaking := server(count, count+"output \"more\" F32 [7]\n"), server("input \"x\" F32 [2 3]", "input \"x\" F32 [2 4]")
	for name, connect := range map[string]func(oip.Model) oip.Transport{
		"REST": func(m oip.Model) oip.Transport { return servetest.REST(t, m) }, "local": servetest.Local,
	} {
		t.Run(name, func(t *testing.T) {
			c := served.NewClient(connect(more))
			for range 3 {
				got, err := total(c, 1)
				require.NoError(t, err)
				require.Equal(t, float32(1+3+5+2+4+6), got)
			}
			_, err := total(served.NewClient(connect(breaking)), 1)
			var e *oip.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, oip.FailedPrecondition, e.Code)
			require.ErrorContains(t, err, "the server's model 'served' has another contract than this client was generated for:\nbreaking    run input \"x\": shape was [2 3], is [2 4]")
			require.Equal(t, breaking.spec.Contract, e.Contract)
		})
	}
}
