package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// asCommand makes this test's binary the command.
const asCommand = "POPEFGEN_SERVE_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Unsetenv(asCommand)
		main()
	}
	os.Exit(m.Run())
}

// process is the command that runs.
type process struct {
	cmd   *exec.Cmd
	http  string // its address
	grpc  string
	admin string

	mu   sync.Mutex
	text strings.Builder // what it logged
	end  chan error
}

func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

var address = regexp.MustCompile(`msg=listening protocol=(\w+) address=(\S+)`)

// start runs the command until it is ready.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := listens(t, args...)
	require.Eventually(t, func() bool { return p.status("/v2/health/ready") == http.StatusOK }, time.Minute, time.Millisecond, "%s", p.log())
	return p
}

// listens runs the command until it listens.
func listens(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: command(context.Background(), append([]string{"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, args...)...), end: make(chan error, 1)}
	out, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	listening := make(chan bool)
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			p.mu.Lock()
			p.text.WriteString(s.Text() + "\n")
			p.mu.Unlock()
			if m := address.FindStringSubmatch(s.Text()); m != nil && m[1] == "grpc" {
				p.grpc = m[2]
			} else if m != nil && m[1] == "admin" {
				p.admin = "http://" + m[2]
			} else if m != nil {
				p.http = "http://" + m[2]
				close(listening)
			}
		}
		p.end <- p.cmd.Wait()
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	select {
	case <-listening:
	case err := <-p.end:
		t.Fatalf("the server does not listen, %v:\n%s", err, p.log())
	case <-time.After(time.Minute):
		t.Fatalf("the server does not listen:\n%s", p.log())
	}
	return p
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// status returns the status of a GET, 0 if nobody answers.
func (p *process) status(path string) int {
	r, err := http.Get(p.http + path)
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

// stop ends the process and wants it to exit with 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.end:
		require.NoError(t, err, p.log())
	case <-time.After(time.Minute):
		t.Fatalf("the server does not stop:\n%s", p.log())
	}
}

// image is a request to the digits.
var image = `{"inputs":[{"name":"image","datatype":"FP32","shape":[1,1,8,8],"data":[` + strings.Repeat("0.5,", 63) + `0.5]}]}`

// ask returns what the digits answer.
func (p *process) ask(client *http.Client) ([]float64, error) {
	r, err := client.Post(p.http+"/v2/models/digits/infer", "application/json", strings.NewReader(image))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	var answer struct {
		Error   string
		Outputs []struct{ Data []float64 }
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK || len(answer.Outputs) != 1 || len(answer.Outputs[0].Data) != 10 {
		return nil, fmt.Errorf("status %d: %s", r.StatusCode, answer.Error)
	}
	return answer.Outputs[0].Data, nil
}

var examples = func() string {
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "generated_examples"))
	if err != nil {
		panic(err)
	}
	return dir
}()

// compiled returns the PopEF file of an example's model, with weights of the other sign if they are to be others.
func compiled(t *testing.T, name string, others bool) []byte {
	t.Helper()
	m, err := onnx.ReadFile(filepath.Join(examples, name, name+".onnx"))
	require.NoError(t, err)
	r, err := compile.Compile(m, compile.Options{Options: onnx.Options{Batch: 1}})
	require.NoError(t, err)
	for i := range r.Weights {
		r.Weights[i].Data = bytes.Clone(r.Weights[i].Data)
		for k := 3; others && k < len(r.Weights[i].Data); k += 4 {
			r.Weights[i].Data[k] ^= 0x80
		}
	}
	data, err := r.Bytes()
	require.NoError(t, err)
	return data
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// TestReload replaces the file of a model that is asked all the time: by other weights, by half a file, by a model with another
// contract, and by a new version. No request fails; what is refused is said, and the old one serves.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	one := filepath.Join(dir, "digits", "1", "model.popef")
	first, second := compiled(t, "digits", false), compiled(t, "digits", true)
	write(t, one, first)
	p := start(t, "--control", "watch", "--poll", "20ms", dir)
	want, err := p.ask(http.DefaultClient)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var asked atomic.Int64
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := p.ask(http.DefaultClient); err != nil {
					t.Error(err)
					return
				}
				asked.Add(1)
			}
		})
	}
	answers := func(equal bool) func() bool {
		return func() bool {
			got, err := p.ask(http.DefaultClient)
			return err == nil && (fmt.Sprint(got) == fmt.Sprint(want)) == equal
		}
	}
	logged := func(text string) func() bool { return func() bool { return strings.Contains(p.log(), text) } }
	soon, often := time.Minute, 5*time.Millisecond
	write(t, one, second)
	require.Eventually(t, answers(false), soon, often, "other weights: %s", p.log())
	write(t, one, first[:len(first)/2])
	require.Eventually(t, logged("model refused"), soon, often)
	write(t, one, first)
	require.Eventually(t, answers(true), soon, often, "the first weights: %s", p.log())
	write(t, filepath.Join(dir, "digits", "2", "model.popef"), compiled(t, "diabetes", false))
	require.Eventually(t, logged("would break callers of version 1"), soon, often)
	require.True(t, answers(true)())
	write(t, filepath.Join(dir, "digits", "3", "model.popef"), second)
	require.Eventually(t, answers(false), soon, often, "another version: %s", p.log())
	require.Equal(t, http.StatusOK, p.status("/v2/models/digits/versions/3/ready"))
	require.Eventually(t, func() bool { return p.status("/v2/models/digits/versions/1/ready") == http.StatusNotFound }, soon, often)
	cancel()
	all.Wait()
	require.Greater(t, asked.Load(), int64(100))
	p.stop(t)
	require.NotContains(t, p.log(), "level=ERROR msg=\"model unloaded\"")
}

