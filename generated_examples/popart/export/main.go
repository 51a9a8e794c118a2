// Command export writes the network that learns, with initial weights, as a PopEF model.
package main

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/popefgen/popefgen/generated_examples/popart/net"
	"github.com/popefgen/popefgen/onnx/popart"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: export FILE")
	}
	if err := write(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func write(ctx context.Context, path string) error {
	model, err := net.Model(ctx, 1)
	if err != nil {
		return err
	}
	s, err := net.NewSession(ctx, model, nil)
	if err != nil {
		return err
	}
	return errors.Join(s.SaveExecutable(path, popart.WithVariables()), s.Close())
}
