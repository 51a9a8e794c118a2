// Command training teaches a small convolutional network to read handwritten digits, from random weights: package learner, which
// popefgen generated from ../digits/digits.onnx, makes the steps, and package classifier of the digits example reads
// the 359 scans that are held out with what was learnt.
//
//	go run ./generated_examples/training                         # 30 epochs
//	go run ./generated_examples/training -epochs 10 -save d.ckpt # ten, kept in a checkpoint
//	go run ./generated_examples/training -resume d.ckpt          # the others
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/generated_examples/training/learner"
	"github.com/popefgen/popefgen/rt"
)

//go:generate go tool popefgen compile ../digits/digits.onnx -o learner/learner.popef --train --loss cross-entropy --optimizer adam,lr=~0.002 --init 1 --batch 64 --return probabilities=none --quiet
//go:generate go tool popefgen generate -m learner/learner.popef -o learner -p learner --embed

func main() {
	var t training
	flag.IntVar(&t.epochs, "epochs", 30, "how often to go through the scans")
	flag.IntVar(&t.settle, "settle", 20, "after how many of them to make the learning rate smaller, and to leave the scans where they are")
	flag.Uint64Var(&t.seed, "seed", 1, "of the order of the scans, and of how they are shifted")
	flag.StringVar(&t.resume, "resume", "", "checkpoint to go on from")
	flag.StringVar(&t.save, "save", "", "checkpoint to write at the end")
	flag.Parse()
	log.SetFlags(0)
	if _, err := t.run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// training is what one run of the program does.
type training struct {
	epochs       int
	settle       int
	seed         uint64
	resume, save string
	options      []rt.RunnerOption // of the learner, besides
}

// result is what came of it.
type result struct {
	right  int // of the scans that are held out
	losses []float32
}

const batch = len(learner.Labels{}.Data)

func (t *training) run(ctx context.Context, w io.Writer) (res result, err error) {
	start := time.Now()
	heldOut, err := scans.HeldOut()
	if err != nil {
		return res, err
	}
	if t.resume != "" {
		t.options = append(t.options, rt.WithCheckpoint(t.resume))
	}
	l, err := learner.Open(ctx, t.options...)
	if err != nil {
		return res, err
	}
	defer l.Close()
	r, err := newReader(ctx, heldOut)
	if err != nil {
		return res, err
	}
	defer r.Close()

	early, res, err := t.learn(ctx, w, l, r)
	if err != nil {
		return res, err
	}
	if len(res.losses) > 0 {
		fmt.Fprintf(w, "\nloss of %d steps of %d scans, logarithmic\n%s", len(res.losses), batch, curve(res.losses, 72, 8))
	}
	if len(early) > 0 {
		fmt.Fprintf(w, "\nread wrongly after the first epoch, and what is read now\n")
		if err := r.show(ctx, w, early[:min(len(early), 10)]); err != nil {
			return res, err
		}
	}
	fmt.Fprintf(w, "%d of %d held-out scans read rightly by the inference package: %.1f %%; learnt in %v\n",
		res.right, len(heldOut), 100*float64(res.right)/float64(len(heldOut)), time.Since(start).Round(10*time.Millisecond))
	if t.save == "" {
		return res, nil
	}
	if err := l.Checkpoint(ctx, t.save); err != nil {
		return res, err
	}
	fmt.Fprintf(w, "%s: %d steps so far\n", t.save, l.Steps())
	return res, nil
}

// learn goes through the scans that are not held out, and returns the mistakes that were left after the first epoch.
func (t *training) learn(ctx context.Context, w io.Writer, l *learner.Runner, r *reader) (early []mistake, res result, err error) {
	all, err := scans.Training()
	if err != nil {
		return nil, res, err
	}
	steps := len(all) / batch // of an epoch: what is left over comes in another order next time
	done := int(l.Steps()) / steps
	in, out := learner.NewInputs(), learner.NewOutputs()
	// Two in turn, as the reader goes on with the weights that it was given.
	weights := [2]*learner.Weights{learner.NewWeights(), learner.NewWeights()}
	for epoch := done; epoch < t.epochs; epoch++ {
		random := rand.New(rand.NewPCG(t.seed, uint64(epoch)))
		order := random.Perm(len(all))
		settled := epoch >= t.settle
		if settled {
			if err := l.SetOptimizer(ctx, learner.Optimizer{LearningRate: 0.0005}); err != nil {
				return nil, res, err
			}
		}
		sum := float32(0)
		for s := range steps {
			dy, dx := 0, 0
			if !settled { // the scans are not all centred alike
				dy, dx = random.IntN(3)-1, random.IntN(3)-1
			}
			for i, at := range order[s*batch : (s+1)*batch] {
				fill(&in.Image.Data[i][0], &all[at], dy, dx)
				in.Labels.Data[i] = int32(all[at].Label)
			}
			if err := l.Step(ctx, in, out); err != nil {
				return nil, res, err
			}
			sum += out.Loss.Data
			res.losses = append(res.losses, out.Loss.Data)
		}
		learnt := weights[epoch%2]
		if err := l.Weights(ctx, learnt); err != nil {
			return nil, res, err
		}
		mistakes, err := r.read(ctx, learnt)
		if err != nil {
			return nil, res, err
		}
		if epoch == 0 {
			early = mistakes
		}
		res.right = len(r.heldOut) - len(mistakes)
		at := (epoch + 1) * 30 / t.epochs
		fmt.Fprintf(w, "epoch %2d of %d %s%s  loss %.4f  %d of %d held-out scans\n",
			epoch+1, t.epochs, strings.Repeat("█", at), strings.Repeat("░", 30-at), sum/float32(steps), res.right, len(r.heldOut))
	}
	return early, res, nil
}

// fill scales a scan to greys from 0 to 1, moved by dy and dx; what leaves one side comes in at the other.
func fill(image *[8][8]float32, s *scans.Scan, dy, dx int) {
	for y, row := range s.Grey {
		for x, g := range row {
			image[(y+dy+8)%8][(x+dx+8)%8] = float32(g) / 16
		}
	}
}

// reader reads scans with weights that were learnt elsewhere.
type reader struct {
	*classifier.Runner
	in      *classifier.Inputs
	out     *classifier.Outputs
	heldOut []scans.Scan
}

func newReader(ctx context.Context, heldOut []scans.Scan) (*reader, error) {
	c, err := classifier.Open(ctx)
	if err != nil {
		return nil, err
	}
	return &reader{c, classifier.NewInputs(), classifier.NewOutputs(), heldOut}, nil
}

// mistake is a scan that was read wrongly.
type mistake struct {
	scan *scans.Scan
	as   int
}

// read reads what is held out with other weights.
func (r *reader) read(ctx context.Context, learnt *learner.Weights) ([]mistake, error) {
	if err := r.UpdateWeights(ctx, learnt.All()...); err != nil {
		return nil, err
	}
	var wrong []mistake
	for i := range r.heldOut {
		s := &r.heldOut[i]
		digit, err := r.one(ctx, s)
		if err != nil {
			return nil, err
		}
		if digit != s.Label {
			wrong = append(wrong, mistake{s, digit})
		}
	}
	return wrong, nil
}

func (r *reader) one(ctx context.Context, s *scans.Scan) (digit int, err error) {
	fill(&r.in.Image.Data[0][0], s, 0, 0)
	if err := r.Run(ctx, r.in, r.out); err != nil {
		return 0, err
	}
	p := r.out.Probabilities.Data[0]
	for i := range p {
		if p[i] > p[digit] {
			digit = i
		}
	}
	return digit, nil
}

// show draws scans, five side by side, with what they were read as and what they are now.
func (r *reader) show(ctx context.Context, w io.Writer, wrong []mistake) error {
	for len(wrong) > 0 {
		n := min(len(wrong), 5)
		lines := make([]string, 9)
		for _, m := range wrong[:n] {
			now, err := r.one(ctx, m.scan)
			if err != nil {
				return err
			}
			card := append([]string{fmt.Sprintf("a %d: %d, now %d", m.scan.Label, m.as, now)}, m.scan.Draw()...)
			for i, c := range card {
				lines[i] += c + strings.Repeat(" ", 19-len([]rune(c)))
			}
		}
		for _, l := range lines {
			fmt.Fprintln(w, strings.TrimRight(l, " "))
		}
		fmt.Fprintln(w)
		wrong = wrong[n:]
	}
	return nil
}