// TestStop ends a server that callers ask all the time: it is not ready first, and answers all that was asked.
func TestStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "digits.popef")
	write(t, path, compiled(t, "digits", false))
	p := start(t, "--drain-delay", "500ms", path)
	var all sync.WaitGroup
	var asked atomic.Int64
	for range 8 {
		client := &http.Client{Transport: &http.Transport{}}
		all.Go(func() {
			for p.status("/v2/health/ready") == http.StatusOK {
				if _, err := p.ask(client); err != nil {
					t.Error(err)
					return
				}
				asked.Add(1)
			}
			if _, err := p.ask(client); err != nil { // not ready is not deaf
				t.Errorf("while it drains: %v", err)
			}
		})
	}
	require.Eventually(t, func() bool { return asked.Load() > 10 }, time.Minute, time.Millisecond)
	begun := time.Now()
	p.stop(t)
	all.Wait()
	require.GreaterOrEqual(t, time.Since(begun), 500*time.Millisecond)
	require.Zero(t, p.status("/v2/health/live"))
}

// TestRefusedAtStart: a server that can not open its model says why once, and ends.
func TestRefusedAtStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "half.popef")
	write(t, path, compiled(t, "digits", false)[:1000])
	out, err := command(t.Context(), "--http", "127.0.0.1:0", "--grpc", "", path).CombinedOutput()
	var code *exec.ExitError
	require.ErrorAs(t, err, &code)
	require.Equal(t, exitError, code.ExitCode())
	require.Equal(t, 1, strings.Count(string(out), "half.popef"), "%s", out)
	require.Contains(t, string(out), `popefgen-serve: model "half": `)
}

// TestSecondSignal ends a server at once that would serve on for a minute.
func TestSecondSignal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "digits.popef")
	write(t, path, compiled(t, "digits", false))
	p := start(t, "--drain-delay", "1m", path)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM)) // the same
	require.Eventually(t, func() bool { return p.status("/v2/health/ready") != http.StatusOK }, time.Minute, time.Millisecond)
	time.Sleep(2 * oneSignal)
	require.Equal(t, http.StatusOK, p.status("/v2/health/live"), p.log())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.end:
		var code *exec.ExitError
		require.ErrorAs(t, err, &code)
		require.Equal(t, exitError, code.ExitCode())
	case <-time.After(time.Minute / 2): // it would serve on for a minute
		t.Fatal("it does not stop")
	}
	require.Contains(t, p.log(), "a second signal")
}

// TestONNX serves a model that is compiled at the start, for sizes of the environment.
func TestONNX(t *testing.T) {
	t.Setenv("POPEFGEN_SERVE_BATCH", "1,4")
	p := start(t, filepath.Join(examples, "digits", "digits.onnx"))
	r, err := http.Get(p.http + "/v2/models/digits")
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `"shape":[-1,1,8,8]`)
	_, err = p.ask(http.DefaultClient)
	require.NoError(t, err)
	p.stop(t)
}

