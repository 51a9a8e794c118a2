package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/summaries"
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/train"
)

// toTrain is the heading of [trainFlags] in help.
const toTrain = "For models that learn:"

// trainFlags say how a model is trained; they need the first of them.
var trainFlags = []cli.Flag{
	&cli.BoolFlag{Category: toTrain, Name: "train", Usage: "compile a training model: forward, loss, backward and the optimizer's update"},
	&cli.StringFlag{Category: toTrain, Name: "loss", Usage: "`LOSS`[=OUTPUT][,SETTING=VALUE…]: " + strings.Join(train.LossKinds(), ", ") + " (the output is the loss); settings axis, ignore, labels, reduction, threshold", Value: "cross-entropy"},
	&cli.StringFlag{Category: toTrain, Name: "optimizer", Usage: "`OPTIMIZER`[,SETTING=VALUE…]: " + strings.Join(optim.Names(), ", ") + "; ~ before a value makes it changeable while the model trains, and SETTING@PATTERN=VALUE is for weights of these names", Value: "adam,lr=~0.001"},
	&cli.Int64Flag{Category: toTrain, Name: "accumulate", Usage: "add up the gradients of `N` micro-batches for an update", Value: 1},
	&cli.BoolFlag{Category: toTrain, Name: "sum-gradients", Usage: "update with the sum of the gradients of micro-batches, not their mean"},
	&cli.Int64Flag{Category: toTrain, Name: "replicas", Usage: "compute `N` replicas, one after the other on one CPU, for each micro-batch", Value: 1},
	&cli.StringSliceFlag{Category: toTrain, Name: "clip", Usage: "bound the norm of all gradients, `NORM`, or of those of some weights, PATTERN=NORM"},
	&cli.StringFlag{Category: toTrain, Name: "non-finite", Usage: "what becomes of a step whose loss or gradients are not finite: `WHAT` is error (the run ends), skip or ignore", DefaultText: "error; with --scale-loss skip"},
	&cli.BoolFlag{Category: toTrain, Name: "scale-loss", Usage: "change the scaling of the loss by itself, for gradients of half precision"},
	&cli.BoolFlag{Category: toTrain, Name: "batch-statistics", Usage: "let BatchNormalization take mean and variance of each batch, and learn the running ones"},
	&cli.BoolFlag{Category: toTrain, Name: "dropout", Usage: "let Dropout drop, also where the model leaves it out for inference"},
	&cli.StringFlag{Category: toTrain, Name: "recompute", Usage: "compute parts of the forward pass again in place of keeping them: `WHAT` is none, norms, standard or all", Value: "none"},
	&cli.StringSliceFlag{Category: toTrain, Name: "freeze", Usage: "leave weights as they are whose names match `PATTERN`, in which * stands for anything but /"},
	&cli.StringFlag{Category: toTrain, Name: "init", Usage: "initial weights: keep those of the model, or draw them from a `SEED`, a whole number", Value: "keep"},
	&cli.StringSliceFlag{Category: toTrain, Name: "return", Usage: "which values of an output a run returns, `OUTPUT=all`, final, sum, every:N (batches) or none"},
}

// trains reports whether a model that learns is asked for, and refuses flags that only one has.
func trains(c *cli.Context) (bool, error) {
	if c.Bool("train") {
		return true, nil
	}
	for _, f := range trainFlags {
		if name := f.Names()[0]; c.IsSet(name) {
			return false, fmt.Errorf("compile: --%s is for models that learn: give --train too, or leave it out", name)
		}
	}
	return false, nil
}

