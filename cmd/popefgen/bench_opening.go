package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/bench"
)

// firstAnswer is the flag with which bench starts itself: the new process opens
// the model, answers one request, and prints what that took.
const firstAnswer = "first-answer"

// self is the program's file, for a process of its own; empty where Run was not
// called by main.
var self string

// opening measures in processes of their own how long it takes to open the
// model, and takes the median of several. Where there are none, it measures
// here.
func opening(c *cli.Context, t *bench.Target, compile time.Duration) (bench.Opening, bench.Memory, error) {
	here := func() (bench.Opening, bench.Memory, error) {
		o, m, err := bench.Open(c.Context, t)
		o.Compile = compile
		o.Total += compile
		return o, m, err
	}
	if self == "" || c.Bool(firstAnswer) {
		return here()
	}
	const most = 5
	var runs []bench.Report
	for begin := time.Now(); len(runs) == 0 || len(runs) < most && time.Since(begin) < c.Duration("duration"); {
		r, err := firstAnswerOf(c)
		if err != nil {
			if o, m, e := here(); e != nil {
				return o, m, e // most likely the same, in plain words
			}
			return bench.Opening{}, bench.Memory{}, err
		}
		runs = append(runs, r)
	}
	slices.SortFunc(runs, func(a, b bench.Report) int { return int(a.Opening.Process - b.Opening.Process) })
	r := &runs[(len(runs)-1)/2]
	return r.Opening, r.Memory, nil
}

// firstAnswerOf starts a process with the same flags and arguments.
func firstAnswerOf(c *cli.Context) (r bench.Report, err error) {
	args := []string{c.Command.Name, "--" + firstAnswer}
	for _, f := range slices.Concat(engineFlags, modelFlags, []cli.Flag{&cli.StringSliceFlag{Name: "input"}, &cli.Uint64Flag{Name: "random"}}) {
		name := f.Names()[0]
		if !c.IsSet(name) {
			continue
		}
		if values := c.StringSlice(name); len(values) > 0 {
			for _, v := range values {
				args = append(args, "--"+name+"="+v)
			}
			continue
		}
		args = append(args, fmt.Sprintf("--%s=%v", name, c.Value(name)))
	}
	cmd := exec.CommandContext(c.Context, self, append(append(args, "--"), c.Args().Slice()...)...)
	cmd.Args[0] = os.Args[0]
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return r, fmt.Errorf("start a process that opens the model: %w", err)
	}
	line := bufio.NewReader(out)
	_, first := line.Peek(1)
	took := time.Since(start)
	text, readErr := io.ReadAll(line)
	if err := cmd.Wait(); err != nil {
		return r, fmt.Errorf("in a process of its own: %w: %s", err, bytes.TrimSpace(talk.Bytes()))
	}
	if err := errors.Join(first, readErr); err != nil {
		return r, fmt.Errorf("read what a process says that opened the model: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read what a process says that opened the model: %w", err)
	}
	r.Opening.Process = took
	return r, nil
}
