package otelserve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// BenchmarkREST compares a request of 1 KiB over REST with spans to one without: nothing sampled, nothing sampled although the request says of
// which trace it is, everything sampled. They take turns, so that what else the machine does meets all. It is processor time, in which the client has its part.
func BenchmarkREST(b *testing.B) {
	never := With(sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(0)))))
	always := sdk.NewTracerProvider(sdk.WithSyncer(tracetest.NewNoopExporter())) // in its own turn
	header := "Traceparent: " + strings.TrimSuffix(parent, "-01") + "-00\r\n"
	contestants := []struct {
		name   string
		with   []serve.Option
		header string
	}{
		{"without", nil, ""}, {"Ratio(0)/without", []serve.Option{With(sdk.NewTracerProvider(), Ratio(0))}, ""}, {"Ratio(0)-traceparent/without", []serve.Option{With(sdk.NewTracerProvider(), Ratio(0))}, header}, {"0%/without", []serve.Option{never}, ""}, {"0%-traceparent/without", []serve.Option{never}, header},
		{"100%/without", []serve.Option{With(always)}, ""}, {"same/without", nil, ""},
	}
	text := fmt.Sprintf(`{"inputs":[{"name":"INPUT0","shape":[1,256],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, 1024)
	body := text + strings.Repeat("\x00", 1024)
	buf := make([]byte, 1<<16)
	type client struct {
		net.Conn
		request []byte
		size    int
		used    []float64
	}
	var clients []*client
	for _, c := range contestants {
		srv, err := serve.New(append(c.with, serve.WithModel(testmodel.Identity(oip.FP32, 1, 256)))...)
		require.NoError(b, err)
		l, err := net.Listen("tcp", "localhost:0")
		require.NoError(b, err)
		h := &http.Server{Handler: srv.Handler()}
		go h.Serve(l)
		defer h.Close()
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(b, err)
		defer conn.Close()
		x := &client{Conn: conn, request: fmt.Appendf(nil, "POST /v2/models/identity_FP32/infer HTTP/1.1\r\nHost: x\r\n%sInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s", c.header, len(text), len(body), body)}
		_, err = conn.Write(x.request)
		require.NoError(b, err)
		time.Sleep(100 * time.Millisecond)
		x.size, err = conn.Read(buf)
		require.NoError(b, err)
		require.Contains(b, string(buf[:x.size]), "200 OK")
		clients = append(clients, x)
	}
	const each = 25
	for b.Loop() {
		for _, x := range clients {
			begun := processor(b)
			for range each {
				if _, err := x.Write(x.request); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(x, buf[:x.size]); err != nil {
					b.Fatal(err)
				}
			}
			x.used = append(x.used, float64(processor(b)-begun)/each)
		}
	}
	quarter := func(x *client) float64 { // what else the machine does makes turns longer, never shorter
		slices.Sort(x.used)
		return x.used[len(x.used)/4]
	}
	bare := quarter(clients[0])
	b.ReportMetric(bare, "cpu-ns/request-without")
	for i, x := range clients[1:] {
		b.ReportMetric(quarter(x)/bare, contestants[i+1].name)
	}
}

// processor returns the processor time that the process has used, in ns.
func processor(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
