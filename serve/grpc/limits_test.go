package grpcserve

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/popefgen/popefgen/serve"
	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// pipes is a listener whose connections are in memory, so that time can be that of the test.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// framed is a connection of a client that writes the frames that a test wants.
type framed struct {
	t *testing.T
	*http2.Framer
	block   bytes.Buffer
	encoder *hpack.Encoder
	message []byte // a request to the model simple, as gRPC frames it
	deaf    bool   // pings of the server get no answer
	writing sync.Mutex

	mu   sync.Mutex
	seen seen
}

// seen is what the server sent.
type seen struct {
	settings map[http2.SettingID]uint32
	statuses map[uint32]string // grpc-status by stream
	resets   map[uint32]http2.ErrCode
	goAway   string // the code and what is said besides, "" if there was none
	pings    int
	acks     int
	closed   bool
}

// saw returns what the server has sent by the time at which nothing moves any more.
func (f *framed) saw() seen {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen
	s.settings, s.statuses, s.resets = maps.Clone(s.settings), maps.Clone(s.statuses), maps.Clone(s.resets)
	return s
}

// connect opens a connection.
func (p *pipes) connect(t *testing.T, deaf bool) *framed {
	client, server := net.Pipe()
	p.conns <- server
	t.Cleanup(func() { client.Close() })
	q, _ := simple(1)
	message, err := proto.Marshal(q)
	require.NoError(t, err)
	f := &framed{t: t, Framer: http2.NewFramer(client, client), message: append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...),
		deaf: deaf, seen: seen{settings: map[http2.SettingID]uint32{}, statuses: map[uint32]string{}, resets: map[uint32]http2.ErrCode{}}}
	f.encoder = hpack.NewEncoder(&f.block)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	go f.read()
	f.writing.Lock()
	_, err = io.WriteString(client, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, f.WriteSettings())
	f.writing.Unlock()
	synctest.Wait()
	return f
}

// read keeps what the server sends. It never waits for a write, as the server may be waiting for this one to read.
func (f *framed) read() {
	for {
		frame, err := f.ReadFrame()
		f.note(frame, err)
		if err != nil {
			return
		}
		if ping, ok := frame.(*http2.PingFrame); ok && !ping.IsAck() && !f.deaf {
			data := ping.Data
			go func() {
				f.writing.Lock()
				defer f.writing.Unlock()
				f.WritePing(true, data)
			}()
		}
	}
}

func (f *framed) note(frame http2.Frame, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.seen
	s.closed = err != nil
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		frame.ForeachSetting(func(of http2.Setting) error {
			s.settings[of.ID] = of.Val
			return nil
		})
	case *http2.MetaHeadersFrame:
		for _, h := range frame.Fields {
			if h.Name == "grpc-status" {
				s.statuses[frame.StreamID] = h.Value
			}
		}
	case *http2.RSTStreamFrame:
		s.resets[frame.StreamID] = frame.ErrCode
	case *http2.GoAwayFrame:
		s.goAway = fmt.Sprint(frame.ErrCode, " ", string(frame.DebugData()))
	case *http2.PingFrame:
		if frame.IsAck() {
			s.acks++
		} else {
			s.pings++
		}
	}
}

// fields are those of a call to ModelInfer.
func fields(more ...hpack.HeaderField) []hpack.HeaderField {
	return append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "h"},
		{Name: ":path", Value: inferMethod}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...)
}

// send writes a request, and returns when the server has done with it what it does before time passes.
func (f *framed) send(stream uint32, more ...hpack.HeaderField) {
	f.writing.Lock()
	f.block.Reset()
	for _, h := range fields(more...) {
		require.NoError(f.t, f.encoder.WriteField(h))
	}
	require.NoError(f.t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block.Bytes(), EndHeaders: true}))
	require.NoError(f.t, f.WriteData(stream, true, f.message))
	f.writing.Unlock()
	synctest.Wait()
}

// ping writes a ping, and returns when the server has seen it. It fails if the server has closed the connection.
func (f *framed) ping() error {
	f.writing.Lock()
	err := f.WritePing(false, [8]byte{})
	f.writing.Unlock()
	synctest.Wait()
	return err
}

