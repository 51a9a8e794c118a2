package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/popefgen/popefgen/bench/serve/internal/echo"
)

// A transport alone reads a request and writes an answer of as many bytes as that to it has, whatever is in them. What it allocates
// is what nobody can leave out.

// largestEcho is up to which size an answer is as large as its request; those to larger ones are scores.
const largestEcho = 8 << 10

// typeOctets and lengths are headers' values that are made once.
var (
	typeOctets = []string{"application/octet-stream"}
	lengths    = func() (all [largestEcho + 1][]string) {
		for i := range all {
			all[i] = []string{strconv.Itoa(i)}
		}
		return all
	}()
)

func answerSize(request int) int {
	if request > largestEcho {
		return len(scores)
	}
	return request
}

// aloneREST is net/http alone.
func aloneREST(w http.ResponseWriter, r *http.Request) {
	memory := bodies.Get().(*[4*pixels + 4096]byte)
	defer bodies.Put(memory)
	n := int(r.ContentLength)
	if n < 0 || n > len(memory) {
		http.Error(w, "no request that is measured", http.StatusBadRequest)
		return
	}
	if _, err := io.ReadFull(r.Body, memory[:n]); err != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	n = answerSize(n)
	w.Header()["Content-Type"], w.Header()["Content-Length"] = typeOctets, lengths[n]
	w.Write(memory[:n])
}

var bodies = sync.Pool{New: func() any { return new([4*pixels + 4096]byte) }}

// serveAloneGRPC is grpc-go alone.
func serveAloneGRPC(l net.Listener) error {
	s := grpc.NewServer(grpc.ForceServerCodecV2(unread{}))
	s.RegisterService(&grpc.ServiceDesc{ServiceName: echo.Echo_ServiceDesc.ServiceName, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "ModelInfer",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := messages.Get().(*message)
			return m, decode(m)
		},
	}}}, nil)
	return s.Serve(l)
}

// message is how large a message is that nobody looks into.
type message struct{ size int }

var messages = sync.Pool{New: func() any { return new(message) }}

// unread is the codec of such messages.
type unread struct{}

func (unread) Name() string { return "proto" }

func (unread) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*message).size = data.Len()
	return nil
}

// Marshal takes memory for the answer from grpc-go's pool. The list of its parts stays with the transport until it is sent.
func (unread) Marshal(v any) (mem.BufferSlice, error) {
	m := v.(*message)
	pool := mem.DefaultBufferPool()
	answer := pool.Get(max(answerSize(m.size), 1<<10+1)) // smaller ones are not pooled
	messages.Put(m)
	return mem.BufferSlice{mem.NewBuffer(answer, pool)}, nil
}
