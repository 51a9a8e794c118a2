package hostile

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// connection writes frames as a test wants, and counts what the server sends.
type connection struct {
	net.Conn
	*http2.Framer
	written sync.Mutex
	headers bytes.Buffer
	encoder *hpack.Encoder

	frames, resets, settings, pings atomic.Int64 // from the server
	goAway                          atomic.Uint32
	closed                          chan struct{} // by the server
}

// connect opens a connection with these settings. Unless silent it reads what the server sends.
func connect(t *testing.T, address string, silent bool, settings ...http2.Setting) *connection {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	c := &connection{Conn: conn, Framer: http2.NewFramer(conn, conn), closed: make(chan struct{})}
	c.encoder = hpack.NewEncoder(&c.headers)
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, c.WriteSettings(settings...))
	if !silent {
		go c.read()
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
			c.settings.Add(1)
			if !f.IsAck() {
				c.written.Lock()
				c.WriteSettingsAck()
				c.written.Unlock()
			}
		case *http2.PingFrame:
			c.pings.Add(1)
		}
	}
}

// block returns the header of a call to ModelInfer, with more fields.
func (c *connection) block(more ...hpack.HeaderField) []byte {
	c.headers.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "h"},
		{Name: ":path", Value: "/inference.GRPCInferenceService/ModelInfer"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		c.encoder.WriteField(f)
	}
	return bytes.Clone(c.headers.Bytes())
}

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
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+4 }, 20*time.Second, 10*time.Millisecond, "goroutines are left: %d before", before)
}

// heap returns how much memory is in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestFloods harms the server in ways that have names. A good client asks all the while: none of its requests may fail, and the server is
// as large afterwards as it was before.
func TestFloods(t *testing.T) {
	const much = 16 << 20
	for _, flood := range []struct {
		name string
		// harm returns whether the server closed the connection. must: it has to.
		harm func(t *testing.T, address string) bool
		must bool
	}{
		{"rapid reset", rapidReset, false},
		{"CONTINUATION without end", continuations, true},
		{"a header list that is too large", largeHeaders, false},
		{"PING", pings, true},
		{"SETTINGS", settingsFlood, false},
		{"SETTINGS whose answers nobody reads", unreadSettings, false},
		{"a window of 0", windowZero, false},
		{"more streams than allowed", manyStreams, false},
		{"DATA for no stream", strayData, false},
		{"an empty DATA frame without end", emptyData, false},
		{"a frame above the largest size", largeFrame, true},
		{"no preface", noPreface, true},
	} {
		t.Run(flood.name, func(t *testing.T) {
			address := start(t)
			ask := client(t, address)
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
			closed := flood.harm(t, address)
			close(stop)
			wg.Wait()
			t.Logf("connection closed by the server: %v; heap grew by at most %.1f MiB", closed, float64(peak.Load())/(1<<20))
			if flood.must {
				require.True(t, closed, "the server closes the connection")
			}
			require.Less(t, peak.Load(), int64(much), "the heap while it lasted")
			ask(t)
			settled(t, before)
		})
	}
}

// repeat calls f until it fails or n times, and returns whether the server closed the connection meanwhile.
func (c *connection) repeat(n int, f func(i int) error) bool {
	for i := range n {
		c.written.Lock()
		err := f(i)
		c.written.Unlock()
		if err != nil {
			return true
		}
	}
	return c.closedWithin(time.Second)
}

func rapidReset(t *testing.T, address string) bool {
	c := connect(t, address, false)
	defer c.Close()
	return c.repeat(50_000, func(i int) error {
		id := uint32(2*i + 1)
		if err := c.start(id, false); err != nil {
			return err
		}
		return c.WriteRSTStream(id, http2.ErrCodeCancel)
	})
}

func continuations(t *testing.T, address string) bool {
	c := connect(t, address, false)
	defer c.Close()
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.block()}); err != nil {
		return true
	}
	return c.repeat(50_000, func(i int) error {
		return c.WriteContinuation(1, false, c.block(hpack.HeaderField{Name: "x", Value: "0123456789abcdef0123456789abcdef"}))
	})
}

func largeHeaders(t *testing.T, address string) bool {
	c := connect(t, address, false)
	defer c.Close()
	value := string(bytes.Repeat([]byte("a"), 12<<10))
	closed := c.repeat(200, func(i int) error {
		return c.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndHeaders: true, EndStream: true,
			BlockFragment: c.block(hpack.HeaderField{Name: "x", Value: value, Sensitive: true}, hpack.HeaderField{Name: "y", Value: "b", Sensitive: true})})
	})
	return closed
}

func pings(t *testing.T, address string) bool {
	c := connect(t, address, false)
	defer c.Close()
	return c.repeat(100_000, func(i int) error { return c.WritePing(false, [8]byte{byte(i)}) })
}

func settingsFlood(t *testing.T, address string) bool {
	c := connect(t, address, false)
	defer c.Close()
	return c.repeat(100_000, func(i int) error {
		return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)})
	})
}

func unreadSettings(t *testing.T, address string) bool {
	c := connect(t, address, true)
	defer c.Close()
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(3*time.Second)))
	for i := range 2_000_000 {
		if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 1000)}); err != nil {
			return !errors.Is(err, errTimeout(err)) // it stops reading, or closes
		}
	}
	t.Fatal("the server reads two million frames whose answers nobody reads")
	return false
}

// errTimeout returns err itself if it is the end of a deadline.
func errTimeout(err error) error {
	var n net.Error
	if errors.As(err, &n) && n.Timeout() {
		return err
	}
	return io.EOF
}

func windowZero(t *testing.T, address string) bool {
	c := connect(t, address, false, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	defer c.Close()
	message := message()
	return c.repeat(10_000, func(i int) error {
		id := uint32(2*i + 1)
		if err := c.start(id, false); err != nil {
			return err
		}
		return c.WriteData(id, true, message)
	})
}

func manyStreams(t *testing.T, address string) bool {
	c := connect(t, address, false)
	defer c.Close()
	closed := c.repeat(10_000, func(i int) error { return c.start(uint32(2*i+1), false) })
	if !closed {
		require.Greater(t, c.resets.Load(), int64(10_000-1000), "streams above the limit are refused")
	}
	return closed
}

func strayData(t *testing.T, address string) bool {
	c := connect(t, address, false)
	defer c.Close()
	return c.repeat(20_000, func(i int) error { return c.WriteData(uint32(2*i+1), false, make([]byte, 1024)) })
}

func emptyData(t *testing.T, address string) bool {
	c := connect(t, address, false)
	defer c.Close()
	if err := c.start(1, false); err != nil {
		return true
	}
	return c.repeat(100_000, func(int) error { return c.WriteData(1, false, nil) })
}

func largeFrame(t *testing.T, address string) bool {
	c := connect(t, address, false)
	defer c.Close()
	if err := c.start(1, false); err != nil {
		return true
	}
	return c.repeat(10, func(int) error { return c.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<24-1)) })
}

func noPreface(t *testing.T, address string) bool {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = io.Copy(io.Discard, conn)
	return err == nil || errTimeout(err) == io.EOF
}
