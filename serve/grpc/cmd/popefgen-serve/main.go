// Command popefgen-serve serves models of files: PopEF, and ONNX that it compiles when it starts. docs/serving.md says how.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // something failed, or --check found a mistake
	exitUsage = 2 // the command line
)

// separator stands between the values of a flag that may be given several times, in a variable of the environment: sizes and
// names have commas.
const separator = ";"

// oneSignal is how long after a signal another one is the same: who sends one to a process and to its group, as timeout
// and terminals do, sends it twice.
const oneSignal = 50 * time.Millisecond

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		cancel() // drain
		for begun := time.Now(); ; {
			if <-signals; time.Since(begun) > oneSignal {
				break
			}
		}
		fmt.Fprintln(os.Stderr, "popefgen-serve: a second signal: stopping at once")
		os.Exit(exitError)
	}()
	os.Exit(run(ctx, os.Args, os.Stdout, os.Stderr))
}

// run is the command: it returns its exit code, once ctx has ended or something failed.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	code := exitOK
	app := &cli.App{
		Name:               "popefgen-serve",
		Usage:              "an inference server for PopEF and ONNX models",
		UsageText:          "popefgen-serve [flags] DIR|FILE…\npopefgen-serve --config popefgen.yaml",
		HideHelpCommand:    true,
		SliceFlagSeparator: separator,
		Flags:              flags(),
		Commands:           []*cli.Command{manifestsCommand()},
		Writer:             stdout,
		ErrWriter:          stderr,
		ExitErrHandler:     func(*cli.Context, error) {},
		OnUsageError:       func(_ *cli.Context, err error, _ bool) error { return usageError{error: err} },
		Action: func(c *cli.Context) error {
			conf, err := configOf(c)
			if err != nil {
				return err
			}
			if c.Bool("check") {
				return check(ctx, conf, stdout)
			}
			return serveModels(ctx, conf, stderr)
		},
	}
	if err := app.RunContext(ctx, args); err != nil {
		var usage usageError
		var all mistakes
		code = exitError
		switch {
		case errors.As(err, &usage):
			code = exitUsage
			fmt.Fprintf(stderr, "popefgen-serve: %v\nhint: %s --help lists the flags\n", err, strings.TrimSpace("popefgen-serve "+usage.command))
		case errors.As(err, &all):
			for _, m := range all {
				fmt.Fprintf(stderr, "popefgen-serve: %v\n", m)
			}
		default:
			fmt.Fprintf(stderr, "popefgen-serve: %v\n", err)
		}
	}
	return code
}

// usageError is a mistake on the command line.
type usageError struct {
	error
	command string // "" is that without a name
}

func (e usageError) Unwrap() error { return e.error }

// mistakes are all that is wrong with a configuration.
type mistakes []error

func (m mistakes) Error() string { return errors.Join(m...).Error() }
