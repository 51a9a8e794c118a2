// Command answers prints what the examples' models answer, bit by bit: a line
// for each request, with the model's name, the request's number and a digest of
// the outputs, or their bits where there are few. The same lines are wanted of
// every platform that computes in plain Go; `make cross-test` compares them.
//
//	answers DIGITS DIR # the path of digits.popef, and a folder for a checkpoint
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/popefgen/popefgen/generated_examples/diabetes/progression"
	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/generated_examples/numbers/reader"
	"github.com/popefgen/popefgen/generated_examples/training/learner"
	"github.com/popefgen/popefgen/generated_examples/words/letters"
	"github.com/popefgen/popefgen/rt"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: answers DIGITS DIR, the path of digits.popef and a folder for a checkpoint")
	}
	heldOut, err := scans.HeldOut()
	if err != nil {
		log.Fatal(err)
	}
	ctx, w := context.Background(), os.Stdout
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"digits", func() error { return digits(ctx, w, "digits", heldOut) }},
		{"digits from a file", func() error { return digits(ctx, w, "file", heldOut[:5], rt.WithModelFile(os.Args[1])) }},
		{"digits by tickets", func() error { return tickets(ctx, w, heldOut) }},
		{"words", func() error { return words(ctx, w) }},
		{"diabetes", func() error { return diabetes(ctx, w) }},
		{"numbers", func() error { return numbers(ctx, w) }},
		{"training", func() error { return training(ctx, w, heldOut, filepath.Join(os.Args[2], "answers.ckpt")) }},
	} {
		if err := part.run(); err != nil {
			log.Fatalf("%s: %v", part.name, err)
		}
	}
}

// printBits prints one answer: the bits of a few numbers, a digest of more.
func printBits(w io.Writer, name string, request int, values []float32) {
	var b []byte
	for _, v := range values {
		b = fmt.Appendf(b, " %08x", math.Float32bits(v))
	}
	if len(values) > 10 {
		b = fmt.Appendf(nil, " %x of %d numbers", sha256.Sum256(b), len(values))
	}
	fmt.Fprintf(w, "%s %d%s\n", name, request, b)
}

// fillImage scales a scan to what the models of digits were trained on.
func fillImage(image *[1][8][8]float32, s scans.Scan) {
	for y, row := range s.Grey {
		for x, g := range row {
			image[0][y][x] = float32(g) / 16
		}
	}
}

func digits(ctx context.Context, w io.Writer, name string, all []scans.Scan, opts ...rt.RunnerOption) error {
	r, err := classifier.Open(ctx, opts...)
	if err != nil {
		return err
	}
	defer r.Close()
	in, out := classifier.NewInputs(), classifier.NewOutputs()
	for i, s := range all {
		fillImage(&in.Image.Data[0], s)
		if err := r.Run(ctx, in, out); err != nil {
			return err
		}
		printBits(w, name, i, out.Probabilities.Flat())
	}
	return r.Close()
}

// tickets submits from several goroutines to two replicas with two threads
// each, so that goroutines wait for each other wherever they can.
func tickets(ctx context.Context, w io.Writer, all []scans.Scan) error {
	r, err := classifier.Open(ctx, rt.WithReplicas(2), rt.WithEngineOption("threads", "2"))
	if err != nil {
		return err
	}
	defer r.Close()
	const callers = 4
	answers, errs := make([][]float32, 40), make([]error, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := c; i < len(answers); i += callers {
				in, out := classifier.NewInputs(), classifier.NewOutputs()
				fillImage(&in.Image.Data[0], all[i])
				ticket, err := r.Submit(ctx, in, out)
				if err == nil {
					err = ticket.Wait(ctx)
				}
				if err != nil {
					errs[c] = err
					return
				}
				answers[i] = out.Probabilities.Flat()
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for i, a := range answers {
		printBits(w, "tickets", i, a)
	}
	return r.Close()
}

func words(ctx context.Context, w io.Writer) error {
	r, err := letters.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	s, err := r.NewStream()
	if err != nil {
		return err
	}
	in, out := letters.NewStreamInputs(), letters.NewStreamOutputs()
	for i := range 100 { // no choice depends on an answer, so that one that differs is not followed by others
		in.Letter.Data[0][0] = int32(i * 7 % 27)
		if err := s.Run(ctx, in, out); err != nil {
			return err
		}
		printBits(w, "words", i, out.Next.Flat())
	}
	return r.Close()
}

func diabetes(ctx context.Context, w io.Writer) error {
	r, err := progression.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	in, out := progression.NewInputs(), progression.NewOutputs()
	for i := range 20 {
		f := float32(i)
		in.Age.Data[0][0], in.Sex.Data[0] = int32(20+3*i), int64(i%2)
		in.Measurements.Data[0] = [8]float32{18 + f, 62 + 3.5*f, 97 + 9*f, 42 + 8*f, 22 + 3*f, 2 + 0.3*f, 3.3 + 0.14*f, 58 + 3*f}
		if err := r.Run(ctx, in, out); err != nil {
			return err
		}
		printBits(w, "diabetes", i, out.Progression.Flat())
	}
	return r.Close()
}

func numbers(ctx context.Context, w io.Writer) error {
	r, err := reader.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	for i, size := range [][2]int{{1, 32}, {3, 48}, {4, 80}} {
		in, out := reader.NewInputs(size[0], size[1]), reader.NewOutputs()
		for j := range in.Image.Flat() {
			in.Image.Flat()[j] = float32(j*5%17) / 16
		}
		for j := range in.Mask.Flat() {
			in.Mask.Flat()[j] = 1
		}
		if err := r.Run(ctx, in, out); err != nil {
			return err
		}
		printBits(w, "numbers", i, out.Scores.Flat())
	}
	return r.Close()
}

// training makes steps, and others from a checkpoint of the first.
func training(ctx context.Context, w io.Writer, all []scans.Scan, checkpoint string) error {
	batches := func(first int, opts ...rt.RunnerOption) error {
		l, err := learner.Open(ctx, opts...)
		if err != nil {
			return err
		}
		defer l.Close()
		in, out := learner.NewInputs(), learner.NewOutputs()
		for step := first; step < first+2; step++ {
			for i := range in.Labels.Data {
				s := all[(step*len(in.Labels.Data)+i)%len(all)]
				fillImage(&in.Image.Data[i], s)
				in.Labels.Data[i] = int32(s.Label)
			}
			if err := l.Step(ctx, in, out); err != nil {
				return err
			}
			printBits(w, "training", step, []float32{out.Loss.Data})
		}
		if err := l.Checkpoint(ctx, checkpoint); err != nil {
			return err
		}
		return l.Close()
	}
	if err := batches(0); err != nil {
		return err
	}
	return batches(2, rt.WithCheckpoint(checkpoint))
}
