package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

const (
	serverEnv  = "POPEFGEN_HOSTILE_SERVER"
	large      = "/v2/models/identity_FP32/infer"
	largeBytes = 1 << 18
)

// TestMain is the server of startProcess if the environment says so, and the tests else.
func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) == "" {
		os.Exit(m.Run())
	}
	l, srv, err := server()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, bufio.NewReader(os.Stdin)) // until the test has ended
		cancel()
	}()
	srv.Run(ctx)
}

// server returns a server with the defaults of all options.
func server() (net.Listener, *serve.Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	srv, err := serve.New(serve.WithModel(testmodel.Simple()), serve.WithModel(testmodel.Identity(oip.FP32, 1, largeBytes/4)),
		serve.WithHTTPListener(l), serve.WithDrain(0, time.Second))
	return l, srv, err
}

// start starts a server in this process and returns its address. The good client has been answered.
func start(t *testing.T) string {
	l, srv, err := server()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended // connections that a test left open are cut off
	})
	good(t, l.Addr().String())
	return l.Addr().String()
}

var goodBody = func() string {
	sixteen := func(v string) string { return "[" + strings.Repeat(v+",", 15) + v + "]" }
	return `{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,16],"data":` + sixteen("5") + `},{"name":"INPUT1","datatype":"INT32","shape":[1,16],"data":` + sixteen("3") + `}]}`
}()

// good is the client that means no harm: it must be answered, rightly.
func good(t *testing.T, address string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	goodBy(t, client, address)
}

func goodBy(t *testing.T, client *http.Client, address string) {
	t.Helper()
	r, err := client.Post("http://"+address+infer, "application/json", strings.NewReader(goodBody))
	require.NoError(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, 200, r.StatusCode, "%s", body)
	answer := strings.ReplaceAll(string(body), " ", "")
	require.Contains(t, answer, "[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8]")
	require.Contains(t, answer, "[2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2]")
}
