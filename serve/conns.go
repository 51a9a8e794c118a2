package serve

import (
	"errors"
	"net"
	"sync"
	"time"
)

// defaultConnections is how many connections each listener has at the same time, unless an option says otherwise.
const defaultConnections = 1024

// limitedListener has at most so many connections at the same time. One more waits for a place, the others in the backlog of the
// operating system.
type limitedListener struct {
	net.Listener
	places chan struct{}
	full   func() // closes connections that nobody uses
	closed chan struct{}
	once   sync.Once
}

func limitConnections(l net.Listener, n int, full func()) *limitedListener {
	return &limitedListener{Listener: l, places: make(chan struct{}, n), full: full, closed: make(chan struct{})}
}

// Accept waits for a connection, then for a place. While one waits, connections that nobody uses are closed.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	const again = 50 * time.Millisecond
	for wait := (*time.Timer)(nil); ; wait.Reset(again) {
		select {
		case l.places <- struct{}{}:
			return &limitedConn{Conn: c, of: l}, nil
		default:
		}
		l.full()
		if wait == nil {
			wait = time.NewTimer(again)
			defer wait.Stop()
		}
		select {
		case l.places <- struct{}{}:
			return &limitedConn{Conn: c, of: l}, nil
		case <-wait.C:
		case <-l.closed:
			return nil, errors.Join(net.ErrClosed, c.Close())
		}
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
	of   *limitedListener
	once sync.Once
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.of.places })
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
