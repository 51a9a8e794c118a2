// Command popefgen compiles ONNX models to PopEF, generates typed Go runners
// from PopEF models, and inspects, runs, checks and measures them.
//
// Data goes to standard output, talk to standard error. The exit code is 0
// when all is well, 1 when the answer is no (stale, different, failed) and 2
// when there is trouble (bad flags, unreadable files, unsupported models).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/printable"
	_ "github.com/popefgen/popefgen/ipu/cpu"
)

func main() {
	actAsVetTool(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if exe, err := os.Executable(); err == nil {
		self = exe
	}
	os.Exit(runUntil(ctx, os.Args[1:]))
}

// Exit codes of the command.
const (
	exitOK      = 0
	exitNo      = 1 // stale, different, failed
	exitTrouble = 2
)

// errNo ends a command with exit code 1; what there was to say is said.
var errNo = errors.New("the answer is no")

// Run runs the command with the given arguments, without the program's name,
// and returns its exit code.
//
// Whatever a command prints goes through a [printable.Writer], since names in
// models are anybody's: none of them drives the terminal.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	safeOut, safeErr := printable.NewWriter(out), printable.NewWriter(errOut)
	defer safeOut.Flush()
	defer safeErr.Flush()
	return run(ctx, args, in, safeOut, safeErr)
}

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	app := newApp(in, out, errOut)
	if len(args) > 0 && args[0] == completeWord {
		if err := printCandidates(out, candidates(app, args[1:])); err != nil {
			return exitTrouble
		}
		return exitOK
	}
	args = reorder(app, args)
	err := app.RunContext(ctx, append([]string{app.Name}, args...))
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errNo):
		return exitNo
	}
	fmt.Fprintf(errOut, "popefgen: %v\n", err)
	return exitTrouble
}

func newApp(in io.Reader, out, errOut io.Writer) *cli.App {
	commands := []*cli.Command{
		compileCommand, extractCommand, generateCommand, checkCommand, watchCommand, inspectCommand, runCommand, diffCommand, verifyCommand, reduceCommand, goldenCommand, benchCommand, calibrateCommand, vetCommand, devicesCommand, completionCommand, versionCommand,
	}
	for _, c := range commands {
		limitMemory(c)
		for _, c := range append([]*cli.Command{c}, c.Subcommands...) {
			c.OnUsageError = usageError
			// Where flags have headings, the library leaves its own one out.
			if len(c.Flags) > 0 && !slices.Contains(c.Flags, cli.HelpFlag) {
				c.Flags = append(slices.Clip(c.Flags), cli.HelpFlag)
			}
		}
	}
	return &cli.App{
		Name:           "popefgen",
		Usage:          "turn PopEF and ONNX models into typed Go runners",
		Description:    "The exit code is 0 when all is well, 1 when the answer is no (stale, different,\nfailed) and 2 when there is trouble.",
		Reader:         in,
		Writer:         out,
		ErrWriter:      errOut,
		Version:        version(),
		ExitErrHandler: func(*cli.Context, error) {},
		Suggest:        true,
		// Commas are part of values: of lists, of tolerances, of file names.
		DisableSliceFlagSeparator: true,
		Commands:                  commands,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand("popefgen", c.Args().First(), c.App.Commands)
			}
			return cli.ShowAppHelp(c)
		},
		OnUsageError: usageError,
	}
}

// reorder moves a command's flags before its other arguments, because people
// write `compile MODEL -o FILE` and the flag package stops at the first
// argument that is not a flag.
func reorder(app *cli.App, args []string) []string {
	if len(args) == 0 {
		return args
	}
	var command *cli.Command
	words, group := 0, false
	for commands := app.Commands; words < len(args); words++ {
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(args[words]) })
		if i < 0 {
			break
		}
		command = commands[i]
		commands = subcommands(command)
		group = len(commands) > 0
	}
	if command == nil || group {
		return args
	}
	valued := map[string]bool{}
	for _, f := range command.Flags {
		for _, n := range f.Names() {
			valued[n] = takesValue(f)
		}
	}
	flags, rest := slices.Clone(args[:words]), []string{}
	for a := args[words:]; len(a) > 0; {
		arg := a[0]
		a = a[1:]
		switch {
		case arg == "--":
			rest = append(rest, a...)
			a = nil
		case len(arg) > 1 && arg[0] == '-':
			flags = append(flags, arg)
			name := strings.TrimLeft(arg, "-")
			if valued[name] && len(a) == 0 {
				return append(slices.Clone(args[:words]), arg) // whose value the library misses
			}
			if valued[name] {
				flags = append(flags, a[0])
				a = a[1:]
			}
		default:
			rest = append(rest, arg)
		}
	}
	return append(append(flags, "--"), rest...)
}

// subcommands returns those of a command without the one for help that the
// library puts below a command that ran.
func subcommands(c *cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(c.Subcommands), func(c *cli.Command) bool { return c.Name == "help" })
}

// oneArg returns the command's single argument, which people know as what.
func oneArg(c *cli.Context, what string) (string, error) {
	switch c.NArg() {
	case 1:
		return c.Args().First(), nil
	case 0:
		return "", fmt.Errorf("%s: which %s? (usage: popefgen %s %s)", c.Command.Name, what, c.Command.Name, c.Command.ArgsUsage)
	}
	return "", fmt.Errorf("%s: found %d arguments (%s), want one %s", c.Command.Name, c.NArg(), strings.Join(c.Args().Slice(), ", "), what)
}

// noArgs refuses arguments of a command that takes none.
func noArgs(c *cli.Context) error {
	if c.NArg() > 0 {
		return fmt.Errorf("%s: argument %q is not expected; popefgen %s --help shows the usage", c.Command.Name, c.Args().First(), c.Command.Name)
	}
	return nil
}

// assignments splits the values of a flag of the form NAME=VALUE.
func assignments(flag string, values []string) ([][2]string, error) {
	var out [][2]string
	seen := map[string]bool{}
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("--%s %q: want NAME=VALUE", flag, v)
		}
		if seen[name] {
			return nil, fmt.Errorf("--%s: %q is given twice, want it once", flag, name)
		}
		seen[name] = true
		out = append(out, [2]string{name, value})
	}
	return out, nil
}

// maxFlag bounds sizes that data decides.
var maxFlag = &cli.StringSliceFlag{Category: onnxOnly, Name: "max", Usage: "the most elements that data may make of an axis, `NAME=SIZE`, by the name of the value or of its open dimension; more is an error at run time"}

// maxima returns what --max says.
func maxima(c *cli.Context) (map[string]int64, error) {
	most := map[string]int64{}
	for _, text := range c.StringSlice("max") {
		at := max(strings.LastIndexByte(text, '='), 0)
		name := text[:at]
		n, err := strconv.ParseInt(strings.TrimPrefix(text[at:], "="), 10, 64)
		if name == "" || err != nil || n < 1 {
			return nil, fmt.Errorf("--max %s: want NAME=SIZE with a size of at least 1, one for each --max", text)
		}
		if _, ok := most[name]; ok {
			return nil, fmt.Errorf("--max: %q is given twice, want it once", name)
		}
		most[name] = n
	}
	return most, nil
}