// compileTraining compiles the ONNX model at path to a training model in the file to.
func compileTraining(c *cli.Context, path, to string) error {
	start := time.Now()
	r, err := trainFile(c, path)
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(c.App.ErrWriter, "warning: %s\n", w)
	}
	if c.Bool("package-hash") {
		if err := r.RecordPackage(); err != nil {
			return fmt.Errorf("compile: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	if err := r.WriteFile(to, c.Bool("compress")); err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	if c.Bool("quiet") {
		return nil
	}
	return summaries.Training(c.Context, c.App.Writer, r, to, time.Since(start))
}

// trainFile reads and compiles the model at path as the flags say.
func trainFile(c *cli.Context, path string) (*train.Result, error) {
	if listsModels(path) {
		return nil, fmt.Errorf("%s lists several models, and --train takes one: train each by itself, and fuse what was extracted", path)
	}
	for _, flag := range []string{"pad", "concat-inputs", "constants", "overlap"} {
		if c.IsSet(flag) {
			return nil, fmt.Errorf("--%s is for models of inference: leave it out with --train, and give it when you compile what was extracted", flag)
		}
	}
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	t, err := trainOptions(c)
	if err != nil {
		return nil, err
	}
	room := budget.From(c.Context).Part(0)
	defer room.Release() // what is compiled is all that stays
	ctx := budget.Into(c.Context, room)
	m, err := onnx.ReadFileContext(ctx, path)
	if err != nil {
		return nil, kind.NotONNX(path, err)
	}
	if err := room.Take(m.Size, "%s", path); err != nil {
		return nil, err
	}
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sized, err := o.compileOptions(m)
	if err != nil {
		return nil, err
	}
	seed, training := t.Seed, t.Training
	t.Options, t.Iterations, t.DisablePasses, t.File = sized.Options, sized.Iterations, sized.DisablePasses, file
	t.Members, t.Rules = sized.Members, sized.Rules
	t.Seed, t.Training = seed, training
	r, err := train.Compile(ctx, m, t)
	var blocked *autodiff.Blocked
	if errors.Is(err, train.ErrOptions) || errors.As(err, &blocked) {
		return nil, err // whatever the sizes
	}
	return r, o.hint(err)
}

// trainOptions returns what the flags in trainFlags say.
func trainOptions(c *cli.Context) (o train.Options, err error) {
	if o.Loss, err = train.ParseLoss(c.String("loss")); err != nil {
		return o, fmt.Errorf("--loss: %w", err)
	}
	if o.Optimizer, err = optim.Parse(c.String("optimizer")); err != nil {
		return o, fmt.Errorf("--optimizer: %w", err)
	}
	for _, n := range []struct {
		flag string
		to   *int64
	}{{"accumulate", &o.Accumulation}, {"replicas", &o.Replicas}} {
		if *n.to = c.Int64(n.flag); *n.to < 1 {
			return o, fmt.Errorf("--%s %d: want at least 1", n.flag, *n.to)
		}
	}
	recomputations := []string{"none", string(autodiff.RecomputeNorms), string(autodiff.RecomputeStandard), string(autodiff.RecomputeAll)}
	switch r := c.String("recompute"); r {
	case "none":
	case recomputations[1], recomputations[2], recomputations[3]:
		o.Recompute = autodiff.Recompute(r)
	default:
		return o, fmt.Errorf("--recompute %s: want one of %s%s", r, strings.Join(recomputations, ", "), nearest.Like(r, recomputations))
	}
	if s := c.String("init"); s != "keep" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return o, fmt.Errorf("--init %s: want keep, or a whole number from 0 to %d from which initial weights are drawn", s, uint64(math.MaxUint64))
		}
		o.Init, o.Options.Seed = &seed, seed
	}
	for _, text := range c.StringSlice("clip") {
		pattern, number := "", text
		if at := strings.LastIndexByte(text, '='); at >= 0 {
			pattern, number = text[:at], text[at+1:]
		}
		norm, err := strconv.ParseFloat(number, 64)
		if err != nil || !(norm > 0) {
			return o, fmt.Errorf("--clip %s: want the largest norm, a number of more than 0, or PATTERN=NORM", text)
		}
		o.Clips = append(o.Clips, optim.Clip{Pattern: pattern, MaxNorm: norm})
	}
	switch n := optim.NonFinite(c.String("non-finite")); n {
	case "", optim.Refused, optim.Skipped, optim.Ignored:
		o.NonFinite = n
	default:
		return o, fmt.Errorf("--non-finite %s: want error, skip or ignore", n)
	}
	o.AutomaticScaling = c.Bool("scale-loss")
	o.Training = &onnx.Training{BatchStatistics: c.Bool("batch-statistics"), Dropout: c.Bool("dropout")}
	o.SumGradients, o.Freeze = c.Bool("sum-gradients"), c.StringSlice("freeze")
	o.Returns = map[string]train.Return{}
	for _, text := range c.StringSlice("return") {
		name, r, err := train.ParseReturn(text)
		if err != nil {
			return o, fmt.Errorf("--return: %w", err)
		}
		if _, ok := o.Returns[name]; ok {
			return o, fmt.Errorf("--return: %q is given twice, want it once", name)
		}
		o.Returns[name] = r
	}
	return o, nil
}
