package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/build"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// binary is a package's tests with many mutants in it, of which an environment
// variable chooses one.
type binary struct {
	mod     *module
	path    string
	target  target
	overlay string             // for go commands that the tests run
	groups  map[string]*record // by flags but for -run
}

// record is what tests did without a mistake, in one run of all that some
// mutants need.
type record struct {
	run   []string // expressions of -run; "" is all
	once  sync.Once
	ok    bool // all passed
	tests map[string]outcome
}

// outcome is what a test did without a mistake.
type outcome struct {
	ok   bool
	took time.Duration
}

// command is the arguments of go test of a mutant, as a test binary takes them.
type command struct {
	patterns []string
	flags    []string // but for -run
	run      string
	timeout  time.Duration // 0: none given
}

// parseCommand takes the arguments of go test apart. It fails at a flag that a
// binary compiled once for all mutants cannot take.
func parseCommand(args []string) (command, error) {
	var c command
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			if len(c.flags) > 0 || c.run != "" {
				return c, fmt.Errorf("%q behind a flag", args[i])
			}
			c.patterns = append(c.patterns, args[i])
			continue
		}
		name, value, has := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		switch name {
		case "short":
			c.flags = append(c.flags, "-test.short")
			continue
		case "run", "skip", "timeout", "count":
		default:
			return c, fmt.Errorf("the flag -%s", name)
		}
		if !has {
			if i++; i == len(args) {
				return c, fmt.Errorf("the flag -%s has no value", name)
			}
			value = args[i]
		}
		switch name {
		case "run":
			c.run = value
		case "timeout":
			d, err := time.ParseDuration(value)
			if err != nil {
				return c, err
			}
			c.timeout = d
		default:
			c.flags = append(c.flags, "-test."+name+"="+value)
		}
	}
	return c, nil
}

// plan returns the clone of a mutant and the packages whose tests must notice it,
// that of its file first, or an error that says why it must be compiled by itself.
func (mod *module) plan(ctx context.Context, number int, m *mutant) (*clone, []target, error) {
	c, err := parseCommand(m.test)
	if err != nil {
		return nil, nil, err
	}
	all, err := mod.expand(ctx, c.patterns)
	if err != nil {
		return nil, nil, err
	}
	full := filepath.Join(mod.dir, filepath.FromSlash(m.file))
	var targets []target
	for _, t := range all {
		switch {
		case t.dir == filepath.Dir(full):
			targets = slices.Insert(targets, 0, t)
		case t.needs(path.Dir(m.file)):
			targets = append(targets, t)
		}
	}
	if len(targets) == 0 {
		return nil, nil, errors.New("no package with those tests contains its file")
	}
	if path.Ext(m.file) != ".go" || strings.HasSuffix(m.file, "_test.go") {
		return nil, nil, errors.New("not a file of the package itself")
	}
	if ok, err := build.Default.MatchFile(filepath.Dir(full), filepath.Base(full)); err != nil || !ok {
		return nil, nil, errors.New("a file that is not compiled here")
	}
	source, err := os.ReadFile(full)
	if err != nil {
		return nil, nil, err
	}
	mutated, err := m.apply(source)
	if err != nil {
		return nil, nil, err
	}
	cl, err := newClone(number, m.file, source, mutated)
	return cl, targets, err
}

// compile compiles the mutants that can be compiled together, and returns the
// binaries of each, one for each package of tests, none for those that must be
// tried by themselves, with why.
func (mod *module) compile(ctx context.Context, mutants []mutant, stdout io.Writer) (in [][]*binary, alone []string) {
	in, alone = make([][]*binary, len(mutants)), make([]string, len(mutants))
	clones := map[string][]*clone{}
	targets := map[string]target{}
	of := make([][]string, len(mutants)) // packages of tests, in the order in which they are run
	var order []string
	for i := range mutants {
		c, ts, err := mod.plan(ctx, i+1, &mutants[i])
		if err != nil {
			alone[i] = err.Error()
			continue
		}
		for _, t := range ts {
			if clones[t.path] == nil {
				order = append(order, t.path)
			}
			clones[t.path], targets[t.path] = append(clones[t.path], c), t
			of[i] = append(of[i], t.path)
		}
	}
	linked := map[string]map[int]*binary{} // by package of tests and number
	for n, p := range order {
		list := clones[p]
		if len(list) < 2 {
			continue // a binary for one is no quicker
		}
		begin := time.Now()
		linked[p] = map[int]*binary{}
		for b, compiled := range mod.link(ctx, strconv.Itoa(n), targets[p], list) {
			for _, c := range compiled {
				linked[p][c.number] = b
				b.needs(&mutants[c.number-1])
			}
		}
		fmt.Fprintf(stdout, "%d of %d mutants of the tests of %s compiled together in %.0fs\n", len(linked[p]), len(list), p, time.Since(begin).Seconds())
	}
	for i := range mutants {
		for _, p := range of[i] {
			switch b := linked[p][i+1]; {
			case b != nil:
				in[i] = append(in[i], b)
			case len(clones[p]) > 1:
				alone[i] = "it does not compile together with others"
			}
		}
		if len(in[i]) < len(of[i]) {
			in[i] = nil
		}
	}
	return in, alone
}

