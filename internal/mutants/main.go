// Command mutants applies deliberate mistakes to this module, in an overlay of
// the go command, and runs the tests that must notice each. It prints the mutants
// that no test noticed, and exits with 1 if there is one without a written reason.
//
// Mistakes inside a function are compiled together, into one binary for each
// package of tests: the function begins with a choice among clones of itself, and
// an environment variable says which mistake runs. All others, and those that
// survive among others, are compiled by themselves.
//
//	go run ./internal/mutants [-sample N] [-run REGEXP] [-j N]
//
// The mutants stand in internal/mutants/list/*.txt.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process: 0 if every mutant was noticed or has a
// reason, 1 if not, 2 on trouble.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	lists := flags.String("lists", "internal/mutants/list", "`folder` of the lists")
	only := flags.String("run", "", "only mutants whose name or file matches `regexp`")
	sample := flags.Int("sample", 0, "only `N` mutants, chosen by -seed; 0: all")
	seed := flags.String("seed", "", "`text` that chooses the sample; the commit if empty")
	jobs := flags.Int("j", 2, "run `N` mutants at a time")
	timeout := flags.Duration("timeout", time.Minute, "tests that take longer have noticed")
	work := flags.String("work", "build/_mutants", "`folder` of the files that take another's place")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	trouble := func(err error) int {
		fmt.Fprintln(stderr, "mutants:", err)
		return 2
	}
	all, err := readLists(*lists)
	if err != nil {
		return trouble(err)
	}
	if _, err := exec.LookPath("g++"); err != nil {
		n := len(all)
		all = slices.DeleteFunc(all, func(m mutant) bool { return m.compilesC() })
		fmt.Fprintf(stdout, "no g++: %d mutants of C++ and of what calls it are left out\n", n-len(all))
	}
	chosen, err := choose(ctx, all, *only, *sample, *seed, stdout)
	if err != nil {
		return trouble(err)
	}
	root, err := os.Getwd()
	if err != nil {
		return trouble(err)
	}
	mod, err := newModule(root, *work, *timeout, chosen)
	if err != nil {
		return trouble(err)
	}
	begin := time.Now()
	results := tryAll(ctx, mod, max(1, min(*jobs, len(chosen))), chosen, stdout)
	return report(results, chosen, time.Since(begin), stdout)
}

// choose returns the mutants that match, or a sample of them, in the order of
// the lists.
func choose(ctx context.Context, all []mutant, only string, sample int, seed string, stdout io.Writer) ([]mutant, error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool { return !match.MatchString(m.name) && !match.MatchString(m.file) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("none of %d mutants matches %q", len(all), only)
	}
	if sample <= 0 || sample >= len(chosen) {
		return chosen, nil
	}
	if seed == "" {
		commit, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
		if err != nil {
			return nil, fmt.Errorf("the commit chooses the sample: git rev-parse HEAD: %w (or give -seed)", err)
		}
		seed = strings.TrimSpace(string(commit))
	}
	fmt.Fprintf(stdout, "a sample of %d of %d mutants: -sample %d -seed %s\n", sample, len(chosen), sample, seed)
	var key [32]byte
	copy(key[:], seed)
	order := rand.New(rand.NewChaCha8(key)).Perm(len(chosen))[:sample]
	slices.Sort(order)
	out := make([]mutant, sample)
	for i, j := range order {
		out[i] = chosen[j]
	}
	return out, nil
}

// tryAll tries every mutant and prints a line for each as it ends.
func tryAll(ctx context.Context, mod *module, jobs int, mutants []mutant, stdout io.Writer) []result {
	results := make([]result, len(mutants))
	in, alone := mod.compile(ctx, mutants, stdout)
	next := make(chan int)
	var all sync.WaitGroup
	var printing sync.Mutex
	free := make(chan struct{}, jobs)
	for range jobs {
		free <- struct{}{}
	}
	const hanging = 4 // so many more may run whose tests seem to hang
	for slot := range jobs + hanging {
		all.Go(func() {
			turn := turn{free: free}
			for i := range next {
				m := &mutants[i]
				turn.take()
				r := mod.tryEither(ctx, &turn, slot, i+1, m, in[i], alone[i])
				turn.give()
				results[i] = r
				why := ""
				if r.alone != "" {
					why = ", by itself: " + r.alone
				}
				printing.Lock()
				fmt.Fprintf(stdout, "%-8s  %5.1fs  %s (%s)%s\n", r.verdict, r.took.Seconds(), m.name, m.file, why)
				printing.Unlock()
			}
		})
	}
	for i := range mutants {
		next <- i
	}
	close(next)
	all.Wait()
	return results
}

// tryEither tries a mutant in the binaries with many, if it is in any, until one
// notices it, and by itself where that does not say enough.
func (mod *module) tryEither(ctx context.Context, turn *turn, slot, number int, m *mutant, in []*binary, alone string) result {
	begin := time.Now()
	excused := len(in) > 0
	for _, b := range in {
		v, why := b.tryTogether(ctx, turn, number, m)
		if why == "" && v == killed {
			return result{verdict: killed, took: time.Since(begin)}
		}
		if why != "" {
			excused, alone = false, why
		}
	}
	if excused {
		return result{verdict: survived, took: time.Since(begin)}
	}
	turn.take()
	r := mod.try(ctx, slot, m)
	r.alone, r.took = alone, time.Since(begin)
	return r
}

// report prints what there is to mend or to know, and two closing lines: how many
// there were of each kind, and how long it took, with the slowest. It returns the
// exit code.
func report(results []result, mutants []mutant, took time.Duration, stdout io.Writer) int {
	noticed, excused, wrong := 0, 0, 0
	for i, r := range results {
		m := &mutants[i]
		switch {
		case r.verdict == killed && m.survives == "":
			noticed++
		case r.verdict == survived && m.survives != "":
			excused++
			fmt.Fprintf(stdout, "\n%s (%s) survives, and may: %s\n", m.name, m.file, m.survives)
		case r.verdict == killed:
			wrong++
			fmt.Fprintf(stdout, "\n%s: %s: a test notices it now: take its \"survives:\" away\n", m.at, m.name)
		default:
			wrong++
			fmt.Fprintf(stdout, "\n%s: %s: %s: %s\n", m.at, m.name, r.verdict, r.note)
			for _, l := range m.old {
				fmt.Fprintln(stdout, "    -", l)
			}
			for _, l := range m.new {
				fmt.Fprintln(stdout, "    +", l)
			}
		}
	}
	fmt.Fprintf(stdout, "\n%d mutants: %d noticed, %d survive with a reason, %d to mend\n", len(mutants), noticed, excused, wrong)
	order := make([]int, len(results))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(results[b].took, results[a].took) })
	var slow []string
	for _, i := range order[:min(5, len(order))] {
		slow = append(slow, fmt.Sprintf("%s %.0f s", mutants[i].name, results[i].took.Seconds()))
	}
	fmt.Fprintf(stdout, "took %v; the slowest: %s\n", took.Round(time.Second), strings.Join(slow, ", "))
	if wrong > 0 {
		return 1
	}
	return 0
}
