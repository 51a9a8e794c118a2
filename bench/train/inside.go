package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/popef"
)

// measuredSteps is how many steps a process trains whose memory is measured.
const measuredSteps = 5

// measureInside takes steps apart.
func measureInside(o *options) (string, error) {
	table := report.NewTable("network", "backward / forward", "update, share", "step / kernels", "two threads / one", "allocations", "memory", "PyTorch's", "ratio")
	for _, n := range o.networks() {
		row, err := o.inside(n)
		if err != nil {
			return "", fmt.Errorf("%s: %w", n.name, err)
		}
		table.Row(append([]string{n.title}, row...)...)
	}
	return table.String(), nil
}

func (o *options) inside(n *network) (row []string, err error) {
	l, err := n.learner(autodiff.RecomputeNone, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	two, err := n.learner(autodiff.RecomputeNone, 2)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, two.close()) }()
	var step, forward, twice measure.Series
	first, err := o.turn(2, l.step)
	if err != nil {
		return nil, err
	}
	k := o.perTurn(first[0])
	for range o.rounds {
		for _, c := range []struct {
			series *measure.Series
			run    func() error
		}{{&step, l.step}, {&forward, l.evaluate}, {&twice, two.step}} {
			times, err := o.turn(k, c.run)
			if err != nil {
				return nil, err
			}
			c.series.Batch, c.series.Rounds = 1, append(c.series.Rounds, times)
		}
	}
	// Profiles read the clock, so that these steps are not those above.
	l.engine.EnableProfile(true)
	var whole time.Duration
	for range k {
		begin := time.Now()
		if err := l.step(); err != nil {
			return nil, err
		}
		whole += time.Since(begin)
	}
	var kernels, update time.Duration
	for _, p := range l.engine.Profile() {
		kernels += p.Total
		if p.Op == "Update" {
			update += p.Total
		}
	}
	l.engine.EnableProfile(false)
	share := update.Seconds() / kernels.Seconds()
	back := step.Median()*(1-share) - forward.Median()
	speedup := report.Missing
	if !o.processorTime {
		speedup = report.Ratio(step.Median() / twice.Median())
	}
	allocations := testing.AllocsPerRun(5, func() { err = errors.Join(err, l.step()) })
	if err != nil {
		return nil, err
	}
	ours, theirs, err := o.memory(n)
	if err != nil {
		return nil, err
	}
	return []string{report.Ratio(back / forward.Median()), report.Share(share), report.Ratio(whole.Seconds() / kernels.Seconds()), speedup, fmt.Sprint(allocations),
		report.Ratio(float64(ours) / 1e6), report.Ratio(float64(theirs) / 1e6), report.Ratio(float64(ours) / float64(theirs))}, nil
}

// memory returns how many bytes training a network adds to a process that has the libraries: ours, which has the compiled model in a file,
// and PyTorch's.
func (o *options) memory(n *network) (ours, theirs int64, err error) {
	t, err := startTorch(o.python, 1)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := errors.Join(t.threads(1), t.open(n)); err != nil {
		return 0, 0, err
	}
	if _, _, err := t.steps(measuredSteps, "wall"); err != nil {
		return 0, 0, err
	}
	a, err := t.ask(map[string]any{"memory": true})
	if err != nil {
		return 0, 0, err
	}
	r, err := n.compile(autodiff.RecomputeNone)
	if err != nil {
		return 0, 0, err
	}
	file := filepath.Join(t.dir, n.name+".popef")
	if err := r.WriteFile(file, false); err != nil {
		return 0, 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	out, err := exec.Command(self, "-memory", n.name, "-file", file).Output()
	if err != nil {
		return 0, 0, fmt.Errorf("the process whose memory is measured: %w", err)
	}
	ours, err = strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return ours, a.Most - a.Before, err
}

// beMeasured trains the named network, whose training model is in a file, and prints by how many bytes the process grew.
func beMeasured(name, path string) error {
	for i := range networks {
		n := &networks[i]
		if n.name != name {
			continue
		}
		before, err := status("VmRSS")
		if err != nil {
			return err
		}
		file, err := popef.Load(path)
		if err != nil {
			return err
		}
		l, err := openLearner(n, file, 1)
		if err != nil {
			return err
		}
		for range measuredSteps {
			if err := l.step(); err != nil {
				return err
			}
		}
		most, err := status("VmHWM")
		if err != nil {
			return err
		}
		fmt.Println(most - before)
		return l.close()
	}
	return fmt.Errorf("-memory: there is no network %q", name)
}

// status returns a number of bytes of /proc/self/status.
func status(field string) (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if rest, ok := strings.CutPrefix(string(line), field+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", field)
}
