package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/popefgen/popefgen/bench/report"
)

// idles is how long the command has nothing to do.
const idles = 12 * time.Second

// idling are ways to start the command.
var idling = []struct {
	name  string
	flags []string
	goal  bool
}{
	{"REST, gRPC, admin page", nil, true},
	{"the same, and a look at the models' files each second", []string{"--control", "watch"}, false},
}

// measureIdle counts the processor time that the command popefgen-serve uses while nobody asks it anything, after it has answered a request.
func measureIdle(*options) (string, error) {
	dir, err := os.MkdirTemp("", "popefgen-idle-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	command := filepath.Join(dir, "popefgen-serve")
	build := exec.Command("go", "-C", "../serve/grpc", "build", "-o", command, "./cmd/popefgen-serve")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build popefgen-serve: %w", err)
	}
	models := filepath.Join(dir, "models")
	data, err := os.ReadFile(digitsFile)
	if err == nil {
		err = os.Mkdir(models, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(models, "echo.onnx"), data, 0o600)
	}
	if err != nil {
		return "", err
	}
	t := report.NewTable("popefgen-serve idle, with", "ticks of 10 ms", "in", "goal", "", "processor time, µs a second")
	for _, way := range idling {
		ticks, micros, err := idle(command, append(way.flags, models))
		if err != nil {
			return "", fmt.Errorf("%s: %w", way.name, err)
		}
		want, is := "–", ""
		if way.goal {
			want, is = "0", verdict(ticks == 0)
		}
		t.Row(way.name, fmt.Sprint(ticks), idles.String(), want, is, number(micros/idles.Seconds()))
	}
	return t.String(), nil
}

var listeningHTTP = regexp.MustCompile(`protocol=http address=(\S+)`)

// idle starts the command, asks it for an answer once, and returns what it uses while there is none.
func idle(command string, args []string) (ticks int64, micros float64, err error) {
	const nowhere = "127.0.0.1:0"
	cmd := exec.Command(command, append([]string{"--batch", "1", "--http", nowhere, "--grpc", nowhere, "--admin", nowhere}, args...)...)
	log, err := cmd.StderrPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	addr, said := "", ""
	for lines := bufio.NewScanner(log); addr == "" && lines.Scan(); {
		said += lines.Text() + "\n"
		if m := listeningHTTP.FindStringSubmatch(lines.Text()); m != nil {
			addr = m[1]
		}
	}
	go io.Copy(io.Discard, log)
	if addr == "" {
		return 0, 0, errors.New("it ended before it listened:\n" + said)
	}
	if err := awaitReady(addr); err != nil {
		return 0, 0, err
	}
	if err := check(addr, digitsRequest()); err != nil {
		return 0, 0, err
	}
	time.Sleep(2 * time.Second) // what a request leaves behind ends
	ticksBefore, microsBefore, err := processor(cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	time.Sleep(idles)
	ticks, micros, err = processor(cmd.Process.Pid)
	return ticks - ticksBefore, micros - microsBefore, err
}

func awaitReady(addr string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		r, err := client.Get("http://" + addr + "/v2/health/ready")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(r.Status)
		}
		if time.Since(begin) > time.Minute {
			return fmt.Errorf("not ready after a minute: %w", err)
		}
	}
}
