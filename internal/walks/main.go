// Command walks checks the walks of docs/walks.md, lists of functions in the
// order in which they call each other, and prints who calls each. With -w it puts
// links right first that point to a file which a function has left for another one
// of its package. With a directory and the name of a function, as rt Session.Run, it
// prints what of this module that calls.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/popefgen/popefgen/internal/atomicfile"
)

// page is the file with the walks, below the root of the module.
const page = "docs/walks.md"

func main() {
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: go run ./internal/walks [-w] [DIRECTORY NAME]\nchecks the walks of docs/walks.md, or prints what a function calls: go run ./internal/walks rt Session.Run")
		flag.PrintDefaults()
	}
	write := flag.Bool("w", false, "put links of docs/walks.md to other files of a package right")
	flag.Parse()
	var err error
	switch flag.NArg() {
	case 0:
		if *write {
			err = putRight(".")
		}
		if err == nil {
			err = printWalks(".")
		}
	case 2:
		err = printCalls(".", flag.Arg(0), flag.Arg(1))
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "walks:", err)
		os.Exit(1)
	}
}

// putRight writes the page with links to the files that hold the functions now.
func putRight(root string) error {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return err
	}
	walks, err := parse(string(text))
	if err != nil {
		return err
	}
	code, err := load(root, directories(walks))
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(filepath.Join(root, page), []byte(code.relinked(string(text), walks)))
}

func printWalks(root string) error {
	walks, err := readPage(root)
	if err != nil {
		return err
	}
	code, err := load(root, directories(walks))
	if err != nil {
		return err
	}
	var wrong []string
	for _, w := range walks {
		fmt.Println(w.title)
		callers, err := code.follow(w)
		for i, s := range w.steps {
			if i < len(callers) && callers[i] != "" {
				fmt.Printf("  %2d. %-50s from %s\n", i+1, s.name, callers[i])
			} else {
				fmt.Printf("  %2d. %s\n", i+1, s.name)
			}
		}
		if err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return nil
}

func printCalls(root, dir, name string) error {
	code, err := load(root, []string{dir})
	if err != nil {
		return err
	}
	f, ok := code.functions[key{importPath(dir), name}]
	if !ok {
		return fmt.Errorf("%s has no function %s", dir, name)
	}
	for _, text := range f.calls() {
		fmt.Println(text)
	}
	return nil
}