// blocking is the model simple, whose requests after the warm-up wait until release is closed.
func blocking() (m *testmodel.Model, release chan struct{}) {
	m, release = testmodel.Simple(), make(chan struct{})
	m.Before = func(ctx context.Context) error {
		if m.Runs.Load() == 1 {
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return m, release
}

// piped starts a server in the test's own time and returns where to connect.
func piped(t *testing.T, m oip.Model, opts ...Option) *pipes {
	srv, err := serve.New(serve.WithModel(m), serve.WithLimits("", serve.Limits{Timeout: 1000 * time.Hour}))
	require.NoError(t, err)
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	require.NoError(t, RegisterListener(srv, p, opts...))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	synctest.Wait()
	return p
}

// TestLimits wants every limit of a connection where docs/serving.md says that it is, and nothing cut off below it.
func TestLimits(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"streams":                 func(t *testing.T) { limitOfStreams(t, 128) },
		"streams by option":       func(t *testing.T) { limitOfStreams(t, 3, WithMaxStreams(3)) },
		"streams without workers": func(t *testing.T) { limitOfStreams(t, 128, WithWorkers(0)) },
		"metadata":                limitOfMetadata,
		"handshake":               limitOfHandshake,
		"pings":                   limitOfPings,
		"silence":                 limitOfSilence,
		"age":                     limitOfAge,
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// limitOfStreams: so many requests of a connection compute, one more is refused and does not count, another connection has its own.
func limitOfStreams(t *testing.T, most int, opts ...Option) {
	m, release := blocking()
	p := piped(t, m, opts...)
	c := p.connect(t, false)
	require.EqualValues(t, most, c.saw().settings[http2.SettingMaxConcurrentStreams])
	id := uint32(1)
	for range most {
		c.send(id)
		id += 2
	}
	require.EqualValues(t, 1+most, m.Runs.Load(), "the warm-up and the requests")
	require.Empty(t, c.saw().resets)
	c.send(id)
	require.Equal(t, map[uint32]http2.ErrCode{id: http2.ErrCodeRefusedStream}, c.saw().resets)
	require.EqualValues(t, 1+most, m.Runs.Load())
	other := p.connect(t, false)
	other.send(1)
	require.EqualValues(t, 2+most, m.Runs.Load())
	close(release)
	synctest.Wait()
	id += 2
	c.send(id)
	require.Len(t, c.saw().statuses, most+1)
	for _, s := range c.saw().statuses {
		require.Equal(t, "0", s)
	}
	require.Equal(t, map[uint32]string{1: "0"}, other.saw().statuses)
}

// limitOfMetadata: 16 KiB, as HTTP/2 counts them, pass; with one byte more the request is reset, and the next one is answered.
func limitOfMetadata(t *testing.T) {
	m := testmodel.Simple()
	c := piped(t, m).connect(t, false)
	require.EqualValues(t, 16<<10, c.saw().settings[http2.SettingMaxHeaderListSize])
	size := 0
	for _, f := range fields(hpack.HeaderField{Name: "x"}) {
		size += int(f.Size())
	}
	c.send(1, hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 16<<10-size)})
	require.Equal(t, map[uint32]string{1: "0"}, c.saw().statuses)
	require.Empty(t, c.saw().resets)
	c.send(3, hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 16<<10-size+1)})
	require.NotContains(t, c.saw().statuses, uint32(3))
	require.Contains(t, c.saw().resets, uint32(3))
	require.EqualValues(t, 2, m.Runs.Load(), "the warm-up and the first request")
	c.send(5)
	require.Equal(t, map[uint32]string{1: "0", 5: "0"}, c.saw().statuses)
}

// limitOfHandshake: a connection that says nothing ends after 5 seconds.
func limitOfHandshake(t *testing.T) {
	p := piped(t, testmodel.Simple())
	client, server := net.Pipe()
	defer client.Close()
	p.conns <- server
	began := time.Now()
	_, err := io.Copy(io.Discard, client)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, time.Since(began))
}

// limitOfPings: pings may come every 10 seconds, for as long as a client likes, also one without a request. Those that
// come faster end the connection.
func limitOfPings(t *testing.T) {
	p := piped(t, testmodel.Simple())
	c := p.connect(t, false)
	for range 100 {
		require.NoError(t, c.ping())
		time.Sleep(10 * time.Second)
	}
	require.Empty(t, c.saw().goAway)
	require.Equal(t, 100, c.saw().acks)
	c = p.connect(t, false)
	for range 20 {
		if c.ping() != nil {
			break
		}
		time.Sleep(9 * time.Second)
	}
	require.Equal(t, "ENHANCE_YOUR_CALM too_many_pings", c.saw().goAway)
	require.True(t, c.saw().closed)
	require.Less(t, c.saw().acks, 5)
}

// limitOfSilence: after 2 minutes without a word the server asks whether the client is there; one that is stays, for days,
// and one that is not is cut off 20 seconds later.
func limitOfSilence(t *testing.T) {
	p := piped(t, testmodel.Simple())
	c, deaf := p.connect(t, false), p.connect(t, true)
	time.Sleep(119 * time.Second)
	require.Zero(t, c.saw().pings)
	time.Sleep(2 * time.Second)
	require.Equal(t, 1, c.saw().pings)
	require.Equal(t, 1, deaf.saw().pings)
	time.Sleep(17 * time.Second)
	require.False(t, deaf.saw().closed)
	time.Sleep(4 * time.Second)
	require.True(t, deaf.saw().closed)
	time.Sleep(48 * time.Hour)
	require.False(t, c.saw().closed)
	require.Empty(t, c.saw().goAway)
	c.send(1)
	require.Equal(t, map[uint32]string{1: "0"}, c.saw().statuses)
}

