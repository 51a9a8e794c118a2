// Command picture draws which package of this module imports which, with their
// sizes, as the SVG file that docs/architecture.md shows. It reads the source of
// the module in the working directory. What nobody outside can import and no
// package does is not drawn: the repository's own commands, and what tests alone
// use.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"github.com/popefgen/popefgen/internal/atomicfile"
)

func main() {
	out := flag.String("o", "docs/images/packages.svg", "file to write")
	flag.Parse()
	if err := write(".", *out); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func write(root, file string) error {
	packages, err := read(root)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := draw(&text, used(packages)); err != nil {
		return err
	}
	return atomicfile.WriteBytes(file, text.Bytes())
}
