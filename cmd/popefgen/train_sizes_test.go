package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mixedSizes makes steps of two sizes: in the package both, and in the packages four and eight each those of its size, where a checkpoint goes from one to
// the other for each step.
const mixedSizes = `
	random := rand.New(rand.NewPCG(1, 2))
	images, classes := make([]float32, 8*64), make([]int32, 8)
	r, err := both.Open(ctx)
	check(err)
	defer func() { r.Close() }()
	in, out := both.NewInputs(4), both.NewOutputs()
	same := func(a, b any) {
		if fmt.Sprint(a) != fmt.Sprint(b) {
			log.Fatalf("found %v, want %v", a, b)
		}
	}
	for step, n := range []int{4, 8, 8, 4, 8, 4} {
		for i := range images {
			images[i] = random.Float32()
		}
		for i := range classes {
			classes[i] = random.Int32N(10)
		}
		before, after := fmt.Sprint("step", step, ".ckpt"), fmt.Sprint("after", step, ".ckpt")
		check(r.Checkpoint(ctx, before))
		if step == 3 { // it goes on in a runner of its own
			check(r.Close())
			r, err = both.Open(ctx, rt.WithCheckpoint(before))
			check(err)
		}
		in.Image.Resize(n)
		in.Labels.Resize(n)
		copy(in.Image.Flat(), images)
		copy(in.Labels.Flat(), classes)
		check(r.Step(ctx, in, out))
		if n == 4 {
			one, err := four.Open(ctx, rt.WithCheckpoint(before))
			check(err)
			in, got := four.NewInputs(), four.NewOutputs()
			copy(in.Image.Flat(), images)
			copy(in.Labels.Flat(), classes)
			check(one.Step(ctx, in, got))
			same(out.Loss.Data, got.Loss.Data)
			same(out.Probabilities.Flat(), got.Probabilities.Flat())
			check(one.Checkpoint(ctx, after))
			check(one.Close())
		} else {
			one, err := eight.Open(ctx, rt.WithCheckpoint(before))
			check(err)
			in, got := eight.NewInputs(), eight.NewOutputs()
			copy(in.Image.Flat(), images)
			copy(in.Labels.Flat(), classes)
			check(one.Step(ctx, in, got))
			same(out.Loss.Data, got.Loss.Data)
			same(out.Probabilities.Flat(), got.Probabilities.Flat())
			check(one.Checkpoint(ctx, after))
			check(one.Close())
		}
		single, err := both.Open(ctx, rt.WithCheckpoint(after))
		check(err)
		want, is := both.NewSaveOutputs(), both.NewSaveOutputs()
		check(single.Save(ctx, want))
		check(r.Save(ctx, is))
		for i, w := range want.All() {
			same(is.All()[i].Data, w.Data)
		}
		same(single.Steps(), r.Steps())
		check(single.Close())
	}
	same(r.Steps(), 6)
	if n := testing.AllocsPerRun(5, func() {
		for _, n := range []int{8, 4} {
			in.Image.Resize(n)
			in.Labels.Resize(n)
			check(r.Step(ctx, in, out))
		}
	}); n != 0 {
		log.Fatal(n, " allocations in two steps")
	}
	check(r.Checkpoint(ctx, "learnt.ckpt"))
`

// TestTrainSizes trains a model of two sizes as a user does: compile, generate, steps of both sizes, whose bits are those of packages of one size
// each, and extract. The weights that were learnt are then in the ONNX model.
func TestTrainSizes(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages")
	}
	digits, err := filepath.Abs("../../generated_examples/digits/digits.onnx")
	require.NoError(t, err)
	module := t.TempDir()
	at := func(name string) string { return filepath.Join(module, name) }
	run := func(args ...string) {
		t.Helper()
		var said bytes.Buffer
		require.Equal(t, 0, Run(context.Background(), args, strings.NewReader(""), io.Discard, &said), said.String())
	}
	imports := "\t\"fmt\"\n\t\"math/rand/v2\"\n\t\"testing\"\n\n\t\"github.com/popefgen/popefgen/rt\"\n"
	for name, batch := range map[string]string{"both": "4,8", "four": "4", "eight": "8"} {
		run("compile", digits, "--train", "--batch", batch, "--init", "3", "--optimizer", "adam,lr=~0.002", "-q", "-o", at(name+"/"+name+".popef"))
		run("generate", "-m", at(name+"/"+name+".popef"), "-o", at(name), "--embed", "-q")
		imports += "\t\"publicmodels/" + name + "\"\n"
	}
	runProgram(t, module, imports, mixedSizes)
	for _, name := range []string{"both", "four"} { // whichever learnt it, the checkpoint is the same
		run("extract", at(name+"/"+name+".popef"), "--checkpoint", at("learnt.ckpt"), "-o", at(name+".onnx"), "-q")
	}
	both, err := os.ReadFile(at("both.onnx"))
	require.NoError(t, err)
	four, err := os.ReadFile(at("four.onnx"))
	require.NoError(t, err)
	was, err := os.ReadFile(digits)
	require.NoError(t, err)
	require.Equal(t, four, both)
	require.NotEqual(t, was, both)
	require.Len(t, both, len(was))
}
