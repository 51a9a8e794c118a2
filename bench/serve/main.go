// Command serve measures servers of popefgen beside bare ones: servers that do for a request what every program must that is
// written on net/http or grpc-go, and nothing else. Each server is a process of its own, whose processor time the kernel
// counts; they take turns, and load comes from h2load where it is installed. It prints a table, and with -write
// puts it into docs/performance.md.
//
//	serve                   measure all pairs
//	serve -only 'REST'      those whose name has this
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
	only := flag.String("only", "", "measure the pairs whose name has this")
	rounds := flag.Int("rounds", 5, "turns of every server")
	requests := flag.Int("requests", 20000, "small requests of a turn; of large ones a tenth")
	driver := flag.String("driver", "", "what makes the requests: h2load or go; default: h2load if it is installed")
	docs := flag.String("write", "", "folder whose performance.md is to have the table")
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
	exitIf(run(*only, *rounds, *requests, *driver, *docs))
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func run(only string, rounds, requests int, driver, docs string) error {
	if only != "" && docs != "" {
		return fmt.Errorf("-write: the document shows all pairs; it does not go with -only")
	}
	drive := drivers[driver]
	if drive == nil {
		return fmt.Errorf("-driver: there is no driver %q; want h2load or go", driver)
	}
	table := report.NewTable("server", "processor time, µs", "/ bare", "goal", "allocations", "of bare", "allocated, B", "of bare", "requests/s", "of bare", "peak, MiB")
	for _, p := range pairs {
		if !strings.Contains(p.name, only) {
			continue
		}
		fmt.Fprintln(os.Stderr, "measuring", p.name)
		cost, err := p.measure(drive, rounds, requests)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		ours, bare := cost[0], cost[1]
		table.Row(p.name, number(ours.cpu), fmt.Sprintf("%.2f", ours.cpu/bare.cpu), fmt.Sprintf("≤ %g", p.goal), number(ours.mallocs), number(bare.mallocs),
			number(ours.bytes), number(bare.bytes), number(ours.rate), number(bare.rate), number(float64(ours.peak)/(1<<20)))
	}
	text := fmt.Sprintf("Load by %s, best of %d turns.\n\n%s", driver, rounds, table)
	if only == "" {
		fmt.Fprintln(os.Stderr, "measuring several sizes")
		families, err := measureFamilies(drive, rounds, requests/2)
		if err != nil {
			return fmt.Errorf("several sizes: %w", err)
		}
		fmt.Fprintln(os.Stderr, "measuring an overload")
		overload, err := measureOverload(rounds)
		if err != nil {
			return fmt.Errorf("overload: %w", err)
		}
		text += "\nThe example digits, compiled for several sizes and for each alone, behind callers that send a sample each:\n\n" + families + "\n" + overload
	}
	fmt.Println(text)
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
