package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/serve"
)

const (
	slowClients = 1000
	slowPrefix  = "slow="  // of processes that are slow clients: how they are slow, and the server's address
	longFloats  = 64 << 10 // elements of what slow clients send and read: 256 KiB
	longPath    = "/v2/models/long/infer"
)

func init() {
	servers["slow"] = func(l net.Listener) error {
		long := newModel([]int64{1, longFloats}, []int64{1, longFloats}, nil)
		long.spec.Name = "long"
		s, err := serve.New(serve.WithModel(echoModel), serve.WithModel(long), serve.WithHTTPListener(l))
		if err != nil {
			return err
		}
		return s.Run(context.Background())
	}
}

// slowWays are ways to be slow on a connection, each until the server closes it.
var slowWays = map[string]func(c net.Conn) error{
	"header": func(c net.Conn) error {
		return drip(c, "POST "+longPath+" HTTP/1.1\r\nHost: h\r\n", "X: a\r\n")
	},
	"body": func(c net.Conn) error {
		return drip(c, longHeader, "a")
	},
	"read": func(c net.Conn) error {
		if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			return err
		}
		if _, err := io.WriteString(c, longHeader); err != nil {
			return err
		}
		if _, err := c.Write(make([]byte, 4*longFloats)); err != nil {
			return err
		}
		for some := make([]byte, 32); ; time.Sleep(time.Second) {
			if _, err := c.Read(some); err != nil {
				return err
			}
		}
	},
}

var longHeader = fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\n%s: 0\r\nContent-Length: %d\r\n\r\n", longPath, headerSize, 4*longFloats)

// drip writes a piece each second.
func drip(c net.Conn, first, piece string) error {
	if _, err := io.WriteString(c, first); err != nil {
		return err
	}
	closed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, c)
		closed <- err
	}()
	for {
		select {
		case err := <-closed:
			return err
		case <-time.After(time.Second):
			if _, err := io.WriteString(c, piece); err != nil {
				return err
			}
		}
	}
}

// beSlow is a thousand slow clients, until the end of its input. One that is cut off comes again. It prints a line once they are connected.
func beSlow(what string) error {
	way, addr, _ := strings.Cut(what, " ")
	slow := slowWays[way]
	if slow == nil {
		return fmt.Errorf("no clients are slow in the way %q", way)
	}
	var first sync.WaitGroup
	for i := range slowClients {
		first.Add(1)
		connected := sync.OnceFunc(first.Done)
		go func() {
			time.Sleep(time.Duration(i) * time.Millisecond) // not all at the same moment, also later
			for {
				c, err := net.Dial("tcp", addr)
				connected()
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				slow(c)
				c.Close()
			}
		}()
	}
	first.Wait()
	fmt.Println("connected")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// measureSlow has a good client ask a server that a thousand slow ones are connected to, and in turn another one that is alone. Memory is that of
// the first.
func measureSlow(o *options) (string, error) {
	const (
		most = 64 << 20
		goal = 1.5
	)
	if err := raiseFiles(); err != nil {
		return "", err
	}
	t := report.NewTable("1,000 clients are slow with the", "resident at most, MiB", "without them", "goal", "", "good client, p99, µs", "without them", "ratio", "goal", "", "p50 ratio")
	for _, way := range []string{"header", "body", "read"} {
		peak, alone, with, without, err := measureSlowWay(o, way)
		if err != nil {
			return "", fmt.Errorf("slow %s: %w", way, err)
		}
		p99 := func(b *block) float64 { return b.p99 }
		p50 := func(b *block) float64 { return b.p50 }
		part := ratio(figures(with, p99), figures(without, p99))
		t.Row(way, number(float64(peak)/(1<<20)), number(float64(alone)/(1<<20)), "≤ 64", verdict(peak <= most), number(median(figures(with, p99))), number(median(figures(without, p99))),
			fmt.Sprintf("%.2f", part), fmt.Sprintf("≤ %g", goal), verdict(part <= goal), fmt.Sprintf("%.2f", ratio(figures(with, p50), figures(without, p50))))
	}
	return t.String(), nil
}

// block is what some hundred requests took, in microseconds.
type block struct{ p50, p99 float64 }

func measureSlowWay(o *options, way string) (peak, alone int64, with, without []block, err error) {
	const (
		each = 500
		rest = time.Millisecond // between two requests
	)
	var servers [2]*contestant
	for i := range servers {
		if servers[i], err = enter("slow", binaryRequest("[1,256]", small, raw(floats(small))), 1); err != nil {
			return 0, 0, nil, nil, err
		}
		defer servers[i].leave()
	}
	attack, err := start(slowPrefix + way + " " + servers[0].addr)
	if err != nil {
		return 0, 0, nil, nil, err
	}
	defer attack.stop()
	var all [2][]block
	for range o.rounds {
		var took [2][]float64
		for range each {
			for i, s := range servers {
				time.Sleep(rest)
				t, err := s.load.make(1)
				if err != nil {
					return 0, 0, nil, nil, err
				}
				took[i] = append(took[i], float64(t)/1e3)
			}
		}
		for i := range all {
			slices.Sort(took[i])
			all[i] = append(all[i], block{took[i][each/2], took[i][each*99/100]})
		}
	}
	if peak, err = resident(servers[0].cmd.Process.Pid, "VmHWM"); err != nil {
		return 0, 0, nil, nil, err
	}
	alone, err = resident(servers[1].cmd.Process.Pid, "VmHWM")
	return peak, alone, all[0], all[1], err
}

// raiseFiles has this process and those that it starts open as many files as they may.
func raiseFiles() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	if l.Cur < 2*slowClients {
		return fmt.Errorf("at most %d files may be open here, %d are needed", l.Cur, 2*slowClients)
	}
	return nil
}
