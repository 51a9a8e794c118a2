package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/popefgen/popefgen/bench/oneshot"
	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/peer/onnxruntime"
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/bench/synth"
)

// process is what one model costs in a process of its own.
type process struct {
	name  string
	bytes int64      // of the ONNX file
	cost  [2]startup // by entrant
}

// startup is what a process of one engine costs, the best of some.
type startup struct {
	answer      time.Duration // from its start to its first answer
	first, peak int64         // bytes in use at most until then, and after some more runs
}

// processModels are the public models whose processes are measured: of
// different kinds and sizes.
var processModels = []string{"mnist_cnn", "velardo_mlp", "bert_mlm_small", "ultraface_slim_320", "mlsd_tiny_320", "bidi_lstm_bytes"}

const (
	processRounds = 5
	processRuns   = 5 // after the first answer
)

// large is a network with some 100 MB of weights.
func large(m *synth.Model) {
	const channels, size, wide = 512, 7, 2304
	x := m.Input("x", 1, channels, size, size)
	for range 6 {
		x = convolve(m, x, channels, channels, 3, 1, 1)
	}
	x = m.Node("Flatten", []string{m.Node("GlobalAveragePool", []string{x})})
	in := int64(channels)
	for _, out := range []int64{wide, wide, wide, 10} {
		x = m.Node("Relu", []string{m.Node("Gemm", []string{x, m.Weights(0.03, in, out), m.Weights(0.1, out)})})
		in = out
	}
	m.Output(x, 1, in)
}

// measureProcess starts processes of both engines in turns.
func measureProcess(c *peer.Case, commands [2]string, library string, threads int) (process, error) {
	p := process{name: c.Name, bytes: int64(len(c.ONNX))}
	var jobs [2]string
	dir, err := os.MkdirTemp("", "popefgen-bench")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(dir)
	spec, err := popefgen.Spec(c)
	if err != nil {
		return p, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return p, err
	}
	for i, model := range [][]byte{ours: c.PopEF, ort: c.ONNX} {
		own := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return p, err
		}
		j := oneshot.Job{Model: filepath.Join(own, "model"), Case: *c, Threads: threads, Runs: processRuns}
		if i == ours {
			j.Spec = text
		} else {
			j.Library = library
		}
		if err := os.WriteFile(j.Model, model, 0o600); err != nil {
			return p, err
		}
		if jobs[i], err = j.Write(own); err != nil {
			return p, err
		}
	}
	for round := range processRounds {
		for i, job := range jobs {
			r, took, err := oneshot.Start(commands[i], job)
			if err != nil {
				return p, fmt.Errorf("%s: %w", c.Name, err)
			}
			s := &p.cost[i]
			if round == 0 {
				*s = startup{took, r.FirstPeak, r.Peak}
			}
			s.answer, s.first, s.peak = min(s.answer, took), min(s.first, r.FirstPeak), min(s.peak, r.Peak)
		}
	}
	return p, nil
}

// measureProcesses measures the models of processModels and the large one.
func measureProcesses(models []*model, commands [2]string, library string) ([]process, error) {
	var cases []*peer.Case
	for _, name := range processModels {
		if i := slices.IndexFunc(models, func(m *model) bool { return m.Name == name }); i >= 0 {
			cases = append(cases, models[i].Case)
		}
	}
	c, err := synthetic("synthetic, 100 MB", large)
	if err != nil {
		return nil, err
	}
	if err := agree(c, popefgen.Engine{}, onnxruntime.Engine{}); err != nil {
		return nil, err
	}
	var out []process
	for _, c := range append(cases, c) {
		p, err := measureProcess(c, commands, library, 1)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (p *process) memoryRatio() float64 {
	return float64(p.cost[ours].peak) / float64(p.cost[ort].peak)
}
func (p *process) answerRatio() float64 {
	return float64(p.cost[ours].answer) / float64(p.cost[ort].answer)
}

func processTable(processes []process) string {
	t := report.NewTable("model", "file, MB", "popefgen peak, MB", "ONNX Runtime peak, MB", "ratio", "popefgen first answer, ms", "ONNX Runtime first answer, ms", "ratio")
	mb := func(n int64) string { return report.Ratio(float64(n) / 1e6) }
	ms := func(d time.Duration) string { return report.Ratio(float64(d) / 1e6) }
	for _, p := range processes {
		t.Row(p.name, mb(p.bytes), mb(p.cost[ours].peak), mb(p.cost[ort].peak), report.Ratio(p.memoryRatio()),
			ms(p.cost[ours].answer), ms(p.cost[ort].answer), report.Ratio(p.answerRatio()))
	}
	return t.String()
}
