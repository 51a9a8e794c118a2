// Command finetune teaches a network that reads digits to read letters: its convolutions stay as they are, and the layers
// behind them, drawn anew, learn from letters that the program writes. Package learner makes the steps, and package classifier of the digits
// example reads what is held out, with the new weights.
//
//	go run ./generated_examples/finetune
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

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/generated_examples/finetune/learner"
)

//go:generate go tool popefgen compile ../digits/digits.onnx -o learner/learner.popef --train --loss cross-entropy --optimizer adamw,lr=0.002,weight-decay=0.01,weight-decay@*.bias=0 --freeze 0.0.* --freeze 0.2.* --init 1 --batch 32 --iterations 8 --return probabilities=none --return loss=final --quiet
//go:generate go tool popefgen generate -m learner/learner.popef -o learner -p learner --embed

func main() {
	rounds := flag.Int("rounds", 20, "how many times to learn from 512 letters")
	flag.Parse()
	log.SetFlags(0)
	if _, err := run(context.Background(), os.Stdout, *rounds); err != nil {
		log.Fatal(err)
	}
}

// run returns how many of the 500 letters that are held out were read rightly at the end.
func run(ctx context.Context, w io.Writer, rounds int) (right int, err error) {
	l, err := learner.Open(ctx)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	c, err := classifier.Open(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()

	random := rand.New(rand.NewPCG(1, 2))
	heldOut := make([]sample, 500)
	for i := range heldOut {
		heldOut[i] = write(random)
	}
	in, out := learner.NewInputs(), learner.NewOutputs()
	weights := [2]*learner.Weights{learner.NewWeights(), learner.NewWeights()} // the classifier goes on with those that it was given
	const steps = 2                                                            // a step is 8 batches, each with an update of the weights
	for round := range rounds {
		for range steps {
			for i := range in.Image {
				for j := range in.Image[i].Data {
					s := write(random)
					in.Image[i].Data[j][0], in.Labels[i].Data[j] = s.grey, int32(s.class)
				}
			}
			if err := l.Step(ctx, in, out); err != nil {
				return 0, err
			}
		}
		learnt := weights[round%2]
		if err := l.Weights(ctx, learnt); err != nil {
			return 0, err
		}
		if err := c.UpdateWeights(ctx, learnt.All()...); err != nil {
			return 0, err
		}
		if right, err = read(ctx, c, heldOut, nil); err != nil {
			return 0, err
		}
		fmt.Fprintf(w, "%6d letters  loss %.4f  %d of %d held-out letters\n", (round+1)*steps*len(in.Image)*len(in.Image[0].Data), out.Loss.Data, right, len(heldOut))
	}

	// One of each letter, with what it is read as.
	lines := make([]string, 9)
	fmt.Fprintln(w)
	seen := map[int]bool{}
	var shown []sample
	for _, s := range heldOut {
		if !seen[s.class] && len(shown) < 5 {
			seen[s.class] = true
			shown = append(shown, s)
		}
	}
	as := make([]int, len(shown))
	if _, err := read(ctx, c, shown, as); err != nil {
		return 0, err
	}
	for k := range shown {
		card := append([]string{fmt.Sprintf("%s, read as %s", alphabet[shown[k].class].letter, alphabet[as[k]].letter)}, shown[k].draw()...)
		for i, c := range card {
			lines[i] += c + strings.Repeat(" ", 19-len([]rune(c)))
		}
	}
	for _, line := range lines {
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	return right, nil
}

// read returns how many samples the classifier reads rightly, and puts what it reads into as unless that is nil.
func read(ctx context.Context, c *classifier.Runner, samples []sample, as []int) (right int, err error) {
	in, out := classifier.NewInputs(), classifier.NewOutputs()
	for i, s := range samples {
		in.Image.Data[0][0] = s.grey
		if err := c.Run(ctx, in, out); err != nil {
			return 0, err
		}
		p, best := out.Probabilities.Data[0], 0
		for k := range p {
			if p[k] > p[best] {
				best = k
			}
		}
		if best == s.class {
			right++
		}
		if as != nil {
			as[i] = best
		}
	}
	return right, nil
}
