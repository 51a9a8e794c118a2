package main

import (
	"cmp"
	"context"
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
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/bench/report"
	_ "github.com/popefgen/popefgen/ipu/cpu" // the engine
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/dynamic"
)

// begun are models that processes open, each once.
var begun = []struct {
	name, file string
	dims       map[string]int64
}{
	{"digits", digitsFile, map[string]int64{"batch": 1}},
	{"bert_mlm_small", "../shared/models/bert_mlm_small/model.onnx", map[string]int64{"batch": 1, "tokens": 16}},
	{"squeezenet_fp16", "../shared/models/squeezenet_fp16/model.onnx", nil},
}

// ways are what such a process does with the file of a model: what a server does until it is ready, what the package does that is generated of the
// model until it has answered a request, of a private copy, as the server makes one, or of the file mapped.
var ways = []string{"ready", "copied", "mapped"}

// oncePrefix begins the names of such processes, which have the way and the file.
const oncePrefix = "once="

// known is where a generated package's code has what it knows of the model in FILE.
func known(file string) string { return file + ".json" }

// measureReady compares how long a server takes until it is ready with how long a generated package does until it has answered one request.
// Each process does so once: what the first of its kind has to do is a part of it.
func measureReady(o *options) (string, error) {
	const goal = 1.2
	dir, err := os.MkdirTemp("", "popefgen-ready-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	t := report.NewTable("model", "its file, MiB", "server ready, ms", "Open and a request, ms", "ratio", "goal", "", "mapped, ms", "ratio")
	for _, m := range begun {
		file, err := compiled(dir, m.name, m.file, m.dims)
		if errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "%s is left out: %v (POPEFGEN_TESTDATA says where public models are)\n", m.name, err)
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", m.name, err)
		}
		took := make([][]float64, len(ways))
		for range 3 * o.rounds {
			for i, way := range ways {
				ms, err := once(way, file)
				if err != nil {
					return "", fmt.Errorf("%s: %w", m.name, err)
				}
				took[i] = append(took[i], ms)
			}
		}
		info, err := os.Stat(file)
		if err != nil {
			return "", err
		}
		part := ratio(took[0], took[1])
		t.Row(m.name, fmt.Sprintf("%.2f", float64(info.Size())/(1<<20)), number(median(took[0])), number(median(took[1])), fmt.Sprintf("%.2f", part), fmt.Sprintf("≤ %g", goal), verdict(part <= goal),
			number(median(took[2])), fmt.Sprintf("%.2f", ratio(took[0], took[2])))
	}
	return t.String(), nil
}

// compiled writes the PopEF file of an ONNX model, and beside it what its generated package would know.
func compiled(dir, name, from string, dims map[string]int64) (string, error) {
	if rest, ok := strings.CutPrefix(from, "../shared/"); ok {
		from = filepath.Join(cmp.Or(os.Getenv("POPEFGEN_TESTDATA"), "../../shared"), rest)
	}
	m, err := onnx.ReadFile(from)
	if err != nil {
		return "", err
	}
	r, err := compile.Compile(m, compile.Options{Options: onnx.Options{Dims: dims}})
	if err != nil {
		return "", err
	}
	data, err := r.Bytes()
	if err != nil {
		return "", err
	}
	spec, err := popefgen.Spec(&peer.Case{Name: name, PopEF: data})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, name+".popef")
	return file, errors.Join(os.WriteFile(file, data, 0o600), os.WriteFile(known(file), text, 0o600))
}

// once starts a process that does so, and returns the milliseconds that it says it took.
func once(way, file string) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, "-server", oncePrefix+way+" "+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", way, err)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// beOnce is such a process.
func beOnce(what string) error {
	way, file, _ := strings.Cut(what, " ")
	ctx := context.Background()
	begin := time.Now()
	var err error
	if way == "ready" {
		err = becomeReady(ctx, file)
	} else {
		var spec genrt.Spec
		text, e := os.ReadFile(known(file))
		if err = errors.Join(e, json.Unmarshal(text, &spec)); err != nil {
			return err
		}
		begin = time.Now()
		err = openAndRun(ctx, file, &spec, way == "copied")
	}
	if err != nil {
		return err
	}
	fmt.Println(time.Since(begin).Seconds() * 1e3)
	return nil
}

// becomeReady does what the command popefgen-serve does with a file until its server is ready, but for listening, which it does before: that does not depend on
// the model.
func becomeReady(ctx context.Context, file string) error {
	m, err := dynamic.Open(ctx, []string{file}, dynamic.WithCopy())
	if err != nil {
		return err
	}
	s, err := serve.New(serve.WithModel(m))
	if err != nil {
		return err
	}
	if err := s.Core().Warm(ctx); err != nil {
		return err
	}
	s.Core().Start()
	return s.Core().Ready()
}

// openAndRun does what a generated package does to answer its first request, with as many replicas as the server has.
func openAndRun(ctx context.Context, file string, spec *genrt.Spec, private bool) error {
	opts := []rt.RunnerOption{rt.WithReplicas(2), rt.WithThreads(1)}
	if private {
		opts = append(opts, rt.WithPrivateCopy())
	}
	var replicas [][]func() error
	bindings := func() (all []genrt.Binding) {
		var bind []func() error
		for i, a := range spec.Anchors {
			mem := make([]byte, a.Bytes)
			if a.Role == genrt.RunInput {
				in := genrt.NewRawInput(a.Bytes)
				bind, all = append(bind, func() error { return in.Bind(mem) }), append(all, genrt.Binding{Anchor: i, Stream: in})
			} else {
				out := genrt.NewRawOutput(a.Bytes)
				bind, all = append(bind, func() error { return out.Bind(mem) }), append(all, genrt.Binding{Anchor: i, Stream: out})
			}
		}
		replicas = append(replicas, bind)
		return all
	}
	var core genrt.Core
	if err := core.Open(ctx, spec, genrt.Source{Path: file}, bindings, nil, opts...); err != nil {
		return err
	}
	replica, err := core.Begin(ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	for _, bind := range replicas[replica] {
		if err := bind(); err != nil {
			return err
		}
	}
	return core.Main(ctx, replica)
}