// link compiles clones into one binary, without those that do not compile, or
// into several where the compiler does not say which those are.
func (mod *module) link(ctx context.Context, name string, t target, clones []*clone) map[*binary][]*clone {
	folder := filepath.Join(mod.work, "_"+name) // no package to the go command, whose patterns leave such names out
	b := &binary{mod: mod, path: filepath.Join(folder, "tests.exe"), target: t, overlay: filepath.Join(folder, "overlay.json"), groups: map[string]*record{}}
	for len(clones) > 0 && ctx.Err() == nil {
		args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", b.path, "-overlay=" + b.overlay}
		named, packages, err := mod.write(folder, clones)
		if err != nil {
			return nil
		}
		for _, p := range packages {
			args = append(args, "-gcflags=./"+p+"=-e") // every error
		}
		cmd := exec.CommandContext(ctx, "go", append(args, t.path)...)
		cmd.Dir, cmd.Env = mod.dir, mod.env
		out, err := cmd.CombinedOutput()
		if err == nil {
			return map[*binary][]*clone{b: clones}
		}
		rest, changed := amend(clones, string(out), named)
		if !changed {
			if len(clones) == 1 {
				return nil
			}
			all := mod.link(ctx, name+"a", t, clones[:len(clones)/2])
			if all == nil {
				all = map[*binary][]*clone{}
			}
			for b, list := range mod.link(ctx, name+"b", t, clones[len(clones)/2:]) {
				all[b] = list
			}
			return all
		}
		clones = rest
	}
	return nil
}

// write writes the overlay for some clones, and returns the file that each woven
// file stands for, by name, and the folders of the packages.
func (mod *module) write(folder string, clones []*clone) (named map[string]string, packages []string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, nil, err
	}
	files := map[string][]*clone{}
	for _, c := range clones {
		files[c.file] = append(files[c.file], c)
	}
	named, replace := map[string]string{}, map[string]string{}
	put := func(file string, text []byte) error {
		name := strings.ReplaceAll(file, "/", "__")
		named[name] = file
		at := filepath.Join(folder, name)
		replace[filepath.Join(mod.dir, filepath.FromSlash(file))] = at
		return os.WriteFile(at, text, 0o644)
	}
	for file, list := range files {
		source, err := os.ReadFile(filepath.Join(mod.dir, filepath.FromSlash(file)))
		if err != nil {
			return nil, nil, err
		}
		text, err := weave(source, list)
		if err != nil {
			return nil, nil, err
		}
		if err := put(file, text); err != nil {
			return nil, nil, err
		}
		if p := path.Dir(file); !slices.Contains(packages, p) {
			packages = append(packages, p)
			if err := put(path.Join(p, "zz_mutants.go"), chooser(list[0].pkg)); err != nil {
				return nil, nil, err
			}
		}
	}
	slices.Sort(packages)
	data, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return nil, nil, err
	}
	return named, packages, os.WriteFile(filepath.Join(folder, "overlay.json"), data, 0o644)
}

// needs notes the tests of a mutant among those that must pass without it.
func (b *binary) needs(m *mutant) {
	c, _ := parseCommand(m.test)
	key := strings.Join(c.flags, "\x00")
	if b.groups[key] == nil {
		b.groups[key] = &record{}
	}
	if r := b.groups[key]; !slices.Contains(r.run, c.run) {
		r.run = append(r.run, c.run)
	}
}

