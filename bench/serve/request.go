package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/popefgen/popefgen/bench/serve/internal/echo"
)

// request is the one request that a contest repeats, and what its answer must be.
type request struct {
	path    string            // of the URL
	grpc    bool              // whether it travels by gRPC
	header  map[string]string // of HTTP
	body    []byte            // of HTTP, or the message of gRPC
	correct func(answer []byte) error
}

const (
	small      = 256           // elements of the small tensor: 1 KiB
	pixels     = 3 * 224 * 224 // elements of the image: 602,112 bytes
	classes    = 1000          // elements of the answer to an image
	restPath   = "/v2/models/echo/infer"
	headerSize = "Inference-Header-Content-Length"
)

// floats returns n numbers that a network may give, always the same.
func floats(n int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	v := make([]float32, n)
	for i := range v {
		v[i] = r.Float32()*2 - 1
	}
	return v
}

func raw(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

// endsWith wants an answer that ends with these bytes.
func endsWith(want []byte) func([]byte) error {
	return func(answer []byte) error {
		if !bytes.HasSuffix(answer, want) {
			return fmt.Errorf("an answer of %d bytes does not end with the %d bytes of its tensor", len(answer), len(want))
		}
		return nil
	}
}

// binaryRequest is a tensor in the extension of binary tensors.
func binaryRequest(shape string, n int, answer []byte) *request {
	head := fmt.Sprintf(`{"inputs":[{"name":"x","shape":%s,"datatype":"FP32","parameters":{"binary_data_size":%d}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`, shape, 4*n)
	return &request{
		path:    restPath,
		header:  map[string]string{"Content-Type": "application/octet-stream", headerSize: strconv.Itoa(len(head))},
		body:    append([]byte(head), raw(floats(n))...),
		correct: endsWith(answer),
	}
}

// jsonRequest is a small tensor in JSON.
func jsonRequest() *request {
	data, err := json.Marshal(floats(small))
	if err != nil {
		panic(err) // numbers that are finite
	}
	return &request{
		path:   restPath,
		header: map[string]string{"Content-Type": "application/json"},
		body:   fmt.Appendf(nil, `{"inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","data":%s}]}`, small, data),
		correct: func(answer []byte) error {
			var got struct{ Outputs []struct{ Data []float32 } }
			if err := json.Unmarshal(answer, &got); err != nil {
				return err
			}
			if len(got.Outputs) != 1 || !bytes.Equal(raw(got.Outputs[0].Data), raw(floats(small))) {
				return fmt.Errorf("the answer is not what was sent: %.200s", answer)
			}
			return nil
		},
	}
}

// grpcRequest is a tensor as a message with raw contents, to a bare server or ours.
func grpcRequest(bare bool, shape []int64, n int, answer []byte) *request {
	body, err := proto.Marshal(&echo.ModelInferRequest{
		ModelName:        "echo",
		Inputs:           []*echo.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: shape}},
		RawInputContents: [][]byte{raw(floats(n))},
	})
	if err != nil {
		panic(err) // names are valid UTF-8
	}
	path := "/inference.GRPCInferenceService/ModelInfer"
	if bare {
		path = echo.Echo_ModelInfer_FullMethodName
	}
	return &request{path: path, grpc: true, body: body, correct: endsWith(answer)}
}

// unchecked is the request, of which any answer will do.
func (q *request) unchecked() *request {
	any := *q
	any.correct = func([]byte) error { return nil }
	return &any
}
