// Command popefgen is a process that runs one model with popefgen, as a
// program with a generated package would.
package main

import (
	"encoding/json"
	"fmt"

	"github.com/popefgen/popefgen/bench/oneshot"
	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/rt/genrt"
)

func main() {
	oneshot.Main(func(j *oneshot.Job) (peer.Session, error) {
		var spec genrt.Spec
		if err := json.Unmarshal(j.Spec, &spec); err != nil {
			return nil, fmt.Errorf("the specification: %w", err)
		}
		return popefgen.OpenSource(&j.Case, &spec, genrt.Source{Path: j.Model}, j.Threads)
	})
}
