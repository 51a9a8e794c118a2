// Command popart goes through PopART's user guide in one program: it builds a network (package net), trains it in a session with a data flow, shows reports, saves executable and variables, resets the weights, and hands
// over to package learner, which popefgen generated of the same model: both make the same step, to the bit.
//
//	go run ./generated_examples/popart             # 20 epochs
//	go run ./generated_examples/popart -o learnt   # and keep the files in a folder
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/generated_examples/popart/learner"
	"github.com/popefgen/popefgen/generated_examples/popart/net"
	"github.com/popefgen/popefgen/onnx/popart"
	"github.com/popefgen/popefgen/rt"
)

//go:generate go run ./export learner/learner.popef
//go:generate go tool popefgen generate -m learner/learner.popef -o learner -p learner --embed

func main() {
	t := training{seed: 1}
	flag.IntVar(&t.epochs, "epochs", 20, "how often to go through the scans")
	flag.StringVar(&t.folder, "o", "", "folder to keep the files in; a temporary one, if empty")
	flag.Parse()
	log.SetFlags(0)
	if _, err := t.run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// training is what one run of the program does.
type training struct {
	epochs int
	seed   uint64
	folder string
}

// result is what came of it.
type result struct {
	right   int       // of the scans that are held out
	losses  []float32 // mean of each epoch
	step    []float32 // losses of a step of the session that learnt
	typed   []float32 // losses of the same step of the generated package
	forgot  []float32 // and of the session, once its weights were reset
	summary string
}

func (t *training) run(ctx context.Context, w io.Writer) (res result, err error) {
	if t.folder == "" {
		if t.folder, err = os.MkdirTemp("", "popart"); err != nil {
			return res, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(t.folder)) }()
	} else if err := os.MkdirAll(t.folder, 0o777); err != nil {
		return res, err
	}
	model, err := net.Model(ctx, t.seed)
	if err != nil {
		return res, err
	}
	s, err := net.NewSession(ctx, model, &popart.Options{EngineOptions: map[string]string{"debug.instrument": "true"}})
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := errors.Join(s.PrepareDevice(ctx), s.WeightsFromHost(ctx)); err != nil {
		return res, err
	}
	all, err := scans.Training()
	if err != nil {
		return res, err
	}
	if err := t.learn(ctx, w, s, all, &res); err != nil {
		return res, err
	}
	if res.summary, err = s.SummaryReport(); err != nil {
		return res, err
	}
	fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(res.summary))

	saved, learnt := filepath.Join(t.folder, "learner.popef"), filepath.Join(t.folder, "learnt.onnx")
	if err := errors.Join(s.WeightsToHost(ctx), s.SaveExecutable(saved, popart.WithVariables()), s.ModelToHost(ctx, learnt)); err != nil {
		return res, err
	}
	if res.right, err = read(ctx, learnt); err != nil {
		return res, err
	}
	fmt.Fprintf(w, "\n%d of 359 held-out scans read rightly with %s\n", res.right, learnt)
	return res, t.compare(ctx, w, s, saved, model, all, &res)
}

