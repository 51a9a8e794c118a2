package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// servers are what a process can be, by name.
var servers = map[string]func(net.Listener) error{
	"bare-binary": serveHTTP(bareBinary),
	"bare-image":  serveHTTP(bareImage),
	"bare-json":   serveHTTP(bareJSON),
	"bare-grpc":   serveBareGRPC,
	"alone-rest":  serveHTTP(aloneREST),
	"alone-grpc":  serveAloneGRPC,
}

func serverNames() []string { return slices.Sorted(maps.Keys(servers)) }

// usage is what a process has used since it began.
type usage struct {
	Processor int64 // nanoseconds in user and system mode, as the kernel counts them
	Mallocs   uint64
	Bytes     uint64 // allocated
	Peak      int64  // resident at most, in bytes
}

func usageNow() (usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{r.Utime.Nano() + r.Stime.Nano(), m.Mallocs, m.TotalAlloc, r.Maxrss << 10}, nil
}

// beServer serves on an address that it prints in a line. For each line that it reads it prints what it has used; it
// ends with its input.
func beServer(name string) error {
	if what, ok := strings.CutPrefix(name, oncePrefix); ok {
		return beOnce(what)
	}
	if what, ok := strings.CutPrefix(name, slowPrefix); ok {
		return beSlow(what)
	}
	serve := servers[name]
	if sizes, ok := strings.CutPrefix(name, digitsPrefix); ok {
		serve = serveDigits(sizes)
	}
	if serve == nil {
		return fmt.Errorf("-server: there is no server %q; want one of %s, or %s1,4,16", name, strings.Join(serverNames(), ", "), digitsPrefix)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(l) }()
	fmt.Println(l.Addr())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		select {
		case err := <-ended:
			return fmt.Errorf("server %s ended: %v", name, err)
		default:
		}
		u, err := usageNow()
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(u); err != nil {
			return err
		}
	}
	return lines.Err()
}

// process is a server that this program started.
type process struct {
	addr string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

func start(name string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self, "-server", name)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("the address of server %s: %w", name, err)
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// used asks the process what it has used so far.
func (p *process) used() (u usage, err error) {
	if _, err = io.WriteString(p.in, "\n"); err != nil {
		return u, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return u, err
	}
	return u, json.Unmarshal(line, &u)
}

// stop ends the process and waits for it.
func (p *process) stop() {
	p.in.Close()
	p.cmd.Wait()
}
