package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	slowClients = 1000
	maxResident = 64 << 20
	headerTime  = 5 * time.Second // in which a header has to be there
)

// resident returns how much memory a process has now, or had at most, in bytes.
func resident(t *testing.T, pid int, field string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatalf("no %s in /proc/%d/status", field, pid)
	return 0
}

// files raises the limit of open files as far as it goes, and skips the test where that is too little.
func files(t *testing.T) {
	var l syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l))
	l.Cur = l.Max
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l))
	if l.Cur < 2*slowClients {
		t.Skipf("at most %d files may be open here, %d are needed", l.Cur, 2*slowClients)
	}
}

// attack is a way to be slow on a connection; it returns once the server has cut it off, or the test is over.
type attack struct {
	name string
	on   func(c net.Conn, over <-chan struct{}) error
	// cut is when the server must have closed all connections; 0: they may stay, as ones without a request would.
	cut time.Duration
}

// drip writes a piece now and then until the connection is closed.
func drip(c net.Conn, first, piece string, every time.Duration, over <-chan struct{}) error {
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
		case <-over:
			return errOver
		case <-time.After(every):
			if _, err := io.WriteString(c, piece); err != nil {
				return err
			}
		}
	}
}

var errOver = fmt.Errorf("the test was over before the server closed the connection")

var attacks = []attack{
	{"header", func(c net.Conn, over <-chan struct{}) error {
		return drip(c, "POST "+infer+" HTTP/1.1\r\nHost: h\r\n", "X: a\r\n", time.Second, over)
	}, headerTime + 3*time.Second},
	{"body", func(c net.Conn, over <-chan struct{}) error {
		return drip(c, "POST "+large+" HTTP/1.1\r\nHost: h\r\nInference-Header-Content-Length: 0\r\nContent-Length: "+strconv.Itoa(largeBytes)+"\r\n\r\n", "a", time.Second, over)
	}, 10 * time.Second},
	{"body of a request that is refused", func(c net.Conn, over <-chan struct{}) error {
		return drip(c, "POST /v2/models/absent/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n", "a", time.Second, over)
	}, 10 * time.Second},
	{"read", func(c net.Conn, over <-chan struct{}) error {
		if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			return err
		}
		if _, err := io.WriteString(c, "POST "+large+" HTTP/1.1\r\nHost: h\r\nInference-Header-Content-Length: 0\r\nContent-Length: "+strconv.Itoa(largeBytes)+"\r\n\r\n"); err != nil {
			return err
		}
		zeros := make([]byte, 1<<16)
		for left := largeBytes; left > 0; left -= len(zeros) {
			if _, err := c.Write(zeros[:min(left, len(zeros))]); err != nil {
				return err
			}
		}
		one := make([]byte, 32)
		for {
			select {
			case <-over:
				return errOver
			case <-time.After(time.Second):
				if _, err := c.Read(one); err != nil {
					return err
				}
			}
		}
	}, 0},
}

// TestSlowClients has a thousand clients that write a header, write a body or read an answer slowly. The server stays small, cuts those off that
// write, and answers a good client.
func TestSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand slow clients take half a minute; they are left out of short tests")
	}
	files(t)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			address, pid := startProcess(t)
			before := latency(t, address, 300)
			over := make(chan struct{})
			var open atomic.Int64
			var all sync.WaitGroup
			begin := time.Now()
			for range slowClients {
				c, err := net.Dial("tcp", address)
				require.NoError(t, err)
				open.Add(1)
				all.Go(func() {
					defer open.Add(-1)
					defer c.Close()
					a.on(c, over)
				})
			}
			time.Sleep(time.Second)
			during := latency(t, address, 300)
			now := resident(t, pid, "VmRSS")
			if a.cut > 0 {
				for open.Load() > 0 && time.Since(begin) < a.cut+time.Minute {
					time.Sleep(50 * time.Millisecond)
				}
				require.Zero(t, open.Load(), "connections that are not cut off %s after they began", time.Since(begin))
				t.Logf("all are cut off %.1f s after the first began", time.Since(begin).Seconds())
			}
			close(over)
			all.Wait()
			peak := resident(t, pid, "VmHWM")
			t.Logf("p99 of a good client %s, with %d others %s: %.2f times; resident %.1f MiB, at most %.1f", before, slowClients, during, float64(during)/float64(before), float64(now)/(1<<20), float64(peak)/(1<<20))
			require.LessOrEqual(t, peak, int64(maxResident), "bytes resident at most")
		})
	}
}

// latency returns the 99th percentile of a good client's requests. Each must be answered.
func latency(t *testing.T, address string, n int) time.Duration {
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	times := make([]time.Duration, n)
	for i := range times {
		begin := time.Now()
		goodBy(t, client, address)
		times[i] = time.Since(begin)
	}
	slices.Sort(times)
	return times[n*99/100]
}

// TestSlowhttptest lets slowhttptest do the same in its modes, where it is installed.
func TestSlowhttptest(t *testing.T) {
	if testing.Short() {
		t.Skip("slowhttptest takes half a minute; it is left out of short tests")
	}
	tool, err := exec.LookPath("slowhttptest")
	if err != nil {
		t.Skip("no slowhttptest here: apt-get install slowhttptest (TestSlowClients does the same without it)")
	}
	files(t)
	for name, args := range map[string][]string{
		"header": {"-H", "-i", "2"},
		"body":   {"-B", "-i", "2", "-s", "65536"},
		"range":  {"-R", "-a", "10", "-b", "3000"},
		"read":   {"-X", "-w", "8", "-y", "16", "-n", "1", "-z", "8", "-k", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			address, pid := startProcess(t)
			before := latency(t, address, 300)
			cmd := exec.Command(tool, append(args, "-c", strconv.Itoa(slowClients), "-r", "500", "-l", "10", "-p", "5", "-u", "http://"+address+infer)...)
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			time.Sleep(3 * time.Second)
			during := latency(t, address, 300)
			<-ended // its status says which of its limits ended it
			peak := resident(t, pid, "VmHWM")
			t.Logf("p99 of a good client %s, with %d others %s: %.2f times; resident at most %.1f MiB", before, slowClients, during, float64(during)/float64(before), float64(peak)/(1<<20))
			require.LessOrEqual(t, peak, int64(maxResident), "bytes resident at most")
		})
	}
}

// startProcess starts a server in a process of its own, whose memory is its alone.
func startProcess(t *testing.T) (address string, pid int) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"=1", "GOMAXPROCS=2")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close() // it ends with its input
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line), cmd.Process.Pid
}
