package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/serve/client"
	grpcserve "github.com/popefgen/popefgen/serve/grpc"
	"github.com/popefgen/popefgen/serve/oip"
)

// turns is the transport of HTTP whose connections go to the addresses in turn, and to the next one where nobody listens, as those to a Service do.
func turns(addresses ...string) *http.Transport {
	var next atomic.Int64
	return &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, _ string) (c net.Conn, err error) {
		first := int(next.Add(1))
		for i := range addresses {
			if c, err = new(net.Dialer).DialContext(ctx, network, addresses[(first+i)%len(addresses)]); err == nil {
				return c, nil
			}
		}
		return nil, err
	}}
}

var overGRPC = regexp.MustCompile(`(?m)^popefgen_requests_total\{model="digits",outcome="ok",protocol="grpc",version="1"\} (\S+)$`)

// answered returns how many requests of gRPC a server has answered.
func (p *process) answered() float64 {
	r, err := http.Get(p.http + "/metrics")
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	m := overGRPC.FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseFloat(string(m[1]), 64)
	return n
}

// TestSoakRestarts has typed clients over gRPC and REST ask two servers in turn while their model's file is replaced again and again, and the servers are
// restarted one after the other: no request fails, and every answer is that of one of the two files. It makes 100,000 requests across 20 reloads
// where POPEFGEN_SOAK is set, as make soak does, and fewer otherwise.
func TestSoakRestarts(t *testing.T) {
	requests, reloads := int64(2_000), 4
	if os.Getenv("POPEFGEN_SOAK") != "" {
		requests, reloads = 100_000, 20
	}
	dir := t.TempDir()
	files := [2][]byte{compiled(t, "digits", false), compiled(t, "digits", true)}
	replace := func(i int) { // at once, so that nobody reads half of it
		at := filepath.Join(dir, "digits", "model.popef")
		write(t, at+".new", files[i])
		require.NoError(t, os.Rename(at+".new", at))
	}
	replace(0)
	flags := []string{"--control", "watch", "--poll", "20ms", "--drain-delay", "300ms"}
	servers := [2]*process{}
	for i := range servers {
		servers[i] = start(t, append(flags, dir)...)
	}
	addresses := [2]string{}
	names := manual.NewBuilderWithScheme("restarts")
	var resolved []resolver.Address
	for i, p := range servers {
		addresses[i] = strings.TrimPrefix(p.http, "http://")
		resolved = append(resolved, resolver.Address{Addr: p.grpc})
	}
	names.InitialState(resolver.State{Addresses: resolved})
	overHTTP := turns(addresses[:]...)
	defer overHTTP.CloseIdleConnections()
	rest, err := client.New("http://digits.example", client.WithHTTPClient(&http.Client{Transport: overHTTP}))
	require.NoError(t, err)
	rpc, err := grpcserve.Dial("restarts:///digits", grpcserve.WithDialOptions(grpc.WithResolvers(names)))
	require.NoError(t, err)
	defer rpc.Close()

	// Callers, until the last event has happened and all requests are made.
	var asked, failed atomic.Int64
	var happened atomic.Bool
	var answers sync.Map // how often each was given
	var all sync.WaitGroup
	for i := range 8 {
		model := classifier.NewClient([]oip.Transport{rest, rpc}[i%2])
		all.Go(func() {
			in, out := classifier.NewInputs(), classifier.NewOutputs()
			for k := range in.Image.Flat() {
				in.Image.Flat()[k] = float32(k % 16)
			}
			for asked.Load() < requests || !happened.Load() {
				if err := model.Run(t.Context(), in, out); err != nil {
					if failed.Add(1) <= 10 {
						t.Errorf("request %d of %s: %v", asked.Load(), []string{"REST", "gRPC"}[i%2], err)
					}
				}
				n, _ := answers.LoadOrStore(fmt.Sprint(out.Probabilities.Data), new(atomic.Int64))
				n.(*atomic.Int64).Add(1)
				asked.Add(1)
			}
		})
	}
	logged := func(p *process, n int) func() bool {
		return func() bool { return strings.Count(p.log(), `msg="model ready"`) >= n }
	}
	soon, often := time.Minute, 5*time.Millisecond
	loaded := [2]int{1, 1} // models that the processes opened
	restarted := 0
	events := reloads + len(servers)
	for e := range events {
		for asked.Load() < requests*int64(e)/int64(events) {
			time.Sleep(often)
		}
		if restarted < len(servers) && e == (restarted+1)*events/3 {
			p, i := servers[restarted], restarted
			other := servers[1-i]
			before := other.answered()
			require.Eventually(t, func() bool { return other.answered() > before }, soon, often, "a server without requests: the client has not found it again")
			p.stop(t)
			servers[i] = start(t, append(append([]string{}, flags...), "--http", addresses[i], "--grpc", p.grpc, dir)...)
			require.Eventually(t, func() bool { return servers[i].answered() > 10 }, soon, often, "a server that is back gets no requests")
			loaded[i], restarted = 1, restarted+1
			continue
		}
		replace((e - restarted + 1) % 2)
		for i, p := range servers {
			loaded[i]++
			require.Eventually(t, logged(p, loaded[i]), soon, often, "a reload: %s", p.log())
		}
	}
	happened.Store(true)
	all.Wait()
	for _, p := range servers {
		p.stop(t)
	}
	kinds := 0
	answers.Range(func(_, n any) bool {
		kinds++
		t.Logf("%d answers of a kind", n.(*atomic.Int64).Load())
		return true
	})
	t.Logf("%d requests across %d reloads and %d restarts: %d failed", asked.Load(), events-restarted, restarted, failed.Load())
	require.Zero(t, failed.Load())
	require.Equal(t, 2, kinds, "answers that differ")
	require.Equal(t, len(servers), restarted)
}
