package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt/genrt"
)

var versionCommand = &cli.Command{
	Name:      "version",
	Usage:     "print the version, and the generation of runners it writes",
	UsageText: "popefgen version",
	Action: func(c *cli.Context) error {
		if err := noArgs(c); err != nil {
			return err
		}
		printVersion(c.App.Writer)
		return nil
	},
}

// version is the version of the module that the command was built from.
func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "(devel)"
}

func printVersion(w io.Writer) {
	fmt.Fprintf(w, "popefgen %s, %s, %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(w, "writes runners of generation %d; rt runs generations %d to %d\n", genrt.Generation, genrt.OldestGeneration, genrt.Generation)
}

var devicesCommand = &cli.Command{
	Name:      "devices",
	Usage:     "list the devices of every back end, and those that it simulates",
	UsageText: "popefgen devices",
	Description: "A device with an ID exists. Those without one are made for who asks for one, with as many IPUs and tiles as\n" +
		"he says (rt.WithSimulation, ipu.Simulation): they compute on the processor, and have the limits of an IPU.",
	Action: func(c *cli.Context) error {
		if err := noArgs(c); err != nil {
			return err
		}
		t := table.New("BACK END", "ID", "KIND", "IPUS", "TILES", "VERSION", "DESCRIPTION")
		var failed error // those of the others are listed all the same
		for _, name := range ipu.Backends() {
			b, err := ipu.Lookup(name)
			if err != nil {
				return err
			}
			ds, err := b.Devices(c.Context)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("devices of back end %s: %w", name, err))
				continue
			}
			for _, d := range ds {
				i := d.Info()
				t.Row(i.Backend, i.ID, i.Kind, i.NumIPUs, table.OrDash(i.TilesPerIPU), table.OrDash(i.Version), i.Description)
			}
			if s, ok := b.(ipu.Simulator); ok {
				failed = errors.Join(failed, listSimulated(c.Context, t, s))
			}
		}
		return errors.Join(t.Print(c.App.Writer), failed)
	},
}

// listSimulated adds the devices that a back end simulates, one of each version.
func listSimulated(ctx context.Context, t *table.Table, b ipu.Simulator) error {
	for _, version := range []int{2, 21} {
		d, err := b.Simulate(ctx, ipu.Simulation{NumIPUs: 1, Version: version})
		if err != nil {
			return fmt.Errorf("devices that back end %s simulates: %w", b.Name(), err)
		}
		i := d.Info()
		t.Row(i.Backend, "–", i.Kind, "any", i.TilesPerIPU, i.Version, i.Description)
	}
	return nil
}
