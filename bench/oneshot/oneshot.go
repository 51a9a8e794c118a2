// Package oneshot is a process that opens a model with one engine, runs it and
// reports what that cost: how long it took from the start of the process to the
// first answer, and how much memory the process had in use at most. Each engine
// has a command of its own, so that none pays for another.
package oneshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/popefgen/popefgen/bench/peer"
)

// Job is what such a process does.
type Job struct {
	Model   string // file
	Case    peer.Case
	Inputs  []string // files of the inputs' data
	Threads int
	Runs    int             // besides the first
	Library string          `json:",omitempty"` // ONNX Runtime's
	Spec    json.RawMessage `json:",omitempty"` // what generated code would know, for popefgen
}

// Report is what a process tells of itself.
type Report struct {
	Answered  int64 // when the first answer was there, in nanoseconds since 1970
	FirstPeak int64 // bytes of memory in use at most until then
	Peak      int64 // and until the end
}

// Main is the main function of a command: it takes the job from the file that
// the one argument names and writes the report to standard output.
func Main(open func(*Job) (peer.Session, error)) {
	err := errors.New("usage: " + filepath.Base(os.Args[0]) + " JOB.json")
	if len(os.Args) == 2 {
		err = run(os.Args[1], open)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string, open func(*Job) (peer.Session, error)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var j Job
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for i, file := range j.Inputs {
		if j.Case.Inputs[i].Data, err = os.ReadFile(file); err != nil {
			return err
		}
	}
	s, err := open(&j)
	if err != nil {
		return err
	}
	if err := s.Run(); err != nil {
		return err
	}
	r := Report{Answered: time.Now().UnixNano()}
	if r.FirstPeak, err = peak(); err != nil {
		return err
	}
	for range j.Runs {
		if err := s.Run(); err != nil {
			return err
		}
	}
	if r.Peak, err = peak(); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// peak returns the most memory that the process had resident so far.
func peak() (int64, error) {
	const file = "/proc/self/status"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no line VmHWM", file)
}

// Write writes what a process needs to know of the job to a folder, and returns
// the file to start it with.
func (j *Job) Write(dir string) (string, error) {
	j.Inputs = nil
	for i, in := range j.Case.Inputs {
		file := filepath.Join(dir, fmt.Sprintf("input%d", i))
		if err := os.WriteFile(file, in.Data, 0o600); err != nil {
			return "", err
		}
		j.Inputs = append(j.Inputs, file)
	}
	text, err := json.Marshal(j)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "job.json")
	return file, os.WriteFile(file, text, 0o600)
}

// Start runs a command on a job file and returns what it reports, and the time
// from its start to its first answer.
func Start(command, job string) (Report, time.Duration, error) {
	var r Report
	cmd := exec.Command(command, job)
	cmd.Stderr = os.Stderr
	start := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return r, 0, fmt.Errorf("%s: %w", filepath.Base(command), err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, 0, fmt.Errorf("%s: what it reports: %w", filepath.Base(command), err)
	}
	return r, time.Duration(r.Answered - start.UnixNano()), nil
}
