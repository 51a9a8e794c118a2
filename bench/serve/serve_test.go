package main

import (
	"net"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestServers asks the servers of each pair once and then some more, with every driver that there is: ours and the bare one give the same
// answer to the same request, or they would not be measured side by side.
func TestServers(t *testing.T) {
	for _, p := range pairs {
		for i, name := range []string{p.ours, p.bare, p.alone} {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				serve := servers[name]
				if serve == nil {
					t.Fatalf("there is no server %q", name)
				}
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				defer l.Close()
				go serve(l)
				q := p.request(i > 0)
				if i == 2 {
					q = q.unchecked()
				}
				require.NoError(t, check(l.Addr().String(), q))
				for driver, drive := range drivers {
					if _, err := exec.LookPath(driver); driver != "go" && err != nil {
						continue
					}
					rate, err := drive(l.Addr().String(), q, 2*clients, clients)
					if q.grpc && (driver == "wrk" || driver == "hey") {
						require.ErrorIs(t, err, errNoHTTP2, driver)
						continue
					}
					require.NoError(t, err, driver)
					require.Positive(t, rate, driver)
				}
			})
		}
	}
}

// TestUsage wants processor time and allocations to grow, and the figures to be of this process.
func TestUsage(t *testing.T) {
	a, err := usageNow()
	require.NoError(t, err)
	kept := make([][]byte, 1000)
	for range 20 {
		for i := range kept {
			kept[i] = make([]byte, 1<<10)
		}
	}
	b, err := usageNow()
	require.NoError(t, err)
	require.GreaterOrEqual(t, b.Mallocs-a.Mallocs, uint64(20_000))
	require.GreaterOrEqual(t, b.Bytes-a.Bytes, uint64(20_000<<10))
	require.Greater(t, b.Processor, int64(0))
	require.Greater(t, b.Peak, int64(1<<20))
}
