// Command export writes the network that reads one scan, with initial weights, as a PopEF model.
package main

import (
	"context"
	"log"
	"os"

	"github.com/popefgen/popefgen/generated_examples/popxl/net"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: export FILE")
	}
	model, err := net.Reader(1, nil).Ir.Export(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if err := model.WriteFile(os.Args[1], false); err != nil {
		log.Fatal(err)
	}
}
