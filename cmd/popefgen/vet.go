package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/vet"
)

// vetCommand lets go vet do the work, with this program as its tool: go vet
// knows the packages and keeps what it found.
var vetCommand = &cli.Command{
	Name:  "vet",
	Usage: "report code that copies a generated package's tensors",
	UsageText: "popefgen vet [packages]\n\nIt reports loops and parameters that copy tensors, in the packages or the one here. The tool itself works under go vet\n" +
		"too, beside its other checks or in an editor: go vet -vettool=$(which popefgen) ./...\n\nexample: popefgen vet ./...",
	ArgsUsage: "[packages]",
	Action: func(c *cli.Context) error {
		if self == "" {
			return errors.New("vet: this program's file can't be found, which go vet is to run")
		}
		for _, p := range c.Args().Slice() {
			if strings.HasPrefix(p, "-") {
				return fmt.Errorf("vet: found %q, want packages, such as all below this folder (./...) or one", p)
			}
		}
		cmd := exec.CommandContext(c.Context, "go", append([]string{"vet", "-vettool=" + self}, c.Args().Slice()...)...)
		cmd.Stdout, cmd.Stderr = c.App.Writer, c.App.ErrWriter
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			return errNo // go has said why
		case err != nil:
			return fmt.Errorf("vet: run the go command: %w", err)
		}
		return nil
	},
}

// actAsVetTool is what go vet runs this program for, with a package's
// configuration or a question about the tool; it returns if it is not that.
func actAsVetTool(args []string) {
	if slices.Contains([]string{"-V=full", "-flags"}, strings.Join(args, " ")) || len(args) > 0 && strings.HasSuffix(args[len(args)-1], "/vet.cfg") {
		os.Args = append([]string{"popefgen"}, args...)
		unitchecker.Main(vet.Analyzers...)
	}
}
