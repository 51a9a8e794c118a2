// Command picture draws which package of this module imports which, with their
// sizes, as the SVG file that docs/architecture.md shows. It reads the source of
// the module in the working directory. What nobody outside can import and no
// package does is not drawn: the repository's own commands, and what tests alone
// use. With -files it counts references between files of each package instead, and
// with a package's path after it lists those against the order of the others.
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
	files := flag.Bool("files", false, "count what the files of each package use of each other, and draw nothing")
	flag.Parse()
	err := error(nil)
	if *files {
		err = printFiles(os.Stdout, ".", flag.Arg(0))
	} else {
		err = write(".", *out)
	}
	if err != nil {
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