var testEnd = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\w+) \(([0-9.]+)s\)$`)

// sound reports whether the tests of a mutant pass in the binary without a
// mistake, and how long they took.
func (b *binary) sound(ctx context.Context, c *command) (bool, time.Duration) {
	r := b.groups[strings.Join(c.flags, "\x00")]
	r.once.Do(func() {
		union := strings.Join(r.run, "|")
		if slices.Contains(r.run, "") {
			union = ""
		}
		var out string
		r.ok, out = b.run(ctx, nil, 0, &command{flags: append(slices.Clone(c.flags), "-test.v"), run: union}, 10*time.Minute)
		r.tests = map[string]outcome{}
		for _, m := range testEnd.FindAllStringSubmatch(out, -1) {
			s, _ := strconv.ParseFloat(m[3], 64)
			r.tests[m[2]] = outcome{m[1] != "FAIL", time.Duration(s * float64(time.Second))}
		}
	})
	match, err := regexp.Compile(wholeTests(c.run))
	if err != nil {
		return false, 0
	}
	ok, found, took := true, false, time.Duration(0)
	for name, t := range r.tests {
		if match.MatchString(name) {
			ok, found, took = ok && t.ok, true, took+t.took
		}
	}
	return r.ok || ok && found, took
}

// wholeTests returns an expression of -run without what it chooses among
// subtests.
func wholeTests(run string) string {
	var out strings.Builder
	depth, inside := 0, false
	for _, r := range run {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '/':
			inside = inside || depth == 0
		case '|':
			inside = inside && depth > 0
		}
		if !inside {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// run runs tests of the binary with a mutant's mistake in them, 0 for none, as
// go test does, and reports whether they passed, with their output. Tests that
// take longer than the limit did not pass. A run that takes a fifth of the limit
// most likely hangs, and needs no processor: others run beside it.
func (b *binary) run(ctx context.Context, turn *turn, number int, c *command, limit time.Duration, rapid ...string) (bool, string) {
	args := append([]string{"-test.paniconexit0", "-test.timeout=" + limit.String()}, c.flags...)
	if number > 0 {
		args = append(args, "-test.failfast")
	}
	if c.run != "" {
		args = append(args, "-test.run="+c.run)
	}
	if b.target.rapid {
		args = append(append(args, "-rapid.nofailfile", "-rapid.shrinktime=1ms"), rapid...)
	}
	ctx, stop := context.WithTimeout(ctx, limit+10*time.Second) // should the tests not end themselves
	defer stop()
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Dir = b.target.dir
	cmd.Env = append(slices.Clone(b.mod.env), "PWD="+cmd.Dir, variable+"="+strconv.Itoa(number), goflags(b.overlay))
	cmd.WaitDelay = 5 * time.Second
	if turn != nil {
		turn.take()
		defer time.AfterFunc(limit/5, turn.give).Stop()
	}
	out, err := cmd.CombinedOutput()
	return err == nil, string(out)
}

// turn is the right of one worker to run tests, of as many as there are places
// in free. It is given back early where tests seem to hang.
type turn struct {
	free chan struct{} // has as many elements as there may be turns more
	mu   sync.Mutex
	held bool
}

func (t *turn) take() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		<-t.free
		t.held = true
	}
}

func (t *turn) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		t.free <- struct{}{}
		t.held = false
	}
}

// goflags returns GOFLAGS with an overlay for go commands.
func goflags(overlay string) string {
	return "GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" '-overlay="+overlay+"'")
}

// limit returns how long tests may take with a mistake that take so long without:
// ten times that, and no less than ten seconds, but never longer than the test
// line or -timeout says.
func (mod *module) limit(c *command, took time.Duration) time.Duration {
	most := mod.timeout
	if c.timeout > 0 {
		most = c.timeout
	}
	return min(most, max(10*time.Second, 10*took))
}

// tryTogether runs the tests of a mutant in a binary with many. It returns why
// the mutant must be tried by itself all the same, if it must.
func (b *binary) tryTogether(ctx context.Context, turn *turn, number int, m *mutant) (v verdict, alone string) {
	c, err := parseCommand(m.test)
	if err != nil {
		return invalid, err.Error()
	}
	sound, took := b.sound(ctx, &c)
	if !sound {
		return invalid, "its tests fail in the binary with all mutants"
	}
	limit := b.mod.limit(&c, took)
	ok, _ := b.run(ctx, turn, number, &c, limit)
	if ok && m.survives == "" && b.target.rapid { // the examples that rapid drew may have been the wrong ones
		var out string
		ok, out = b.run(ctx, turn, number, &c, limit, "-rapid.checks=50")
		ok = ok || strings.Contains(out, "panic: test timed out after") // so many may take long without a mistake
	}
	switch {
	case ctx.Err() != nil:
		return invalid, ctx.Err().Error()
	case ok && m.survives == "":
		return survived, "it survives among others"
	case ok:
		return survived, ""
	case m.survives != "":
		return killed, "noticed among others in spite of its reason"
	}
	return killed, ""
}
