package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/grpc/metrics"
	otelserve "github.com/popefgen/popefgen/serve/otel"
)

// Servers whose requests are observed, over REST: what that costs is the largest part of the least request.
func init() {
	servers["rest-metrics"] = serveObserved(func() serve.Option { return serve.WithMetrics(metrics.Handler(true)) })
	servers["rest-traces"] = serveObserved(func() serve.Option { return otelserve.With(sdk.NewTracerProvider(), otelserve.Ratio(0)) })
	servers["rest-sampler"] = serveObserved(func() serve.Option {
		return otelserve.With(sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(0)))))
	})
}

func serveObserved(by func() serve.Option) func(net.Listener) error {
	return func(l net.Listener) error {
		s, err := serve.New(serve.WithModel(echoModel), serve.WithHTTPListener(l), by())
		if err != nil {
			return err
		}
		return s.Run(context.Background())
	}
}

// observed is a server, and what its requests have besides.
type observed struct {
	name, server, header, value string
	goal                        bool // that of the table
	read                        bool // its metrics are, in each round
	beside                      int  // the one that it is compared to
}

const notSampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"

var observers = []observed{
	{name: "none", server: "rest"},
	{name: "none, a second process", server: "rest"},
	{name: "metrics, Prometheus' and Triton's names", server: "rest-metrics", goal: true, read: true},
	{name: "traces at 0 % sampling", server: "rest-traces", goal: true},
	{name: "none, requests say of which trace they are, which is not sampled", server: "rest", header: "Traceparent", value: notSampled},
	{name: "traces at 0 % sampling of these, / none of these", server: "rest-traces", header: "Traceparent", value: notSampled, goal: true, beside: 4},
	{name: "traces at 0 % by the sampler of the provider", server: "rest-sampler"},
}

// measureObserved compares what a request costs a server whose requests are observed with what it costs one without. Processes of the same
// program differ by some parts in a hundred, each as long as it lives: there are several sets of them.
func measureObserved(o *options) (string, error) {
	const (
		goal = 1.03
		sets = 5
	)
	all := make([][]cost, len(observers))
	for range sets {
		some, err := observedSet(o)
		if err != nil {
			return "", err
		}
		for i := range all {
			all[i] = append(all[i], some[i]...)
		}
	}
	t := report.NewTable("observer of REST, 1 KiB", "processor time, µs", "/ none", "goal", "", "allocations")
	for i, x := range observers {
		part := ratio(figures(all[i], processorTime), figures(all[x.beside], processorTime))
		want, is := "–", ""
		if x.goal {
			want, is = fmt.Sprintf("≤ %g", goal), verdict(part <= goal)
		}
		t.Row(x.name, number(median(figures(all[i], processorTime))), fmt.Sprintf("%.3f", part), want, is, fmt.Sprintf("%.1f", median(figures(all[i], mallocs))))
	}
	return t.String(), nil
}

func observedSet(o *options) ([][]cost, error) {
	var all []*contestant
	for _, x := range observers {
		q := binaryRequest("[1,256]", small, raw(floats(small)))
		if x.header != "" {
			q.header[x.header] = x.value
		}
		c, err := enter(x.server, q, clients)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.name, err)
		}
		defer c.leave()
		if x.read {
			c.extra = func() error { return readMetrics(c.addr) }
		}
		all = append(all, c)
	}
	return compete(all, max(o.rounds/4, 2), 4*o.requests) // about a second of processor time between two readings
}

// readMetrics reads a server's metrics.
func readMetrics(addr string) error {
	r, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("metrics: status %s: %.200s", r.Status, text)
	}
	return err
}