// learn makes a step for each epoch, the last quarter of them with a smaller learning rate.
func (t *training) learn(ctx context.Context, w io.Writer, s *popart.TrainingSession, all []scans.Scan, res *result) error {
	anchors := s.InitAnchorArrays()
	random := rand.New(rand.NewPCG(t.seed, 1))
	for epoch := range t.epochs {
		if epoch == t.epochs*3/4 {
			if err := s.UpdateOptimizer(ctx, net.Optimizer(0.001)); err != nil {
				return err
			}
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if err := s.Run(ctx, popart.Arrays(arrays(all[:net.Batches*net.Batch]), anchors)); err != nil {
			return err
		}
		sum := float32(0)
		for _, l := range popart.In[float32](anchors["loss"]) {
			sum += l
		}
		res.losses = append(res.losses, sum/net.Batches)
		at := (epoch + 1) * 30 / t.epochs
		fmt.Fprintf(w, "epoch %2d of %d %s%s  loss %.4f\n", epoch+1, t.epochs, strings.Repeat("█", at), strings.Repeat("░", 30-at), sum/net.Batches)
	}
	return nil
}

// compare makes the same step with the session and with the generated package, which opens the saved file, and then with the session's weights reset to the initial ones.
func (t *training) compare(ctx context.Context, w io.Writer, s *popart.TrainingSession, saved string, model []byte, all []scans.Scan, res *result) error {
	data := arrays(all[:net.Batches*net.Batch])
	anchors := s.InitAnchorArrays()
	step := func() ([]float32, error) {
		if err := s.Run(ctx, popart.Arrays(data, anchors)); err != nil {
			return nil, err
		}
		return slices.Clone(popart.In[float32](anchors["loss"])), nil
	}
	var err error
	if res.step, err = step(); err != nil {
		return err
	}
	if res.typed, err = typed(ctx, saved, all); err != nil {
		return err
	}
	if err := errors.Join(s.ResetHostWeights(ctx, popart.Bytes(model), false), s.WeightsFromHost(ctx)); err != nil {
		return err
	}
	if res.forgot, err = step(); err != nil {
		return err
	}
	fmt.Fprintf(w, "loss of the next batches: the session %.4f, the generated package %.4f", res.step[:3], res.typed[:3])
	if !slices.Equal(res.step, res.typed) {
		return errors.New("the generated package does not make the session's step")
	}
	fmt.Fprintf(w, ", equal to the bit; with the initial weights %.4f\n", res.forgot[:3])
	return nil
}

// typed makes a step with the generated package from what a session saved, and returns its losses.
func typed(ctx context.Context, saved string, all []scans.Scan) (losses []float32, err error) {
	l, err := learner.Open(ctx, rt.WithModelFile(saved))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	in, out := learner.NewInputs(), learner.NewOutputs()
	inputs(in, all)
	if err := l.Step(ctx, in, out); err != nil {
		return nil, err
	}
	for i := range out.Loss {
		losses = append(losses, out.Loss[i].Data)
	}
	return losses, nil
}

// inputs writes scans and their labels to what a step of the package takes.
func inputs(in *learner.Inputs, all []scans.Scan) {
	for i := range in.Image {
		for j := range in.Image[i].Data {
			scan := &all[i*net.Batch+j]
			fill(&in.Image[i].Data[j][0], scan)
			in.Labels[i].Data[j] = int32(scan.Label)
		}
	}
}

// read reads what is held out with a model that was learnt, in a session for inference, and returns how many scans it reads rightly.
func read(ctx context.Context, learnt string) (right int, err error) {
	heldOut, err := scans.HeldOut()
	if err != nil {
		return 0, err
	}
	// The model's batches are of net.Batch scans: the last one is filled up with the first scans.
	batches := (len(heldOut) + net.Batch - 1) / net.Batch
	filled := append(slices.Clone(heldOut), heldOut[:batches*net.Batch-len(heldOut)]...)
	flow := popart.DataFlow{BatchesPerStep: batches, Anchors: popart.Anchors{"probabilities": popart.All}}
	s, err := popart.NewInferenceSession(ctx, popart.File(learnt), flow, popart.CPU(), nil, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	anchors := s.InitAnchorArrays()
	in := map[string]popart.Array{"image": arrays(filled)["image"]}
	if err := errors.Join(s.PrepareDevice(ctx), s.Run(ctx, popart.Arrays(in, anchors))); err != nil {
		return 0, err
	}
	probabilities := popart.In[float32](anchors["probabilities"])
	for i := range heldOut {
		of := probabilities[10*i:][:10]
		if slices.Index(of, slices.Max(of)) == heldOut[i].Label {
			right++
		}
	}
	return right, nil
}

// arrays returns scans and their labels as a step takes them.
func arrays(all []scans.Scan) map[string]popart.Array {
	images, labels := make([]float32, 0, 64*len(all)), make([]int32, 0, len(all))
	for i := range all {
		var image [8][8]float32
		fill(&image, &all[i])
		for y := range image {
			images = append(images, image[y][:]...)
		}
		labels = append(labels, int32(all[i].Label))
	}
	return map[string]popart.Array{"image": popart.Of(images), "labels": popart.Of(labels)}
}

// fill scales a scan to greys from 0 to 1.
func fill(image *[8][8]float32, s *scans.Scan) {
	for y, row := range s.Grey {
		for x, g := range row {
			image[y][x] = float32(g) / 16
		}
	}
}
