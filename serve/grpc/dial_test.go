package grpcserve

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// asks is a request of a typed client.
type asks struct {
	in, got [][]byte
	shape   []int64
	size    int
}

func (x *asks) Given(i int) ([]byte, []int64) { return x.in[i], x.shape }

func (x *asks) Take(i int, shape []int64) ([]byte, error) {
	n := x.size
	for _, d := range shape {
		n *= int(d)
	}
	for len(x.got) <= i {
		x.got = append(x.got, nil)
	}
	x.got[i] = make([]byte, n)
	return x.got[i], nil
}

func dial(t testing.TB, addr string, opts ...DialOption) oip.Transport {
	t.Helper()
	c, err := Dial(addr, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// TestDial has typed clients ask for every data type, many at a time, small and large.
func TestDial(t *testing.T) {
	models := append(identities(), testmodel.Identity(oip.FP64, 4, 50_001))
	models[len(models)-1].(*testmodel.Model).Described.Name = "large"
	addr, _ := running(t, models)
	c := dial(t, addr, WithHeader("X-Team", "a"))
	var group sync.WaitGroup
	for _, m := range models {
		spec := m.Spec()
		in := &spec.Inputs[0]
		group.Add(1)
		go func() {
			defer group.Done()
			for n := range 4 {
				shape := []int64{int64(n + 1), in.Shape[1]}
				data := drawn(in.Type, int(shape[0]*shape[1]))
				x := &asks{in: [][]byte{data}, shape: shape, size: in.Type.Size()}
				if err := c.Infer(t.Context(), spec, x); err != nil || string(x.got[0]) != string(data) {
					t.Errorf("%s, %d samples: %v", spec.Name, n+1, err)
				}
			}
		}()
	}
	group.Wait()
	var e *oip.Error
	none := *models[0].Spec()
	none.Name = "none"
	err := c.Infer(t.Context(), &none, &asks{in: [][]byte{nil}, shape: []int64{1, 5}})
	require.ErrorAs(t, err, &e)
	require.Equal(t, oip.NotFound, e.Code)
	other := *models[1].Spec()
	other.Outputs = []oip.Tensor{{Name: "OUTPUT0", Type: oip.Uint8, Shape: []int64{1, 4}}}
	err = c.Infer(t.Context(), &other, &asks{in: [][]byte{make([]byte, 5)}, shape: []int64{1, 5}, size: 1})
	require.EqualError(t, err, "output 'OUTPUT0' for model 'identity_UINT8' has the shape [1,5], expected [1,4]")
}

// TestDialEnds ends what a client waits for: by its context, and because nothing listens.
func TestDialEnds(t *testing.T) {
	m := testmodel.Identity(oip.Uint8, 1, 5)
	m.Before = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	addr, _ := running(t, []oip.Model{m})
	c := dial(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	x := &asks{in: [][]byte{make([]byte, 5)}, shape: []int64{1, 5}, size: 1}
	var e *oip.Error
	require.ErrorAs(t, c.Infer(ctx, m.Spec(), x), &e)
	require.Equal(t, oip.Deadline, e.Code)
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorAs(t, dial(t, l.Addr().String()).Infer(t.Context(), m.Spec(), x), &e)
	require.Equal(t, oip.Unavailable, e.Code)
}

// theirs is a server of protobuf's own code, as others have it: it answers in contents, or what a test says.
func theirs(t *testing.T, answer func(*pb.ModelInferRequest) (*pb.ModelInferResponse, error)) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "ModelInfer",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			q := &pb.ModelInferRequest{}
			if err := decode(q); err != nil {
				return nil, err
			}
			return answer(q)
		}}}}, nil)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// TestDialContents reads an answer in contents, with fields that we do not write, and refuses those that are not what was asked for.
