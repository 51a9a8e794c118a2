package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/popef/contract"
)

// why says in a few lines what is stale in a package, what that means for its
// callers and what to do; with --diff, all lines that differ come first.
func (j *job) why(c *cli.Context, r *rendered, stale []string, progress string) error {
	var b strings.Builder
	if c.Bool("diff") {
		diff, err := gen.Check(j.dir, r.files)
		if err != nil {
			return err
		}
		b.WriteString(diff)
	}
	file := filepath.Join(j.dir, contract.FileName)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, bad := contract.ParseFile(string(text))
	model := strings.Join(j.models, " ")
	switch _, none := os.Stat(j.dir); {
	case none != nil:
		fmt.Fprintf(&b, "%s%s is missing: there is no package of %s\n", progress, j.dir, model)
	case text == nil:
		fmt.Fprintf(&b, "%s%s is stale: %s has no %s, by which it could be compared (%s)\n", progress, j.dir, j.dir, contract.FileName, files(stale))
	case bad != nil:
		fmt.Fprintf(&b, "%s%s is stale: %s: %v\n", progress, j.dir, file, bad)
	default:
		report := verdict(file, before, j.dir, r.published)
		if report.Verdict == contract.Identical {
			fmt.Fprintf(&b, "%s%s is stale, though its contract is that of %s: %s\n", progress, j.dir, model, j.sameContract(stale))
			break
		}
		fmt.Fprintf(&b, "%s%s is stale: %s has another contract (%s)\n", progress, j.dir, model, files(stale))
		if err := report.text(&b); err != nil {
			return err
		}
	}
	again := "run the same command without --check"
	if c.Command.Name == "check" {
		again = "run popefgen generate with the same flags"
	}
	if c.Bool("diff") {
		fmt.Fprintf(&b, "%s and commit what it writes\n", again)
	} else {
		fmt.Fprintf(&b, "%s and commit what it writes; --diff prints every line\n", again)
	}
	_, err = fmt.Fprint(c.App.Writer, b.String())
	return err
}

// sameContract says what is stale where callers see no difference.
func (j *job) sameContract(stale []string) string {
	model := false
	for _, name := range stale {
		if filepath.Ext(name) != ".go" && name != contract.FileName {
			model = true
		} else {
			return files(stale) + ", as other flags (--embed, --queue, --batch-dim, --no-queues, --serve, --tests) or another version of popefgen write it"
		}
	}
	if model {
		return files(stale) + " is another version of the model, with other weights"
	}
	return files(stale)
}

// files lists files that are not as they should be.
func files(names []string) string {
	const most = 6
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
