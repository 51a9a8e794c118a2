// Command popxl teaches a small transformer, which package net writes in Go, to read handwritten digits: a popxl.Session makes the steps, and package reader, which popefgen generated from the same network, reads the
// 359 scans that are held out with what was learnt.
//
//	go run ./generated_examples/popxl            # 20 epochs
//	go run ./generated_examples/popxl -replicas 2 # in two replicas, each with half of every batch
//	go run ./generated_examples/popxl -o d.popef # and write what was learnt as a model
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/generated_examples/popxl/net"
	"github.com/popefgen/popefgen/generated_examples/popxl/reader"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/popxl"

	_ "github.com/popefgen/popefgen/ipu/cpu"
)

//go:generate go run ./export reader/reader.popef
//go:generate go tool popefgen generate -m reader/reader.popef -o reader -p reader --embed

func main() {
	var t training
	flag.IntVar(&t.epochs, "epochs", 20, "how often to go through the scans")
	flag.Uint64Var(&t.seed, "seed", 1, "of the initial weights, and of the order of the scans")
	flag.IntVar(&t.replicas, "replicas", 1, "how many replicas share a batch of 64: a power of two")
	flag.StringVar(&t.save, "o", "", "file to write the model that reads to, with what was learnt")
	flag.Parse()
	log.SetFlags(0)
	if _, err := t.run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// training is what one run of the program does.
type training struct {
	epochs   int
	seed     uint64
	replicas int
	save     string
}

// result is what came of it.
type result struct {
	right   int // of the scans that are held out
	losses  []float32
	weights map[string][]float32
}

const batch = 64

func (t *training) run(ctx context.Context, w io.Writer) (res result, err error) {
	start := time.Now()
	all, err := scans.Training()
	if err != nil {
		return res, err
	}
	heldOut, err := scans.HeldOut()
	if err != nil {
		return res, err
	}
	r, err := reader.Open(ctx)
	if err != nil {
		return res, err
	}
	defer r.Close()

	steps := len(all) / batch // of an epoch, which is a run: what is left over comes in another order next time
	adam := optim.NewAdam()
	adam.LearningRate = optim.Changeable(rate(0, t.epochs))
	if t.replicas < 1 || batch%t.replicas > 0 {
		return res, fmt.Errorf("%d replicas do not share a batch of %d scans: take 1, 2, 4 … %d", t.replicas, batch, batch)
	}
	n := net.Learner(int64(batch/t.replicas), int64(steps), t.replicas, t.seed, adam)
	kind := popxl.CPU
	if t.replicas > 1 {
		kind = popxl.IPUModel
	}
	s, err := popxl.NewSession(ctx, n.Ir, kind)
	if err != nil {
		return res, err
	}
	defer s.Close()
	images, labels, losses := make([]float32, steps*batch*net.Rows*net.Columns), make([]int32, steps*batch), n.Loss.Make()
	err = s.In(ctx, func() error {
		for epoch := range t.epochs {
			adam.LearningRate = optim.Changeable(rate(epoch, t.epochs))
			if err := s.SetOptimizer(ctx, adam); err != nil {
				return err
			}
			for i, at := range rand.New(rand.NewPCG(t.seed, uint64(epoch))).Perm(len(all))[:steps*batch] {
				fill(images[i*net.Rows*net.Columns:], &all[at])
				labels[i] = int32(all[at].Label)
			}
			if err := s.Run(ctx, n.Images.Feed(images), n.Labels.Feed(labels), n.Loss.Into(losses)); err != nil {
				return err
			}
			for at := 0; at < len(losses); at += t.replicas {
				res.losses = append(res.losses, mean(losses[at:at+t.replicas]))
			}
			if res.weights, err = learnt(ctx, s, n); err != nil {
				return err
			}
			if res.right, err = read(ctx, r, res.weights, heldOut); err != nil {
				return err
			}
			at := (epoch + 1) * 30 / t.epochs
			fmt.Fprintf(w, "epoch %2d of %d %s%s  loss %.4f  %d of %d held-out scans\n",
				epoch+1, t.epochs, strings.Repeat("█", at), strings.Repeat("░", 30-at), mean(losses), res.right, len(heldOut))
		}
		return nil
	})
	if err != nil {
		return res, err
	}
	fmt.Fprintf(w, "\nloss of %d steps of %d scans, logarithmic\n%s\n%d of %d held-out scans read rightly by the generated package: %.1f %%; learnt in %v\n",
		len(res.losses), batch, curve(res.losses, 72), res.right, len(heldOut), 100*float64(res.right)/float64(len(heldOut)), time.Since(start).Round(10*time.Millisecond))
	if t.save == "" {
		return res, nil
	}
	model, err := net.Reader(1, res.weights).Ir.Export(ctx)
	if err != nil {
		return res, err
	}
	return res, model.WriteFile(t.save, false)
}

// rate is the learning rate of an epoch: it falls to nothing, half a cosine long.
func rate(epoch, epochs int) float32 {
	return float32(0.003 * (1 + math.Cos(math.Pi*float64(epoch)/float64(max(epochs, 1)))) / 2)
}

// fill scales a scan to greys from 0 to 1.
func fill(image []float32, s *scans.Scan) {
	for y, row := range s.Grey {
		for x, g := range row {
			image[y*net.Columns+x] = float32(g) / 16
		}
	}
}

func mean(values []float32) float32 {
	sum := float32(0)
	for _, v := range values {
		sum += v
	}
	return sum / float32(len(values))
}

// learnt returns the weights by name.
func learnt(ctx context.Context, s *popxl.Session, n *net.Net) (map[string][]float32, error) {
	weights := map[string][]float32{}
	var bindings []popxl.Binding
	for _, v := range n.Variables {
		size := int64(1)
		for _, d := range v.Tensor().Shape() {
			size *= d
		}
		weights[v.Name()] = make([]float32, size)
		bindings = append(bindings, v.Into(weights[v.Name()]))
	}
	return weights, s.Variables(ctx, bindings...)
}

// read returns how many scans the generated package reads rightly with these weights.
func read(ctx context.Context, r *reader.Runner, weights map[string][]float32, all []scans.Scan) (right int, err error) {
	var given []rt.Weight
	for name, values := range weights {
		data, err := binary.Append(nil, binary.LittleEndian, values)
		if err != nil {
			return 0, err
		}
		given = append(given, rt.Weight{Anchor: name, Data: data})
	}
	if err := r.UpdateWeights(ctx, given...); err != nil {
		return 0, err
	}
	in, out := reader.NewInputs(), reader.NewOutputs()
	for i := range all {
		fill(in.Images.Flat(), &all[i])
		if err := r.Run(ctx, in, out); err != nil {
			return 0, err
		}
		digit := 0
		p := out.Probabilities.Data[0]
		for d := range p {
			if p[d] > p[digit] {
				digit = d
			}
		}
		if digit == all[i].Label {
			right++
		}
	}
	return right, nil
}

// curve draws numbers as one row of bars, at most so many, on a logarithmic scale from the smallest to the largest mean of those that a bar stands for.
func curve(values []float32, columns int) string {
	columns = min(columns, len(values))
	logs := make([]float64, columns)
	low, high := math.Inf(1), math.Inf(-1)
	for c := range logs {
		logs[c] = math.Log10(max(float64(mean(values[c*len(values)/columns:(c+1)*len(values)/columns])), 1e-9))
		low, high = min(low, logs[c]), max(high, logs[c])
	}
	var b strings.Builder
	for _, l := range logs {
		at := 0
		if high > low {
			at = int(math.Round((l - low) / (high - low) * 7))
		}
		b.WriteRune([]rune("▁▂▃▄▅▆▇█")[at])
	}
	return fmt.Sprintf("%.4f %s %.4f", math.Pow(10, high), b.String(), math.Pow(10, low))
}
