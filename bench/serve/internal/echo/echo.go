// Package echo has the messages and the service of a bare gRPC server, as protoc-gen-go and protoc-gen-go-grpc write
// them.
package echo

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative echo.proto
