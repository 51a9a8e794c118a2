// Package grpcserve is the gRPC side of package serve: the calls of the Open Inference Protocol and Triton's
// additions to it, as inference.proto beside this file lists them, health and reflection. [Register] adds it to a
// server, [Dial] is the transport of typed clients.
//
//	srv, err := serve.New(serve.WithModel(digits.Served(r)))
//	...
//	err = grpcserve.Register(srv, ":9000")
//	...
//	err = srv.Run(ctx)
//
// A request's tensors are copied once, from the transport's buffers into the memory of the model's call; messages that carry none
// are protobuf's own.
package grpcserve

//go:generate go run ./internal/protogen
