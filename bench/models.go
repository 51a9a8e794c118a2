package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
)

// model is a public model with what was measured of it.
type model struct {
	*peer.Case
	path string
	runs [2][]outcome // by threads-1 and entrant
}

// Entrants by number.
const (
	ours = iota
	ort
	mlx
)

// tolerances are how far apart two engines' outputs may be where more than
// rounding in float32 is to be expected.
var tolerances = map[string]verify.Tolerance{
	"squeezenet_fp16": {Rel: 5e-2, Abs: 5e-3}, // float16
	"microkws_qdq":    {Abs: 2.0 / 256},       // two quantisation steps
	"mlsd_tiny_320":   {Abs: 5e-2},            // it amplifies rounding
}

// publicModels compiles the models in the folder dir for their first data
// set; with a name only that one.
func publicModels(dir, only string) ([]*model, error) {
	found, err := verify.Find([]string{dir}, true)
	if err != nil {
		return nil, err
	}
	var models []*model
	for _, f := range found {
		if only != "" && filepath.Base(f.Dir) != only {
			continue
		}
		m, err := publicModel(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Dir, err)
		}
		models = append(models, m)
	}
	return models, nil
}

func publicModel(f verify.Case) (*model, error) {
	m := &model{Case: &peer.Case{Name: filepath.Base(f.Dir)}, path: filepath.Join(f.Dir, "model.onnx")}
	var err error
	if m.ONNX, err = os.ReadFile(m.path); err != nil {
		return nil, err
	}
	read, err := onnx.ReadFile(m.path)
	if err != nil {
		return nil, err
	}
	r, err := verify.Compile(read, f.Sets[0], compile.Options{})
	if err != nil {
		return nil, err
	}
	for _, in := range read.Graph.Inputs {
		if t := r.Named[in.Name]; t != nil {
			m.Inputs = append(m.Inputs, peer.Tensor{Name: in.Name, Elem: peer.Elem(t.Elem), Dims: t.Dims, Size: len(t.Data), Data: t.Data})
		}
	}
	return m, complete(m.Case, r.Result)
}

// complete gives a case what follows from its compiled model.
func complete(c *peer.Case, r *compile.Result) (err error) {
	for _, o := range r.Outputs {
		c.Outputs = append(c.Outputs, peer.Tensor{Name: o.Name, Elem: peer.Elem(o.Elem), Dims: o.Type.Shape, Size: int(o.Type.Bytes())})
	}
	c.PopEF, err = r.Bytes()
	return err
}

// measure lets the engines run the model with one thread and, up to most, with
// two.
func (m *model) measure(cfg measure.Config, engines []entrant, most int) (err error) {
	tol, ok := tolerances[m.Name]
	if !ok {
		tol = verify.Tolerance{Rel: 1e-2, Abs: 1e-3}
	}
	for i := range most {
		if m.runs[i], err = contest(cfg, m.Case, tol, i+1, engines); err != nil {
			return err
		}
	}
	return nil
}

// median returns the median latency of an entrant in nanoseconds, NaN if it
// did not run.
func (m *model) median(threads, who int) float64 {
	if runs := m.runs[threads-1]; who < len(runs) {
		return runs[who].Median()
	}
	return math.NaN()
}

// ratio returns our latency by that of another entrant.
func (m *model) ratio(threads, other int) float64 {
	return m.median(threads, ours) / m.median(threads, other)
}

// modelTable is the table of all models for a number of threads.
func modelTable(models []*model, threads int) string {
	t := report.NewTable("model", "popefgen median", "best", "p99", "ONNX Runtime median", "best", "p99", "ratio", "GoMLX median", "ratio")
	var all []float64
	for _, m := range models {
		if m.runs[threads-1] == nil {
			continue
		}
		cells := []string{m.Name}
		for _, who := range []int{ours, ort} {
			o := &m.runs[threads-1][who]
			cells = append(cells, report.Time(o.Median()), report.Time(o.Best()), report.Time(o.P99()))
		}
		r := m.ratio(threads, ort)
		if !math.IsNaN(r) {
			all = append(all, r)
		}
		other := report.Missing
		if runs := m.runs[threads-1]; len(runs) > mlx {
			other = runs[mlx].latency()
		}
		t.Row(append(cells, report.Ratio(r), other, report.Ratio(m.ratio(threads, mlx)))...)
	}
	t.Row("geometric mean", "", "", "", "", "", "", report.Ratio(measure.GeometricMean(all)), "", "")
	return t.String()
}

// modelChart draws the ratios to ONNX Runtime.
func modelChart(models []*model) *report.Chart {
	c := &report.Chart{
		Title:  "Public models: latency of popefgen / latency of ONNX Runtime",
		Axis:   "log scale; left of 1 popefgen is faster",
		Series: []string{"1 thread", "2 threads"},
	}
	var means [2][]float64
	for _, m := range models {
		b := report.Bar{Name: m.Name}
		for i := range means {
			r := m.ratio(i+1, ort)
			b.Ratios = append(b.Ratios, r)
			if !math.IsNaN(r) {
				means[i] = append(means[i], r)
			}
		}
		c.Bars = append(c.Bars, b)
	}
	c.Bars = append(c.Bars, report.Bar{Name: "geometric mean", Ratios: []float64{measure.GeometricMean(means[0]), measure.GeometricMean(means[1])}})
	return c
}

// refusals lists the models that GoMLX does not run, with its reason. With two
// threads it mostly has the same.
func refusals(models []*model) string {
	var b strings.Builder
	for _, m := range models {
		var listed string
		for _, runs := range m.runs {
			if len(runs) <= mlx || runs[mlx].refused == nil {
				continue
			}
			reason, _, _ := strings.Cut(runs[mlx].refused.Error(), "\n")
			const most = 140
			if r := []rune(reason); len(r) > most {
				reason = string(r[:most]) + "…"
			}
			if reason != listed {
				fmt.Fprintln(&b, reason)
			}
			listed = reason
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "```text\n" + b.String() + "```"
}