// TestCheck validates configurations: all mistakes are named, and the exit code says whether there are any.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good", "digits.popef"), compiled(t, "digits", false))
	write(t, filepath.Join(dir, "bad", "half.popef"), compiled(t, "digits", false)[:1000])
	write(t, filepath.Join(dir, "bad", "text.onnx"), []byte("a model"))
	write(t, filepath.Join(dir, "wrong", "digits.popef"), compiled(t, "digits", true))
	for _, name := range []string{"golden.json", "case-000.npz"} { // of the right weights
		data, err := os.ReadFile(filepath.Join(examples, "digits", "classifier", "testdata", "golden", name))
		require.NoError(t, err)
		write(t, filepath.Join(dir, "wrong", "testdata", "golden", name), data)
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	conf := filepath.Join(dir, "popefgen.yaml")
	for name, c := range map[string]struct {
		conf string
		args []string
		env  string
		code int
		want []string
	}{
		"a file":            {args: []string{"good/digits.popef"}, want: []string{"digits version 1"}},
		"a folder":          {args: []string{"good"}, want: []string{"digits version 1"}},
		"configuration":     {conf: "serve: {models: [{path: good}]}", want: []string{"digits version 1"}},
		"another's":         {conf: "models: []", args: []string{"good"}, want: []string{"digits version 1"}},
		"damaged":           {args: []string{"bad"}, code: 1, want: []string{`model "half"`, `model "text"`}},
		"wrong answers":     {args: []string{"wrong"}, code: 1, want: []string{"its answers are not those of the goldens"}},
		"mistakes":          {conf: "serve: {http: x, control: y, models: [{path: nothing}]}", code: 1, want: []string{`http: found "x"`, `control: found "y"`, "models[0].path:"}},
		"flags over it":     {conf: "serve: {http: x, models: [{path: good}]}", args: []string{"--http", ":0"}, want: []string{"digits version 1"}},
		"environment":       {conf: "serve: {models: [{path: good}]}", env: "POPEFGEN_SERVE_REPLICAS=-3", code: 1, want: []string{"replicas: found -3"}},
		"flags over that":   {conf: "serve: {models: [{path: good}]}", env: "POPEFGEN_SERVE_REPLICAS=-3", args: []string{"--replicas", "1"}, want: []string{"digits version 1"}},
		"unknown key":       {conf: "serve: {htp: x}", code: 1, want: []string{"htp"}},
		"unknown flag":      {args: []string{"--htp", "x"}, code: 2, want: []string{"flag provided but not defined: -htp", "hint:"}},
		"nobody loads":      {args: []string{"--repository", "--control", "watch", "good"}, code: 1, want: []string{"repository: has clients load models"}},
		"all that may come": {args: []string{"--repository", "--load-model", "other", "bad"}, code: 1, want: []string{`model "half"`, `model "text"`, `load-model: there is no model "other"`}},
		"nothing":           {code: 1, want: []string{"models: there is nothing to serve"}},
		"nothing in it":     {args: []string{"empty"}, code: 1, want: []string{"models: there is no model in these folders"}},
		"some may come":     {args: []string{"--control", "watch", "empty"}},
		"flags behind":      {args: []string{"good", "--batch", "1"}, code: 2, want: []string{"--batch stands behind a file, want flags before the files"}},
		"damaged tokens":    {conf: "serve: {auth: {tokens: popefgen.yaml}, models: [{path: good}]}", code: 1, want: []string{"popefgen.yaml:1: "}},
		"one name twice":    {args: []string{"good", "wrong"}, code: 1, want: []string{`the model "digits" is there twice`}},
		"two names":         {conf: "serve: {models: [{path: good/digits.popef, name: a}, {path: good/digits.popef, name: b}]}", want: []string{"a version 1", "b version 1"}},
		"no labels":         {conf: "serve: {models: [{path: good/digits.popef, labels: {scores: popefgen.yaml}}]}", code: 1, want: []string{`labels of output "scores"`}},
		"sizes of a member": {args: []string{"--batch", "x", "good"}, code: 1, want: []string{"batch: --batch x"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(conf))
			if c.conf != "" {
				write(t, conf, []byte(c.conf))
			}
			cmd := command(t.Context(), append([]string{"--check"}, c.args...)...)
			cmd.Dir = dir
			if c.env != "" {
				cmd.Env = append(cmd.Env, c.env)
			}
			out, err := cmd.CombinedOutput()
			code := 0
			if err != nil {
				code = err.(*exec.ExitError).ExitCode()
			}
			require.Equal(t, c.code, code, "%s", out)
			for _, want := range c.want {
				require.Contains(t, string(out), want)
			}
		})
	}
}
