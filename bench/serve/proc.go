package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// resident returns how much memory a process has now, or had at most, in bytes: fields VmRSS and VmHWM.
func resident(pid int, field string) (int64, error) {
	file := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no line %s", file, field)
}

// processor returns the time that a process has used so far: in ticks, as the kernel counts them for everybody to see, and in microseconds, of the threads that it
// has now.
func processor(pid int) (ticks int64, micros float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // from the third
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0, err
		}
		ticks += n
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, 0, err
		}
		n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		micros += float64(n) / 1e3
	}
	return ticks, micros, nil
}
