package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed learn.py
var script []byte

// torch is a Python process that trains with PyTorch and times its own steps, so that pipes and Python's start cost nothing.
type torch struct {
	dir     string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	version string
}

// answer is what learn.py answers to a command.
type answer struct {
	Version      string
	Losses       []float64
	Times        []int64 // ns
	Most, Before int64   // bytes
}

// startTorch starts a process of the given Python for so many threads: OpenBLAS has threads of its own, whose number it reads when it starts.
func startTorch(python string, threads int) (*torch, error) {
	dir, err := os.MkdirTemp("", "bench-train")
	if err != nil {
		return nil, err
	}
	t := &torch{dir: dir, command: exec.Command(python, filepath.Join(dir, "learn.py"))}
	if err := os.WriteFile(filepath.Join(dir, "learn.py"), script, 0o644); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	t.command.Env = append(os.Environ(), fmt.Sprint("OPENBLAS_NUM_THREADS=", threads), fmt.Sprint("OMP_NUM_THREADS=", threads))
	t.command.Stderr = os.Stderr
	in, err1 := t.command.StdinPipe()
	out, err2 := t.command.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	t.in, t.out = in, bufio.NewScanner(out)
	t.out.Buffer(nil, 1<<24)
	if err := t.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting PyTorch: %w (Debian: apt-get install python3-torch libopenblas0-pthread; -python names the interpreter)", err), os.RemoveAll(dir))
	}
	return t, nil
}

// ask has the process do one command.
func (t *torch) ask(command map[string]any) (a answer, err error) {
	line, err := json.Marshal(command)
	if err != nil {
		return a, err
	}
	if _, err := t.in.Write(append(line, '\n')); err != nil {
		return a, fmt.Errorf("learn.py: %w", err)
	}
	if !t.out.Scan() {
		return a, errors.Join(errors.New("learn.py ended; what it said stands above (it needs python3-torch and python3-numpy)"), t.out.Err())
	}
	if err := json.Unmarshal(t.out.Bytes(), &a); err != nil {
		return a, fmt.Errorf("learn.py: %w", err)
	}
	t.version = a.Version
	return a, nil
}

// open gives the process a network with weights and data.
func (t *torch) open(n *network) error {
	m, err := n.model()
	if err != nil {
		return err
	}
	w, count := weights(m)
	x, labels := n.data(m)
	file := filepath.Join(t.dir, n.name)
	if err := os.WriteFile(file, append(append(w, x...), labels...), 0o644); err != nil {
		return err
	}
	_, err = t.ask(map[string]any{"open": n.name, "file": file, "weights": count, "data": len(x) / 4})
	return errors.Join(err, os.Remove(file))
}

func (t *torch) threads(n int) error {
	_, err := t.ask(map[string]any{"threads": n})
	return err
}

// steps trains n steps and returns their losses and times.
func (t *torch) steps(n int, clock string) (losses []float64, times []time.Duration, err error) {
	a, err := t.ask(map[string]any{"steps": n, "clock": clock})
	if err != nil {
		return nil, nil, err
	}
	for _, ns := range a.Times {
		times = append(times, time.Duration(ns))
	}
	return a.Losses, times, nil
}

// close ends the process.
func (t *torch) close() error {
	return errors.Join(t.in.Close(), t.command.Wait(), os.RemoveAll(t.dir))
}
