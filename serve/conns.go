package serve

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// defaultConnections is how many connections each listener has at the same time, unless an option says otherwise.
const defaultConnections = 1024

// settled is how long nobody has used a connection that makes room for another: the client of one that just had its answer may be about to send the next request, which
// would be lost.
const settled = time.Second

// limitedListener has at most so many connections at the same time. One more waits for a place, the others in the backlog of the
// operating system.
type limitedListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open map[*limitedConn]struct{}
}

func limitConnections(l net.Listener, n int) *limitedListener {
	return &limitedListener{Listener: l, places: make(chan struct{}, n), closed: make(chan struct{}), open: map[*limitedConn]struct{}{}}
}

// Accept waits for a connection, then for a place. While one waits, the connection that nobody has used for longest is closed.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	const again = 50 * time.Millisecond
	for wait := (*time.Timer)(nil); ; wait.Reset(again) {
		select {
		case l.places <- struct{}{}:
			return l.placed(c), nil
		default:
		}
		l.makeRoom()
		if wait == nil {
			wait = time.NewTimer(again)
			defer wait.Stop()
		}
		select {
		case l.places <- struct{}{}:
			return l.placed(c), nil
		case <-wait.C:
		case <-l.closed:
			return nil, errors.Join(net.ErrClosed, c.Close())
		}
	}
}

func (l *limitedListener) placed(c net.Conn) net.Conn {
	x := &limitedConn{Conn: c, of: l}
	x.whole = x
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[x] = struct{}{}
	return x
}

// makeRoom closes the connection that nobody has used for longest, if there is one that is settled.
func (l *limitedListener) makeRoom() {
	l.mu.Lock()
	longest, before := (*limitedConn)(nil), time.Now().Add(-settled).UnixNano()
	for c := range l.open {
		if since := c.idle.Load(); since != 0 && since <= before {
			longest, before = c, since
		}
	}
	var whole net.Conn
	if longest != nil {
		whole = longest.whole
	}
	l.mu.Unlock()
	if whole != nil {
		whole.Close() // whose client has no request under way: it deals with that
	}
}

// note is the ConnState of a server of HTTP: it notes since when nobody uses a connection.
func (l *limitedListener) note(c net.Conn, state http.ConnState) {
	x, ok := c.(*limitedConn)
	if encrypted, is := c.(*tls.Conn); is {
		x, ok = encrypted.NetConn().(*limitedConn)
	}
	if !ok {
		return
	}
	switch state {
	case http.StateNew:
		l.mu.Lock()
		defer l.mu.Unlock()
		x.whole = c
	case http.StateIdle:
		x.idle.Store(time.Now().UnixNano())
	case http.StateActive:
		x.idle.Store(0)
	}
}

// Close closes the listener, not its connections.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn gives its place back when it is closed.
type limitedConn struct {
	net.Conn
	of    *limitedListener
	once  sync.Once
	idle  atomic.Int64 // since when nobody uses it, in nanoseconds since 1970; 0: it is used, or nobody knows
	whole net.Conn     // with its encryption, if it has one; guarded by of.mu
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
		<-c.of.places
	})
	return err
}

// CloseWrite ends what is sent and leaves the connection open. net/http does so after it refused a request that it did not
// read whole: a connection that is closed at once is reset, and its client never sees the answer's end.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
