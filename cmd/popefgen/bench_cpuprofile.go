package main

import (
	"fmt"
	"io"
	"runtime/pprof"
	"slices"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/bench"
	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
)

// cpuProfile writes a CPU profile of what measure does to a file. Samples of
// operators have labels, if the back end gives some.
func cpuProfile(path string, t *bench.Target, errOut io.Writer, measure func() error) error {
	if t.Backend == cpu.Name && !slices.ContainsFunc(t.Options, func(o ipu.Option) bool { return o.Name == "labels" }) {
		defer func(before []ipu.Option) { t.Options = before }(t.Options)
		t.Options = append(slices.Clip(t.Options), ipu.Option{Name: "labels", Value: "on"})
	}
	err := atomicfile.Write(path, func(w io.Writer) error {
		if err := pprof.StartCPUProfile(w); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		return measure()
	})
	if err != nil {
		return fmt.Errorf("--cpuprofile: %w", err)
	}
	fmt.Fprintf(errOut, "wrote %s; go tool pprof -tags shows the time by operator and node\n", path)
	return nil
}
