package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"google.golang.org/grpc"

	"github.com/popefgen/popefgen/bench/serve/internal/echo"
)

// A bare server knows no model, checks nothing and counts nothing. What it allocates for a request is what a handler
// that people write first allocates, but for the memory of tensors, which it keeps as ours does.

var (
	smallTensors = sync.Pool{New: func() any { return new([4 * small]byte) }}
	imageTensors = sync.Pool{New: func() any { return new([4 * pixels]byte) }}
	scores       = raw(floats(classes))
)

type tensorHeader struct {
	Name       string            `json:"name"`
	Shape      []int64           `json:"shape"`
	Datatype   string            `json:"datatype"`
	Parameters *tensorParameters `json:"parameters,omitempty"`
	Data       []float32         `json:"data,omitempty"`
}

type tensorParameters struct {
	Size   int  `json:"binary_data_size,omitempty"`
	Binary bool `json:"binary_data,omitempty"`
}

type requestHeader struct {
	ID      string         `json:"id,omitempty"`
	Inputs  []tensorHeader `json:"inputs"`
	Outputs []tensorHeader `json:"outputs,omitempty"`
}

type answerHeader struct {
	ModelName    string         `json:"model_name"`
	ModelVersion string         `json:"model_version"`
	ID           string         `json:"id,omitempty"`
	Outputs      []tensorHeader `json:"outputs"`
}

func answerOf(r *requestHeader, data []float32, size int) answerHeader {
	y := tensorHeader{Name: "y", Shape: r.Inputs[0].Shape, Datatype: "FP32", Data: data}
	if size > 0 {
		y.Parameters = &tensorParameters{Size: size}
	}
	return answerHeader{ModelName: "echo", ModelVersion: "1", ID: r.ID, Outputs: []tensorHeader{y}}
}

// bareBinary answers with the tensor that it was sent; encoding/json reads and writes the headers.
func bareBinary(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.Header.Get(headerSize))
	if err != nil || n > 4096 {
		http.Error(w, "no header", http.StatusBadRequest)
		return
	}
	head := make([]byte, n)
	tensor := smallTensors.Get().(*[4 * small]byte)
	defer smallTensors.Put(tensor)
	var q requestHeader
	if _, err = io.ReadFull(r.Body, head); err == nil {
		if err = json.Unmarshal(head, &q); err == nil {
			_, err = io.ReadFull(r.Body, tensor[:])
		}
	}
	if err != nil || len(q.Inputs) != 1 {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	answer, err := json.Marshal(answerOf(&q, nil, len(tensor)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set(headerSize, strconv.Itoa(len(answer)))
	h.Set("Content-Length", strconv.Itoa(len(answer)+len(tensor)))
	w.Write(answer)
	w.Write(tensor[:])
}

// bareImage reads an image into memory that it keeps, and answers with scores.
func bareImage(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.Header.Get(headerSize))
	if err != nil || n > 4096 {
		http.Error(w, "no header", http.StatusBadRequest)
		return
	}
	var head [4096]byte
	tensor := imageTensors.Get().(*[4 * pixels]byte)
	defer imageTensors.Put(tensor)
	if _, err := io.ReadFull(r.Body, head[:n]); err != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if _, err := io.ReadFull(r.Body, tensor[:]); err != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Write(scores)
}

// bareJSON answers with the tensor that it was sent, by encoding/json.
func bareJSON(w http.ResponseWriter, r *http.Request) {
	var q requestHeader
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Inputs) != 1 {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	answer, err := json.Marshal(answerOf(&q, q.Inputs[0].Data, 0))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(answer)
}

// bareGRPC answers a small tensor with itself and an image with scores, by the code of protoc.
type bareGRPC struct{ echo.UnimplementedEchoServer }

func (bareGRPC) ModelInfer(_ context.Context, q *echo.ModelInferRequest) (*echo.ModelInferResponse, error) {
	shape, data := q.Inputs[0].Shape, q.RawInputContents[0]
	if len(data) == 4*pixels {
		shape, data = []int64{1, classes}, scores
	}
	return &echo.ModelInferResponse{
		ModelName: q.ModelName, ModelVersion: "1", Id: q.Id,
		Outputs:           []*echo.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: "FP32", Shape: shape}},
		RawOutputContents: [][]byte{data},
	}, nil
}

func serveHTTP(h http.HandlerFunc) func(net.Listener) error {
	return func(l net.Listener) error { return http.Serve(l, h) }
}

func serveBareGRPC(l net.Listener) error {
	s := grpc.NewServer()
	echo.RegisterEchoServer(s, bareGRPC{})
	return s.Serve(l)
}
