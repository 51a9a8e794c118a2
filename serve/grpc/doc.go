// Package grpcserve is the gRPC side of package serve: the calls of the Open Inference Protocol and Triton's
// additions to it, as inference.proto beside this file lists them.
package grpcserve

//go:generate go run ./internal/protogen
