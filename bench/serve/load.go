package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// load is clients that stay connected to a server, each with one request at a time.
type load struct {
	ask []func() error // of each client
	end []func() error
}

// connect has so many clients connect to a server and make a request each.
func connect(addr string, q *request, clients int) (*load, error) {
	l := &load{}
	for range clients {
		ask, end, err := asker(addr, q)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.ask, l.end = append(l.ask, ask), append(l.end, end)
	}
	return l, nil
}

func (l *load) close() (err error) {
	for _, end := range l.end {
		err = errors.Join(err, end())
	}
	return err
}

// make makes n requests, shared evenly among the clients, and returns how long that took.
func (l *load) make(n int) (time.Duration, error) {
	errs := make([]error, len(l.ask))
	var wg sync.WaitGroup
	begin := time.Now()
	for i, ask := range l.ask {
		wg.Go(func() {
			for k := i; k < n && errs[i] == nil; k += len(l.ask) {
				errs[i] = ask()
			}
		})
	}
	wg.Wait()
	return time.Since(begin), errors.Join(errs...)
}

// asker returns what makes a request on a connection of its own, which costs the client little: an answer is as long as the first one was.
func asker(addr string, q *request) (ask, end func() error, err error) {
	if q.grpc {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})))
		if err != nil {
			return nil, nil, err
		}
		var answer []byte
		return func() error { return conn.Invoke(context.Background(), q.path, q.body, &answer) }, conn.Close, nil
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	var request bytes.Buffer
	fmt.Fprintf(&request, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", q.path, addr, len(q.body))
	for k, v := range q.header {
		fmt.Fprintf(&request, "%s: %s\r\n", k, v)
	}
	request.WriteString("\r\n")
	request.Write(q.body)
	if _, err := conn.Write(request.Bytes()); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	counted := &counter{Reader: conn}
	answer, err := http.ReadResponse(bufio.NewReader(counted), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	buf := make([]byte, counted.n)
	success := []byte("HTTP/1.1 200 ")
	return func() error {
		if _, err := conn.Write(request.Bytes()); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			return err
		}
		if !bytes.HasPrefix(buf, success) {
			return fmt.Errorf("the answer is %.100q", buf)
		}
		return nil
	}, conn.Close, nil
}

// counter counts what is read.
type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}