// limitOfAge: a connection is to end at its age, give or take a tenth so that not all end at once; its requests have the grace
// to end, and what has not ended by then is cut off.
func limitOfAge(t *testing.T) {
	m, release := blocking()
	p := piped(t, m, WithMaxConnectionAge(10*time.Minute, 3*time.Minute))
	early := p.connect(t, false)
	early.send(1)
	time.Sleep(9*time.Minute - time.Second)
	require.Empty(t, early.saw().goAway)
	time.Sleep(2*time.Minute + 2*time.Second)
	require.Equal(t, "NO_ERROR max_age", early.saw().goAway)
	require.False(t, early.saw().closed, "its request is under way")
	close(release)
	require.Equal(t, map[uint32]string{1: "0"}, early.saw().statuses)
	time.Sleep(time.Minute)
	require.True(t, early.saw().closed)

	gone := make(chan error, 1)
	m.Before = func(ctx context.Context) error {
		<-ctx.Done()
		gone <- ctx.Err()
		return ctx.Err()
	}
	late := p.connect(t, false)
	late.send(1)
	time.Sleep(11*time.Minute + time.Second)
	require.Equal(t, "NO_ERROR max_age", late.saw().goAway)
	require.Empty(t, gone)
	time.Sleep(3*time.Minute + time.Second)
	require.Equal(t, context.Canceled, <-gone)
	require.True(t, late.saw().closed)
	require.Empty(t, late.saw().statuses)
}

// TestLimitOfMessage: a request may have as many bytes as the largest one to its model needs, and none more, also where a larger model
// lets the connection read more.
func TestLimitOfMessage(t *testing.T) {
	m := testmodel.Simple()
	most := int(wire.MaxProto(m.Spec()))
	large := testmodel.Identity(oip.FP32, 4, 100_000)
	for _, server := range []struct {
		name    string
		models  []oip.Model
		options []Option
		most    int
		text    string
	}{
		{"alone", []oip.Model{m}, nil, most, "larger than max"},
		{"beside a larger one", []oip.Model{m, large}, nil, most, fmt.Sprintf("request for model 'simple' has %d bytes, expected at most %d", most+1, most)},
		{"by option", []oip.Model{m}, []Option{WithMaxMessage(1000)}, 1000, "larger than max"},
		{"by option, for models that come later", []oip.Model{m}, []Option{WithMaxMessage(1 << 20)}, most, fmt.Sprintf("request for model 'simple' has %d bytes, expected at most %d", most+1, most)},
	} {
		t.Run(server.name, func(t *testing.T) {
			addr, _ := running(t, server.models, server.options...)
			c := plain(t, addr)
			q, want := simple(3)
			padded := func(size int) *pb.ModelInferRequest { // with a field that nobody knows
				q.ProtoReflect().SetUnknown(nil)
				const head = 5 // the key in two bytes, the length in three
				n := size - proto.Size(q) - head
				q.ProtoReflect().SetUnknown(protoreflect.RawFields(append([]byte{0xa2, 0x06, byte(n) | 0x80, byte(n>>7) | 0x80, byte(n >> 14)}, make([]byte, n)...)))
				require.Equal(t, size, proto.Size(q))
				return q
			}
			a, err := call[pb.ModelInferResponse](t, c, "ModelInfer", padded(server.most))
			require.NoError(t, err)
			require.True(t, proto.Equal(want, a))
			_, err = call[pb.ModelInferResponse](t, c, "ModelInfer", padded(server.most+1))
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			require.ErrorContains(t, err, server.text)
		})
	}
}

// TestOptions wants options that can not be told by what is wrong.
func TestOptions(t *testing.T) {
	for _, o := range []struct {
		option Option
		err    string
	}{
		{WithMaxStreams(0), "0 requests at a time"}, {WithMaxStreams(1<<20 + 1), "want 1 to 1048576"},
		{WithWorkers(-1), "-1 workers"}, {WithWorkers(1<<16 + 1), "want 0 to 65536"},
		{WithMaxMessage(0), "at most 0 bytes"}, {WithMaxMessage(1 << 31), "want 1 to 2147483647"},
		{WithMaxConnectionAge(0, time.Second), "0s with 1s of grace"}, {WithMaxConnectionAge(time.Second, 0), "1s with 0s of grace"},
	} {
		srv, err := serve.New()
		require.NoError(t, err)
		require.ErrorContains(t, Register(srv, "localhost:0", o.option), o.err)
	}
}
