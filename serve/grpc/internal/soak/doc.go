// Package soak has a test alone: the soak of serve/internal/soak with callers of gRPC, of its streams and of REST at the same time.
package soak
