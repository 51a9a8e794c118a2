package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// driver makes n requests to a server over some connections, each the next one when it has its answer, and returns how many
// a second were answered. An answer that is no success is an error.
type driver func(addr string, q *request, n, clients int) (float64, error)

// clients is how many connections make requests of a pair.
const clients = 16

var drivers = map[string]driver{"h2load": h2load, "go": goClients, "wrk": wrk, "hey": hey}

var (
	h2loadDone = regexp.MustCompile(`requests: (\d+) total, .* (\d+) succeeded, `)
	h2loadRate = regexp.MustCompile(`, ([0-9.]+) req/s,`)
)

// h2load is a program in C: one thread of it makes more requests than two cores answer.
func h2load(addr string, q *request, n, clients int) (float64, error) {
	file, err := os.CreateTemp("", "popefgen-serve-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	args := []string{"-t1", "-c" + strconv.Itoa(clients), "-m1", "-n" + strconv.Itoa(n), "-d", file.Name()}
	body := q.body
	if q.grpc {
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
		args = append(args, "-H", "content-type: application/grpc", "-H", "te: trailers")
	} else {
		args = append(args, "--h1")
		for k, v := range q.header {
			args = append(args, "-H", k+": "+v)
		}
	}
	if _, err := file.Write(body); err != nil {
		return 0, err
	}
	out, err := exec.Command("h2load", append(args, "http://"+addr+q.path)...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("h2load: %w\n%s", err, out)
	}
	done, rate := h2loadDone.FindSubmatch(out), h2loadRate.FindSubmatch(out)
	if done == nil || rate == nil || !bytes.Equal(done[1], done[2]) {
		return 0, fmt.Errorf("not all requests of h2load succeeded:\n%s", out)
	}
	return strconv.ParseFloat(string(rate[1]), 64)
}

// goClients are goroutines of this program.
func goClients(addr string, q *request, n, clients int) (float64, error) {
	begin := time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			ask, closeAll, err := client(addr, q)
			if err != nil {
				errs[i] = err
				return
			}
			defer closeAll()
			for left.Add(-1) >= 0 {
				if _, err := ask(); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(begin).Seconds(), errors.Join(errs...)
}

// check makes one request and checks its answer.
func check(addr string, q *request) error {
	ask, closeAll, err := client(addr, q)
	if err != nil {
		return err
	}
	defer closeAll()
	answer, err := ask()
	if err != nil {
		return err
	}
	return q.correct(answer)
}

// client returns what makes a request on a connection of its own.
func client(addr string, q *request) (ask func() ([]byte, error), closeAll func(), err error) {
	if q.grpc {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})))
		if err != nil {
			return nil, nil, err
		}
		return func() (answer []byte, err error) {
			err = conn.Invoke(context.Background(), q.path, q.body, &answer)
			return answer, err
		}, func() { conn.Close() }, nil
	}
	c := &http.Client{Transport: &http.Transport{}}
	return func() ([]byte, error) {
		r, err := http.NewRequest(http.MethodPost, "http://"+addr+q.path, bytes.NewReader(q.body))
		if err != nil {
			return nil, err
		}
		for k, v := range q.header {
			r.Header.Set(k, v)
		}
		w, err := c.Do(r)
		if err != nil {
			return nil, err
		}
		defer w.Body.Close()
		answer, err := io.ReadAll(w.Body)
		if err == nil && w.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s: %.300s", w.Status, answer)
		}
		return answer, err
	}, c.CloseIdleConnections, nil
}

// bytesCodec sends and receives messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                       { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
