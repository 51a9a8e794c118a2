package hostile

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/popefgen/popefgen/serve"
)

// connection writes frames as a test wants, and counts what the server sends.
type connection struct {
	net.Conn
	*http2.Framer
	to      target
	written sync.Mutex
	headers bytes.Buffer
	encoder *hpack.Encoder

	frames, resets, settings, pings atomic.Int64 // from the server
	streams                         atomic.Int64 // that it allows
	goAway                          atomic.Uint32
	settled                         chan struct{} // the server's first SETTINGS are acknowledged
	closed                          chan struct{} // by the server
}

// connect opens a connection with these settings. Unless silent it reads what the server sends, and has acknowledged the server's settings:
// an acknowledgement between two frames of one header would be a fault of its own.
func connect(t *testing.T, to target, silent bool, settings ...http2.Setting) *connection {
	conn, err := net.Dial("tcp", to.address)
	require.NoError(t, err)
	if to.tls != nil {
		conn = tls.Client(conn, to.tls)
	}
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	c := &connection{Conn: conn, Framer: http2.NewFramer(conn, conn), to: to, settled: make(chan struct{}), closed: make(chan struct{})}
	c.encoder = hpack.NewEncoder(&c.headers)
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, c.WriteSettings(settings...))
	if silent {
		return c
	}
	go c.read()
	select {
	case <-c.settled:
	case <-c.closed: // too soon, as what follows will tell
	}
	return c
}

func (c *connection) read() {
	defer close(c.closed)
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return
		}
		c.frames.Add(1)
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			c.resets.Add(1)
		case *http2.GoAwayFrame:
			c.goAway.Store(uint32(f.ErrCode) + 1)
		case *http2.SettingsFrame:
			first := c.settings.Add(1) == 1
			if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				c.streams.Store(int64(n))
			}
			if !f.IsAck() {
				c.written.Lock()
				c.WriteSettingsAck()
				c.written.Unlock()
				if first {
					close(c.settled)
				}
			}
		case *http2.PingFrame:
			c.pings.Add(1)
		}
	}
}

// block returns the header of a request to the model, with more fields.
func (c *connection) block(more ...hpack.HeaderField) []byte {
	c.headers.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: c.to.scheme}, {Name: ":authority", Value: "h"},
		{Name: ":path", Value: c.to.path}, {Name: "content-type", Value: c.to.content}, {Name: "te", Value: "trailers"},
	}, more...) {
		c.encoder.WriteField(f)
	}
	return bytes.Clone(c.headers.Bytes())
}

// start begins a request. Whoever calls it has the lock, as for every frame.
func (c *connection) start(id uint32, end bool) error {
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block(), EndHeaders: true, EndStream: end})
}

// closedWithin reports whether the server closes the connection in that time.
func (c *connection) closedWithin(d time.Duration) bool {
	select {
	case <-c.closed:
		return true
	case <-time.After(d):
		return false
	}
}

// settled waits until there are no more goroutines than before, but for some.
func settled(t *testing.T, before int) {
	t.Helper()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+4 }, time.Minute, 10*time.Millisecond, "goroutines are left: %d before", before)
}

// heap returns how much memory is in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestFloods harms the server in ways that have names, over gRPC and over REST with TLS. A good client asks all the while: none of its requests may
// fail, and the server is as large afterwards as it was before. How large it is meanwhile depends on how far its writers are behind its readers,
// for grpc-go keeps an entry of each stream until its writer has seen it: 50,000 streams of a few hundred bytes each are the most there can be.
func TestFloods(t *testing.T) {
	t.Run("gRPC", func(t *testing.T) { floods(t, overGRPC, "gRPC") })
	t.Run("REST", func(t *testing.T) { floods(t, overREST, "REST") })
}

