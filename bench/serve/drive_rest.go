package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// errNoHTTP2 is what a driver returns for a request that it can't make.
var errNoHTTP2 = errors.New("it speaks HTTP/1.1 only: leave gRPC out with -only REST")

// wrkScript makes wrk, which knows only durations, say when it begins and when it has a number of answers. What other
// connections have asked for by then is not counted: at most a request each.
const wrkScript = `
local file = io.open(%q, "rb")
wrk.method = "POST"
wrk.body = file:read("*a")
file:close()
%s
local left, failed = %d, 0
local function say(text)
  io.write(text .. "\n")
  io.flush()
end
local begin = wrk.init
function wrk.init(args)
  begin(args)
  say("begun")
end
function response(status, headers, body)
  if status ~= 200 then failed = failed + 1 end
  left = left - 1
  if left == 0 then say("failed " .. failed) end
end
`

// wrk is a program in C that runs a script in Lua.
func wrk(addr string, q *request, n, clients int) (float64, error) {
	if q.grpc {
		return 0, fmt.Errorf("wrk: %w", errNoHTTP2)
	}
	folder, err := os.MkdirTemp("", "popefgen-serve-*")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	body, script := filepath.Join(folder, "body"), filepath.Join(folder, "script.lua")
	if err := os.WriteFile(body, q.body, 0o600); err != nil {
		return 0, err
	}
	var header strings.Builder
	for k, v := range q.header {
		fmt.Fprintf(&header, "wrk.headers[%q] = %q\n", k, v)
	}
	if err := os.WriteFile(script, fmt.Appendf(nil, wrkScript, body, header.String(), n), 0o600); err != nil {
		return 0, err
	}
	cmd := exec.Command("wrk", "-t1", "-c"+strconv.Itoa(clients), "-d1m", "-s", script, "http://"+addr+q.path)
	took, err := timed(cmd)
	if err != nil {
		return 0, fmt.Errorf("wrk: %d requests: %w", n, err)
	}
	return float64(n) / took.Seconds(), nil
}

// timed runs wrk until its script has all answers, stops it, and returns how long that took.
func timed(cmd *exec.Cmd) (took time.Duration, err error) {
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	var begun time.Time
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch text := lines.Text(); {
		case text == "begun":
			begun = time.Now()
		case text == "failed 0":
			return time.Since(begun), nil
		case strings.HasPrefix(text, "failed "):
			return 0, fmt.Errorf("answers without success: %s", text)
		default:
			fmt.Fprintln(&said, text)
		}
	}
	return 0, fmt.Errorf("it ended before all were answered:\n%s", &said)
}

var (
	heyRate   = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	heyStatus = regexp.MustCompile(`(?m)^\s+\[(\d+)\]\s+(\d+) responses$`)
)

// hey is a program in Go, which takes more of the processor than the servers do. Each of its clients makes as many
// requests as the others.
func hey(addr string, q *request, n, clients int) (float64, error) {
	if q.grpc {
		return 0, fmt.Errorf("hey: %w", errNoHTTP2)
	}
	file, err := os.CreateTemp("", "popefgen-serve-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.Write(q.body); err != nil {
		return 0, err
	}
	n = (n + clients - 1) / clients * clients
	args := []string{"-n", strconv.Itoa(n), "-c", strconv.Itoa(clients), "-m", "POST", "-D", file.Name()}
	for k, v := range q.header {
		args = append(args, "-H", k+": "+v)
	}
	out, err := exec.Command("hey", append(args, "http://"+addr+q.path)...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("hey: %w\n%s", err, out)
	}
	rate, status := heyRate.FindSubmatch(out), heyStatus.FindAllSubmatch(out, -1)
	if rate == nil || len(status) != 1 || string(status[0][1]) != "200" || string(status[0][2]) != strconv.Itoa(n) {
		return 0, fmt.Errorf("not all %d requests of hey succeeded:\n%s", n, out)
	}
	return strconv.ParseFloat(string(rate[1]), 64)
}
