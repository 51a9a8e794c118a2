// Command serve measures servers of popefgen beside bare ones: servers that do for a request what every program must that is
// written on net/http or grpc-go, and nothing else. Each server is a process of its own, whose processor time the kernel
// counts; they take turns, and load comes from h2load where it is installed. It prints a table, and with -write
// puts it into docs/performance.md.
//
//	serve                   measure everything
//	serve -only 'REST'      what has this in its name
//	serve -server bare-grpc be one server, on an address that it prints
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/atomicfile"
)

func main() {
	server := flag.String("server", "", "be this server: "+strings.Join(serverNames(), ", "))
	o := &options{}
	flag.StringVar(&o.only, "only", "", "measure the servers, or the goals, whose name has this")
	flag.IntVar(&o.rounds, "rounds", 15, "rounds in which servers take turns")
	flag.IntVar(&o.requests, "requests", 5000, "small requests of a round; of large ones a tenth")
	driver := flag.String("driver", "", "what counts requests a second: h2load, wrk, hey (these two with -only REST) or go; default: h2load if it is installed")
	docs := flag.String("write", "", "folder whose performance.md is to have the tables")
	flag.Parse()
	if *server != "" {
		exitIf(beServer(*server))
		return
	}
	if *driver == "" {
		*driver = "go"
		if _, err := exec.LookPath("h2load"); err == nil {
			*driver = "h2load"
		}
	}
	if o.drive = drivers[*driver]; o.drive == nil {
		exitIf(fmt.Errorf("-driver: there is no driver %q; want h2load, wrk, hey or go", *driver))
	}
	exitIf(run(o, *driver, *docs))
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

// options say what is measured, and how long.
type options struct {
	only             string
	rounds, requests int
	drive            driver
}

func (o *options) wants(name string) bool { return strings.Contains(name, o.only) }

// sections are what is measured, each a table with a sentence before it.
var sections = []struct {
	name    string // "" are the pairs, which have names of their own
	text    string
	measure func(*options) (string, error)
}{
	{"", "", measurePairs},
	{"metrics and traces", "What it costs that requests are observed; the second row says what two processes of the same server differ by:", measureObserved},
	{"several sizes", "The example digits, compiled for several sizes and for each alone, behind callers that send a sample each:", measureFamilies},
	{"overload", "", measureOverload},
	{"slow clients", "A good client beside a thousand slow ones, which come again when they are cut off:", measureSlow},
	{"ready", "From a file to a server that is ready, and to the first answer of the package that is generated of it:", measureReady},
	{"idle", "", measureIdle},
}

func run(o *options, driver, docs string) error {
	if o.only != "" && docs != "" {
		return fmt.Errorf("-write: the document shows everything; it does not go with -only")
	}
	text := fmt.Sprintf("Medians of %d rounds; requests/s by %s.\n", o.rounds, driver)
	fmt.Print(text)
	any := false
	for _, s := range sections {
		if s.name != "" {
			if !o.wants(s.name) {
				continue
			}
			fmt.Fprintln(os.Stderr, "measuring", s.name)
		}
		table, err := s.measure(o)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if table == "" {
			continue
		}
		any = true
		part := "\n" + table
		if s.text != "" {
			part = "\n" + s.text + "\n" + part
		}
		fmt.Print(part)
		text += part
	}
	if !any {
		return fmt.Errorf("-only: nothing that is measured has %q in its name", o.only)
	}
	if docs == "" {
		return nil
	}
	path := filepath.Join(docs, "performance.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	out, err := report.Replace(string(doc), "serving", text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.WriteBytes(path, []byte(out))
}

// number writes three digits that say something.
func number(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
