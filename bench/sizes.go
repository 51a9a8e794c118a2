package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef/family"
)

// lengths is a BERT-type model with requests of different lengths: one family of popefgen's beside
// a session with dynamic axes.
type lengths struct {
	model string
	dim   string // of the length, in the model's words
	runs  [2][2]*measure.Series
}

// bertLengths are the public models that read texts. The inputs are filled up with zeros, which the
// mask says are no part of the text. t5_encoder_small is not among them: it pays attention to what it masks,
// in ONNX Runtime as well.
var bertLengths = []struct {
	model, dim string
}{
	{"synth_bert_tiny", "sequence"},
	{"bert_mlm_small", "tokens"},
}

// lengthMembers are the lengths that a family is compiled for: 8, 12 and so on to 128. Each takes
// about a thousandth of the file.
func lengthMembers() (all []int64) {
	for n := int64(8); n <= 128; n += 4 {
		all = append(all, n)
	}
	return all
}

const lengthRequests = 32 // of one run

// measureLengths measures requests of 4 to 128 tokens, drawn once.
func measureLengths(cfg measure.Config, dir, only string, most int) ([]*lengths, error) {
	var all []*lengths
	for _, b := range bertLengths {
		if only != "" && only != b.model {
			continue
		}
		progress(b.model + ", lengths")
		l := &lengths{model: b.model, dim: b.dim}
		if err := l.measure(cfg, filepath.Join(dir, b.model, "model.onnx"), lengthMembers(), most); err != nil {
			return nil, fmt.Errorf("%s, lengths: %w", b.model, err)
		}
		all = append(all, l)
	}
	return all, nil
}

func (l *lengths) measure(cfg measure.Config, path string, members []int64, most int) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	m, err := onnx.ReadFile(path)
	if err != nil {
		return err
	}
	o := compile.Options{Pads: map[string][]family.Pad{}}
	o.Batch = 1
	for _, in := range m.Graph.Inputs {
		o.Pads[l.dim] = append(o.Pads[l.dim], family.Pad{Input: in.Name, Value: "0"})
	}
	for _, n := range members {
		o.Members = append(o.Members, compile.Sizes{Dims: map[string]int64{l.dim: n}})
	}
	r, err := compile.Compile(m, o)
	if err != nil {
		return err
	}
	popef, err := r.Bytes()
	if err != nil {
		return err
	}
	requests, err := l.draw(m, r)
	if err != nil {
		return err
	}
	for i := range most {
		if l.runs[i], err = sequences(cfg, i+1, data, popef, requests, compareRounded); err != nil {
			return err
		}
	}
	return nil
}

// draw makes requests of random texts.
func (l *lengths) draw(m *onnx.Model, r *compile.Result) ([]peer.Case, error) {
	rng := rand.New(rand.NewPCG(4, 128))
	var all []peer.Case
	for range lengthRequests {
		n := 4 + rng.Int64N(125)
		c := peer.Case{Name: l.model}
		for _, in := range m.Graph.Inputs {
			t := peer.Tensor{Name: in.Name, Elem: peer.Elem(in.Elem), Dims: []int64{1, n}}
			for range n {
				v := uint64(1) // of the mask
				switch in.Name {
				case "input_ids":
					v = 1 + rng.Uint64N(255)
				case "token_type_ids":
					v = 0
				}
				t.Data = binary.LittleEndian.AppendUint64(t.Data, v)
			}
			t.Size = len(t.Data)
			c.Inputs = append(c.Inputs, t)
		}
		for i, out := range r.Outputs {
			t := peer.Tensor{Name: out.Name, Elem: peer.Elem(out.Elem), Size: out.Type.DType.Size()}
			for axis, d := range m.Graph.Outputs[i].Dims {
				size := out.Type.Shape[axis]
				if d.Symbol == l.dim {
					size = n
				}
				t.Dims = append(t.Dims, size)
				t.Size *= int(size)
			}
			c.Outputs = append(c.Outputs, t)
		}
		all = append(all, c)
	}
	return all, nil
}

// compareRounded compares what is computed in float32.
func compareRounded(c *peer.Case, got, want peer.Session) error {
	return compare(c, got, want, rounding)
}

// ratio returns our time by that of ONNX Runtime, NaN if it was not measured.
func (l *lengths) ratio(threads int) float64 {
	r := l.runs[threads-1]
	if r[ours] == nil {
		return math.NaN()
	}
	return r[ours].Median() / r[ort].Median()
}

// lengthTable is the table of all models.
func lengthTable(all []*lengths) string {
	t := report.NewTable("model", "threads", "popefgen, a request", "ONNX Runtime", "ratio")
	for _, l := range all {
		for i, r := range l.runs {
			if r[ours] != nil {
				t.Row(l.model, fmt.Sprint(i+1), report.Time(r[ours].Median()/lengthRequests), report.Time(r[ort].Median()/lengthRequests), report.Ratio(l.ratio(i+1)))
			}
		}
	}
	return t.String()
}
