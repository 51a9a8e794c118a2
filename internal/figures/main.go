// Command figures measures what README.md says of the project and rewrites the
// table between its two markers. It needs the public data (POPEFGEN_TESTDATA, or
// ../shared) and a machine that nobody else uses.
//
//	go run ./internal/figures [-print] [-only REGEXP]
//
// With -print it writes nothing. `make figures` runs it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/popefgen/popefgen/internal/atomicfile"
)

const (
	beginMark = "<!-- figures: written by make figures -->"
	endMark   = "<!-- end of figures -->"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("figures", flag.ContinueOnError)
	flags.SetOutput(stderr)
	printOnly := flags.Bool("print", false, "print the table, leave README.md alone")
	only := flags.String("only", "", "only rows whose text matches `regexp`; with -print")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	trouble := func(err error) int {
		fmt.Fprintln(stderr, "figures:", err)
		return 2
	}
	if *only != "" && !*printOnly {
		return trouble(errors.New("-only goes with -print: README.md shows all rows"))
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return trouble(err)
	}
	m, err := newMachine(stderr)
	if err != nil {
		return trouble(err)
	}
	defer m.close()
	table := "| what | figure | command |\n|---|---|---|\n"
	for _, r := range rows {
		if !match.MatchString(r.what) {
			continue
		}
		fmt.Fprintln(stderr, r.what, "...")
		value, err := r.measure(ctx, m)
		if err != nil {
			return trouble(fmt.Errorf("%s: %w", r.what, err))
		}
		line := fmt.Sprintf("| %s | %s | %s |\n", r.what, value, r.command)
		fmt.Fprint(stdout, line)
		table += line
	}
	if *printOnly {
		return 0
	}
	readme, err := os.ReadFile("README.md")
	if err == nil {
		readme, err = replace(readme, table)
	}
	if err == nil {
		err = atomicfile.WriteBytes("README.md", readme)
	}
	if err != nil {
		return trouble(err)
	}
	return 0
}

// replace puts the table between the markers of a page.
func replace(page []byte, table string) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(beginMark+"\n"))
	_, after, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok || !ok2 {
		return nil, fmt.Errorf("README.md: want the lines %q and %q around the table", beginMark, endMark)
	}
	return bytes.Join([][]byte{before, []byte(beginMark + "\n\n" + strings.TrimSpace(table) + "\n\n" + endMark), after}, nil), nil
}

// testdata returns a folder of the public data.
func testdata(elem ...string) (string, error) {
	dir := os.Getenv("POPEFGEN_TESTDATA")
	if dir == "" {
		dir = filepath.Join("..", "shared")
	}
	path := filepath.Join(append([]string{dir}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the public data is not here (set POPEFGEN_TESTDATA): %w", err)
	}
	return filepath.Abs(path)
}