func floods(t *testing.T, start func(t *testing.T, opts ...serve.Option) (target, func(t *testing.T)), protocol string) {
	const (
		most = 64 << 20 // while the flood lasts
		kept = 4 << 20  // when it is over
	)
	for _, flood := range []struct {
		name string
		// harm returns whether the server closed the connection.
		harm func(t *testing.T, to target) bool
		must string // over which protocols it has to
	}{
		{"rapid reset", rapidReset, ""}, // net/http closes the connection if its handlers are far behind
		{"CONTINUATION without end", continuations, "gRPC REST"},
		{"a header list that is too large", largeHeaders, ""},
		{"PING", pings, "gRPC"},
		{"SETTINGS", settingsFlood, ""},
		{"SETTINGS whose answers nobody reads", unreadSettings, ""},
		{"a window of 0", windowZero, ""},
		{"more streams than allowed", manyStreams, ""},
		{"DATA for no stream", strayData, ""},
		{"an empty DATA frame without end", emptyData, ""},
		{"a frame above the largest size", largeFrame, "gRPC REST"},
		{"no preface", noPreface, "gRPC REST"},
	} {
		t.Run(flood.name, func(t *testing.T) {
			to, ask := start(t)
			to.closes = strings.Contains(flood.must, protocol)
			ask(t)
			before, memory := runtime.NumGoroutine(), heap()
			stop := make(chan struct{})
			var peak atomic.Int64
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						ask(t)
					}
				}
			})
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						peak.Store(max(peak.Load(), heap()-memory))
					}
				}
			})
			closed := func() bool {
				defer wg.Wait() // also where the flood fails the test: nobody asks after its end
				defer close(stop)
				return flood.harm(t, to)
			}()
			t.Logf("connection closed by the server: %v; heap grew by at most %.1f MiB", closed, float64(peak.Load())/(1<<20))
			if to.closes {
				require.True(t, closed, "the server closes the connection")
			}
			require.Less(t, peak.Load(), int64(most), "the heap while it lasted")
			ask(t)
			settled(t, before)
			require.Eventually(t, func() bool { return heap()-memory < kept }, time.Minute, 10*time.Millisecond, "memory is left of it")
		})
	}
}

// write calls f, which writes frames, with the lock.
func (c *connection) write(f func() error) error {
	c.written.Lock()
	defer c.written.Unlock()
	return f()
}

// repeat calls f until it fails or n times, and returns whether the server closed the connection meanwhile.
func (c *connection) repeat(n int, f func(i int) error) bool {
	for i := range n {
		if err := c.write(func() error { return f(i) }); err != nil {
			return true
		}
	}
	if c.to.closes {
		return c.closedWithin(time.Minute) // it may have much to read until then
	}
	return c.closedWithin(time.Second)
}

func rapidReset(t *testing.T, to target) bool {
	c := connect(t, to, false)
	defer c.Close()
	return c.repeat(50_000, func(i int) error {
		id := uint32(2*i + 1)
		if err := c.start(id, false); err != nil {
			return err
		}
		return c.WriteRSTStream(id, http2.ErrCodeCancel)
	})
}

func continuations(t *testing.T, to target) bool {
	c := connect(t, to, false)
	defer c.Close()
	return c.repeat(50_000, func(i int) error {
		if i == 0 {
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block()})
		}
		return c.WriteContinuation(1, false, c.block(hpack.HeaderField{Name: "x", Value: "0123456789abcdef0123456789abcdef"}))
	})
}

func largeHeaders(t *testing.T, to target) bool {
	c := connect(t, to, false)
	defer c.Close()
	value := string(bytes.Repeat([]byte("a"), 12<<10))
	closed := c.repeat(200, func(i int) error {
		return c.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndHeaders: true, EndStream: true,
			BlockFragment: c.block(hpack.HeaderField{Name: "x", Value: value, Sensitive: true}, hpack.HeaderField{Name: "y", Value: "b", Sensitive: true})})
	})
	return closed
}

func pings(t *testing.T, to target) bool {
	c := connect(t, to, false)
	defer c.Close()
	return c.repeat(100_000, func(i int) error { return c.WritePing(false, [8]byte{byte(i)}) })
}