func TestDialContents(t *testing.T) {
	spec := testmodel.Identity(oip.Int16, 2, 2).Spec()
	var a *pb.ModelInferResponse
	c := dial(t, theirs(t, func(q *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
		if len(q.Outputs) != 1 || q.Outputs[0].Name != "OUTPUT0" || len(q.RawInputContents) != 1 {
			return nil, errors.New("another request")
		}
		return a, nil
	}))
	x := &asks{in: [][]byte{make([]byte, 4)}, shape: []int64{1, 2}, size: 2}
	out := &pb.ModelInferResponse_InferOutputTensor{Name: "OUTPUT0", Datatype: "INT16", Shape: []int64{1, 2}, Contents: &pb.InferTensorContents{IntContents: []int32{-2, 3}},
		Parameters: map[string]*pb.InferParameter{"x": {}}}
	a = &pb.ModelInferResponse{ModelName: "m", Parameters: map[string]*pb.InferParameter{"y": {}}, Outputs: []*pb.ModelInferResponse_InferOutputTensor{out}}
	require.NoError(t, c.Infer(t.Context(), spec, x))
	require.Equal(t, []byte{0xfe, 0xff, 3, 0}, x.got[0])
	a.Outputs = append(a.Outputs, out)
	require.ErrorContains(t, c.Infer(t.Context(), spec, x), "output 'OUTPUT0' for model 'identity_INT16' is given twice")
	a.Outputs = nil
	require.ErrorContains(t, c.Infer(t.Context(), spec, x), "has 0 outputs, expected 'OUTPUT0'")
	a.RawOutputContents = [][]byte{{1}}
	require.ErrorContains(t, c.Infer(t.Context(), spec, x), "has 0 outputs and 1 raw_output_contents")
}

// kept is a request of a typed client whose memory for the output stays what it is.
type kept struct{ out []byte }

func (x *kept) Given(int) ([]byte, []int64)               { return []byte{0}, []int64{1, 1} }
func (x *kept) Take(i int, shape []int64) ([]byte, error) { return x.out, nil }

// TestDialBools: bytes of an answer that are no bools do not stay in the caller's memory, which may be that of bools.
func TestDialBools(t *testing.T) {
	spec := testmodel.Identity(oip.Bool, 1, 1).Spec()
	spec.Outputs[0].Shape, spec.Outputs[0].Max = []int64{3}, []int64{3}
	for data, want := range map[string]string{"\x01\x00\x01": "\x01\x00\x01", "\x01\x02\x00": "\x00\x00\x00"} {
		c := dial(t, theirs(t, func(*pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
			out := &pb.ModelInferResponse_InferOutputTensor{Name: "OUTPUT0", Datatype: "BOOL", Shape: []int64{3}}
			return &pb.ModelInferResponse{Outputs: []*pb.ModelInferResponse_InferOutputTensor{out}, RawOutputContents: [][]byte{[]byte(data)}}, nil
		}))
		x := &kept{out: []byte{1, 1, 1}}
		if err := c.Infer(t.Context(), spec, x); data == want {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "has the byte 2 as element 1, expected 0 or 1 for BOOL")
		}
		require.Equal(t, want, string(x.out))
	}
}

// TestDialContract asks a server whose contract has more than the client needs, and one that breaks it.
func TestDialContract(t *testing.T) {
	text := func(fields ...string) string {
		return "popefgen contract 2\niterations 1\n" + strings.Join(fields, "\n") + "\n"
	}
	more := text(`input "x" F32 [2]`, `output "y" F32 [2]`, `output "z" F32 [2]`)
	var hashes []string
	c := dial(t, theirs(t, func(q *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
		hashes = append(hashes, q.Parameters[agree.Parameter].GetStringParam())
		if now, _ := agree.Hash(more); now != hashes[len(hashes)-1] {
			return nil, toStatus(&oip.Error{Code: oip.FailedPrecondition, Text: "another", Contract: more})
		}
		return &pb.ModelInferResponse{}, nil
	}))
	spec := &oip.Spec{Name: "m", Contract: text(`input "x" F32 [2]`, `output "y" F32 [2]`)}
	require.NoError(t, c.Infer(t.Context(), spec, &asks{}))
	require.NoError(t, c.Infer(t.Context(), spec, &asks{}))
	require.Len(t, hashes, 3, "only the first request is sent twice")
	more = text(`input "x" F32 [3]`, `output "y" F32 [2]`)
	require.ErrorContains(t, c.Infer(t.Context(), spec, &asks{}), "shape was [2], is [3]")
}
