// Package poplar is the back end for IPUs: it runs executables of Graphcore's Poplar through its C++ library. Without the
// build tag poplar the package is empty, and needs neither cgo nor a C++ compiler; with it a program that imports this
// package, as generated ones do, has the back end "poplar":
//
//	CGO_CXXFLAGS=-I$POPLAR_SDK_ENABLED/include CGO_LDFLAGS="-L$POPLAR_SDK_ENABLED/lib -Wl,-rpath,$POPLAR_SDK_ENABLED/lib" \
//		go build -tags poplar ./...
//
// With the tag poplarfake as well, it is built against a fake of the SDK that is part of this module and runs portable
// executables. The package has been compiled and tested against that fake, and never run on an IPU. docs/poplar.md says
// how to build and run it, and what is assumed of Poplar.
//
// # Streams
//
// An engine loads and runs on a thread of its own, outside Go. What its streams are connected to depends on what the host
// gives: data that does not change (ipu.Constant) is read where it lies; memory of requests (ipu.Windowed) goes
// through rings outside Go's heap, so that the engine's thread never waits for Go's scheduler or its garbage collector
// while a request computes; all other streams are called through cgo, each in a goroutine of its own.
package poplar
