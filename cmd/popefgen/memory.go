package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/budget"
)

// memoryFlag is a flag of every command that reads models.
var memoryFlag = &cli.StringFlag{Name: "memory",
	Usage: "the most memory, `SIZE`, that a model may make it take, such as 512MiB or 8GiB (default: three quarters of what the machine, its control groups and limits leave)"}

// withoutModels are the commands that read none.
var withoutModels = []string{"calibrate", "devices", "completion", "version", "vet", "help"}

// limitMemory gives a command, and those below it, the flag --memory.
func limitMemory(c *cli.Command) {
	if slices.Contains(withoutModels, c.Name) {
		return
	}
	if len(c.Subcommands) > 0 {
		for _, sub := range c.Subcommands {
			limitMemory(sub)
		}
		return
	}
	if !slices.Contains(c.Flags, cli.Flag(memoryFlag)) {
		c.Flags = append(slices.Clip(c.Flags), memoryFlag)
	}
	c.Before = setMemory
}

// setMemory makes what --memory says the limit of everything in this process, and
// gives the command the one budget on which all that it does counts.
func setMemory(c *cli.Context) error {
	budget.SetDefault(0)
	if !c.IsSet(memoryFlag.Name) {
		c.Context = budget.Into(c.Context, budget.New(0))
		return nil
	}
	n, err := budget.Parse(c.String(memoryFlag.Name))
	if err == nil && n == 0 {
		err = fmt.Errorf("want more than nothing")
	}
	if err != nil {
		return fmt.Errorf("%s: --memory: %w", c.Command.Name, err)
	}
	budget.SetDefault(n)
	c.Context = budget.Into(c.Context, budget.New(n))
	return nil
}

// grace is how long a command that was interrupted may take to end by itself.
const grace = 120 * time.Millisecond

// endSoon ends the process a while after ctx is done, unless finished is closed
// before: some work does not look at its context.
func endSoon(ctx context.Context, finished <-chan struct{}, errOut io.Writer, exit func(int)) {
	select {
	case <-finished:
		return
	case <-ctx.Done():
	}
	select {
	case <-finished:
	case <-time.After(grace):
		fmt.Fprintln(errOut, "popefgen: interrupted")
		exit(exitTrouble)
	}
}

// runUntil runs the command until it ends or is interrupted.
func runUntil(ctx context.Context, args []string) int {
	finished := make(chan struct{})
	go endSoon(ctx, finished, os.Stderr, os.Exit)
	defer close(finished)
	return Run(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}
