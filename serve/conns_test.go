package serve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// start runs a server of the model simple until the test ends, and returns its address.
func start(t *testing.T, opts ...serve.Option) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	srv, err := serve.New(append(opts, serve.WithModel(testmodel.Simple()), serve.WithHTTPListener(l))...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return l.Addr().String()
}

// get asks over a connection of its own, which stays open.
func get(t *testing.T, addr, path string, wait time.Duration) (net.Conn, error) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(wait)))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return c, err
	}
	require.Equal(t, 200, resp.StatusCode)
	return c, resp.Body.Close()
}

// TestConnections: over the limit clients wait, connections that nobody uses make room, and so do those that close.
func TestConnections(t *testing.T) {
	addr := start(t, serve.WithConnections(2))
	var slow []net.Conn
	for range 2 {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "GET /v2/health/live HTTP/1.1\r\n") // and no more: it is not idle
		require.NoError(t, err)
		slow = append(slow, c)
		time.Sleep(20 * time.Millisecond)
	}
	_, err := get(t, addr, "/v2/health/live", 100*time.Millisecond)
	var timeout net.Error
	require.True(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
	require.NoError(t, slow[0].Close())
	for range 8 { // each stays open, idle, and makes room for the next
		_, err := get(t, addr, "/v2/health/live", time.Minute)
		require.NoError(t, err)
	}
	_, err = serve.New(serve.WithConnections(0))
	require.ErrorContains(t, err, "0 connections: want 1 at least")
}

// TestConnectionsInUse: who asks again and again over one connection keeps it while others wait for a place; one that nobody has used for longest makes room.
func TestConnectionsInUse(t *testing.T) {
	for tries := 0; !connectionsInUse(t); tries++ {
		require.Less(t, tries, 20, "this machine leaves no time to ask twice a second")
	}
}

// connectionsInUse returns false if the machine was so busy that a connection may have been taken for one that nobody uses.
func connectionsInUse(t *testing.T) bool {
	addr := start(t, serve.WithConnections(2))
	idle, err := get(t, addr, "/v2/health/live", time.Minute)
	require.NoError(t, err)
	busy, err := get(t, addr, "/v2/health/live", time.Minute)
	require.NoError(t, err)
	last := time.Now()     // when busy was used
	var waiting []net.Conn // which say nothing once they have a place
	for range 3 {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		waiting = append(waiting, c)
	}
	answers := bufio.NewReader(busy)
	for begin := time.Now(); time.Since(begin) < 2*time.Second; time.Sleep(2 * time.Millisecond) {
		_, err := io.WriteString(busy, "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
		var resp *http.Response
		if err == nil {
			require.NoError(t, busy.SetReadDeadline(time.Now().Add(time.Minute)))
			resp, err = http.ReadResponse(answers, nil)
		}
		const before = time.Second / 2 // that who uses a connection keeps it, is said of a second
		if time.Since(last) > before {
			return false
		}
		require.NoError(t, err, "after %s", time.Since(begin))
		require.NoError(t, resp.Body.Close())
		last = time.Now()
	}
	require.NoError(t, idle.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = idle.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the connection that nobody used")
	_, err = io.WriteString(waiting[0], "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, waiting[0].SetReadDeadline(time.Now().Add(time.Minute)))
	resp, err := http.ReadResponse(bufio.NewReader(waiting[0]), nil)
	require.NoError(t, err, "who got its place")
	require.NoError(t, resp.Body.Close())
	return true
}

// TestHeaderLimits: a header of 16 KiB is the most (4 KiB more where a connection had a request before), and it has to be there after 5 seconds.
func TestHeaderLimits(t *testing.T) {
	addr := start(t)
	for _, test := range []struct{ bytes, status int }{{15 << 10, 200}, {17 << 10, 431}} {
		req, err := http.NewRequest("GET", "http://"+addr+"/v2/health/live", nil)
		require.NoError(t, err)
		req.Close = true
		req.Header.Set("X", strings.Repeat("x", test.bytes))
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, test.status, resp.StatusCode)
	}
	if testing.Short() {
		return
	}
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	begun := time.Now()
	_, err = io.WriteString(c, "GET /v2/health/live HTTP/1.1\r\nX: ")
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(begun.Add(time.Minute)))
	_, err = io.Copy(io.Discard, c)
	require.NoError(t, err, "the server closes it")
	require.InDelta(t, 15, time.Since(begun).Seconds(), 10.5, "after 5 seconds; a machine that is busy may be late")
}

// TestWarmUp: a model that fails as it is warmed up ends the server, and one that takes long delays only its being ready.
func TestWarmUp(t *testing.T) {
	m := testmodel.Simple()
	m.Before = func(context.Context) error { return errors.New("no memory on the device") }
	srv, err := serve.New(serve.WithModel(m), serve.WithHTTP("localhost:0"))
	require.NoError(t, err)
	require.ErrorContains(t, srv.Run(t.Context()), "warm up model 'simple', version 1: no memory on the device")
	require.True(t, m.Closed.Load())

	_, err = serve.New(serve.WithModel(testmodel.Simple()), serve.WithModel(testmodel.Simple()))
	require.ErrorContains(t, err, "two models with the name 'simple'")
	_, err = serve.New(serve.WithLimits("simple", serve.Limits{Computing: -1}))
	require.ErrorContains(t, err, "want 0 (the default) or more")

	warm := make(chan struct{})
	m = testmodel.Simple()
	m.Before = func(context.Context) error { <-warm; return nil }
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	srv, err = serve.New(serve.WithModel(m), serve.WithLimits("", serve.Limits{Computing: 1}), serve.WithHTTPListener(l))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	_, err = get(t, l.Addr().String(), "/v2/health/live", 10*time.Second)
	require.NoError(t, err)
	require.Error(t, srv.Core().Ready())
	close(warm)
	require.Eventually(t, func() bool { return srv.Core().Ready() == nil }, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}