func settingsFlood(t *testing.T, to target) bool {
	c := connect(t, to, false)
	defer c.Close()
	return c.repeat(100_000, func(i int) error {
		return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)})
	})
}

func unreadSettings(t *testing.T, to target) bool {
	c := connect(t, to, true)
	defer c.Close()
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(3*time.Second)))
	for i := range 2_000_000 {
		if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 1000)}); err != nil {
			return !errors.Is(err, errTimeout(err)) // it stops reading, or closes
		}
	}
	return false // it answers many at once, as net/http does: what it keeps of them is what counts
}

// errTimeout returns err itself if it is the end of a deadline.
func errTimeout(err error) error {
	var n net.Error
	if errors.As(err, &n) && n.Timeout() {
		return err
	}
	return io.EOF
}

func windowZero(t *testing.T, to target) bool {
	c := connect(t, to, false, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	defer c.Close()
	return c.repeat(10_000, func(i int) error {
		id := uint32(2*i + 1)
		if err := c.start(id, false); err != nil {
			return err
		}
		return c.WriteData(id, true, c.to.body)
	})
}

func manyStreams(t *testing.T, to target) bool {
	c := connect(t, to, false)
	defer c.Close()
	closed := c.repeat(10_000, func(i int) error { return c.start(uint32(2*i+1), false) })
	if !closed {
		require.Eventually(t, func() bool { return c.resets.Load() > 10_000-1000 }, time.Minute, 10*time.Millisecond, "streams above the limit are refused")
	}
	require.EqualValues(t, 128, c.streams.Load(), "what the server says that it allows")
	return closed
}

// TestStreams: REST allows as many requests at a time on a connection as the option says.
func TestStreams(t *testing.T) {
	_, err := serve.New(serve.WithStreams(0))
	require.ErrorContains(t, err, "0 requests at a time on a connection")
	to, _ := overREST(t, serve.WithStreams(3))
	c := connect(t, to, false)
	for i := range uint32(4) {
		require.NoError(t, c.write(func() error { return c.start(2*i+1, false) }))
	}
	require.Eventually(t, func() bool { return c.resets.Load() == 1 }, time.Minute, time.Millisecond, "the fourth is refused")
	require.EqualValues(t, 3, c.streams.Load())
	require.False(t, c.closedWithin(100*time.Millisecond))
	require.EqualValues(t, 1, c.resets.Load(), "the others are not")
}

func strayData(t *testing.T, to target) bool {
	c := connect(t, to, false)
	defer c.Close()
	return c.repeat(20_000, func(i int) error { return c.WriteData(uint32(2*i+1), false, make([]byte, 1024)) })
}

func emptyData(t *testing.T, to target) bool {
	c := connect(t, to, false)
	defer c.Close()
	if err := c.write(func() error { return c.start(1, false) }); err != nil {
		return true
	}
	return c.repeat(100_000, func(int) error { return c.WriteData(1, false, nil) })
}

func largeFrame(t *testing.T, to target) bool {
	c := connect(t, to, false)
	defer c.Close()
	if err := c.write(func() error { return c.start(1, false) }); err != nil {
		return true
	}
	if _, err := c.Conn.Write([]byte{0xff, 0xff, 0xff, byte(http2.FrameData), 0, 0, 0, 0, 1}); err != nil { // 16 MiB, which this process need not have at once
		return true
	}
	piece := make([]byte, 64<<10)
	return c.repeat(10<<8, func(int) error { _, err := c.Conn.Write(piece); return err })
}

func noPreface(t *testing.T, to target) bool {
	conn, err := net.Dial("tcp", to.address)
	require.NoError(t, err)
	if to.tls != nil {
		conn = tls.Client(conn, to.tls)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = io.Copy(io.Discard, conn)
	return err == nil || errTimeout(err) == io.EOF
}
