package grpcserve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/popefgen/popefgen/serve"
	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// child is the variable that makes the test's binary a server: "bare" of grpc-go and protobuf alone, or "ours".
const child = "POPEFGEN_BENCH_GRPC_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(child); kind != "" {
		if err := serveChild(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// measured are the models: 1 KiB in and out, and an image to a thousand scores.
func measured() []oip.Model {
	small := testmodel.Identity(oip.FP32, 1, 256)
	small.Described.Name = "small"
	image := testmodel.Identity(oip.FP32, 1, 3, 224, 224)
	image.Described.Name = "image"
	image.Described.Outputs[0].Shape, image.Described.Outputs[0].Max = []int64{-1, 1000}, []int64{1, 1000}
	return []oip.Model{small, image}
}

// serveChild serves, tells its address, and answers each line of its input with what it has used so far.
func serveChild(kind string) error {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	if kind == "bare" {
		s := grpc.NewServer()
		s.RegisterService(&grpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "ModelInfer", Handler: bare}}}, nil)
		go s.Serve(l)
	} else {
		var with []serve.Option
		for _, m := range measured() {
			with = append(with, serve.WithModel(m))
		}
		srv, err := serve.New(with...)
		if err != nil {
			return err
		}
		if err := RegisterListener(srv, l); err != nil {
			return err
		}
		go srv.Run(context.Background())
	}
	fmt.Println(l.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano()+u.Stime.Nano(), m.Mallocs, m.TotalAlloc)
	}
	return nil
}

// bare answers an echo of the input, or as many of its bytes as the image model has scores, by protobuf's generated code.
func bare(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	q := &pb.ModelInferRequest{}
	if err := decode(q); err != nil {
		return nil, err
	}
	raw, shape := q.RawInputContents[0], q.Inputs[0].Shape
	if len(raw) > 4000 {
		raw, shape = raw[:4000], []int64{1, 1000}
	}
	return &pb.ModelInferResponse{ModelName: q.ModelName, ModelVersion: "1", Id: q.Id, RawOutputContents: [][]byte{raw},
		Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "OUTPUT0", Datatype: "FP32", Shape: shape}}}, nil
}

// used is what a server has used.
type used struct{ nanoseconds, mallocs, bytes float64 }

// server is a process that serves.
type server struct {
	in   io.Writer
	out  *bufio.Reader
	addr string
	conn []*grpc.ClientConn
}

func startChild(b testing.TB, kind string) *server {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	s := &server{in: in, out: bufio.NewReader(out)}
	addr, err := s.out.ReadString('\n')
	require.NoError(b, err)
	s.addr = strings.TrimSpace(addr)
	for range 2 {
		c, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()), grpc.WaitForReady(true)))
		require.NoError(b, err)
		b.Cleanup(func() { c.Close() })
		s.conn = append(s.conn, c)
	}
	return s
}

func (s *server) used(b *testing.B) (u used) {
	b.Helper()
	fmt.Fprintln(s.in)
	_, err := fmt.Fscanln(s.out, &u.nanoseconds, &u.mallocs, &u.bytes)
	require.NoError(b, err)
	return u
}

// bytesOf is a message that is encoded already, and takes any answer.
type bytesOf []byte

func (m bytesOf) encode() (mem.BufferSlice, error)  { return mem.BufferSlice{mem.SliceBuffer(m)}, nil }
func (m bytesOf) decode(data mem.BufferSlice) error { return nil }

// load sends n requests, eight at a time on each connection, and returns what the server used for each.
func (s *server) load(b *testing.B, request []byte, n int) used {
	b.Helper()
	before := s.used(b)
	var group sync.WaitGroup
	for i := range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range n / 16 {
				if err := s.conn[i%2].Invoke(context.Background(), inferMethod, bytesOf(request), bytesOf(nil)); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	group.Wait()
	after := s.used(b)
	count := float64(n / 16 * 16)
	return used{(after.nanoseconds - before.nanoseconds) / count, (after.mallocs - before.mallocs) / count, (after.bytes - before.bytes) / count}
}

// BenchmarkServer compares what a request costs the server with a bare server of grpc-go and protobuf's generated code: processor
// time of the process, allocations and their bytes. The two are processes of their own and take turns; the best round of each counts.
// Run it with -benchtime 5x.
func BenchmarkServer(b *testing.B) {
	servers := [2]*server{startChild(b, "ours"), startChild(b, "bare")}
	for _, c := range []struct {
		name  string
		shape []int64
		n     int
	}{{"small", []int64{1, 256}, 16_000}, {"image", []int64{1, 3, 224, 224}, 1_600}} {
		b.Run(c.name, func(b *testing.B) {
			bytes := 4
			for _, d := range c.shape {
				bytes *= int(d)
			}
			request, err := proto.Marshal(&pb.ModelInferRequest{ModelName: c.name, Id: "1", RawInputContents: [][]byte{make([]byte, bytes)},
				Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "INPUT0", Datatype: "FP32", Shape: c.shape}}})
			require.NoError(b, err)
			var best [2]used
			for _, s := range servers {
				s.load(b, request, c.n/4)
			}
			for b.Loop() {
				for i, s := range servers {
					if u := s.load(b, request, c.n); best[i].nanoseconds == 0 || u.nanoseconds < best[i].nanoseconds {
						best[i] = u
					}
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(best[0].nanoseconds/1e3, "µs/request")
			b.ReportMetric(best[1].nanoseconds/1e3, "µs/bare")
			b.ReportMetric(best[0].nanoseconds/best[1].nanoseconds, "of-bare")
			b.ReportMetric(best[0].mallocs, "mallocs/request")
			b.ReportMetric(best[1].mallocs, "mallocs/bare")
			b.ReportMetric(best[0].bytes, "B/request")
			b.ReportMetric(best[1].bytes, "B/bare")
		})
	}
}
