module github.com/popefgen/popefgen/serve/grpc

go 1.26.0

replace github.com/popefgen/popefgen => ../..

require (
	github.com/bufbuild/protocompile v0.14.1
	github.com/stretchr/testify v1.11.1
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

tool google.golang.org/protobuf/cmd/protoc-gen-go
