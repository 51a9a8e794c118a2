package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/checkpoint"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestTrainingWalk goes a caller's way with three public models, by the command: compile --train, generate, steps on made data until the loss has halved, extract,
// golden verify, diff. Another optimizer is breaking.
func TestTrainingWalk(t *testing.T) {
	models := publicModels(t)
	for _, c := range []struct {
		model, rate string
		sizes, loss []string
		most        uint64 // of inputs of whole numbers
	}{
		{"mnist_cnn", "0.001", []string{"--batch", "1"}, nil, 0},
		{"bidi_lstm_bytes", "0.003", []string{"--batch", "4", "--dim", "length=12"}, nil, 200},
		{"bert_mlm_small", "0.01", []string{"--batch", "2", "--dim", "tokens=6"}, []string{"--loss", "cross-entropy=logits,axis=-1"}, 2},
	} {
		t.Run(c.model, func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			run := func(want int, args ...string) string {
				t.Helper()
				var out, said bytes.Buffer
				require.Equal(t, want, Run(context.Background(), args, strings.NewReader(""), &out, &said), "%s\n%s", args, said.String())
				return out.String()
			}
			model := filepath.Join(models, c.model, "model.onnx")
			train := func(to, optimizer string) {
				run(0, slices.Concat([]string{"compile", model, "--train", "-q", "-o", at(to), "--optimizer", optimizer}, c.sizes, c.loss)...)
			}
			train("learner.popef", "adam,lr=~"+c.rate)
			run(0, "generate", "-m", at("learner.popef"), "-o", at("learner"))
			learn(t, at("learner.popef"), at("learnt.ckpt"), c.most)

			run(0, "extract", at("learner.popef"), "--checkpoint", at("learnt.ckpt"), "-o", at("learnt.onnx"), "-q")
			run(0, append([]string{"compile", at("learnt.onnx"), "-q", "-o", at("after.popef")}, c.sizes...)...)
			run(0, append([]string{"compile", model, "-q", "-o", at("before.popef")}, c.sizes...)...)
			run(0, "golden", "record", at("after.popef"), "-o", at("golden"), "--random", "1")
			run(0, "extract", at("learner.popef"), "--checkpoint", at("learnt.ckpt"), "-o", at("again.popef"), "-q")
			run(0, "golden", "verify", at("again.popef"), at("golden"))
			run(1, "golden", "verify", at("before.popef"), at("golden"))
			require.Contains(t, run(0, "diff", at("before.popef"), at("after.popef")), "identical: ")

			train("sgd.popef", "sgd,lr=~0.1")
			differ := run(1, "diff", at("learner.popef"), at("sgd.popef"))
			require.Contains(t, differ, "breaking")
			require.Regexp(t, `optimizer: was .*adam.*, is .*sgd`, differ)
			require.Regexp(t, `fields of the optimizer: was `, differ)
		})
	}
}

// learn makes steps on made data until the loss has halved, fifty at most, and writes a checkpoint.
func learn(t *testing.T, model, path string, most uint64) {
	ctx := context.Background()
	m, err := popef.Load(model)
	require.NoError(t, err)
	defer m.Close()
	s, err := modelrt.NewSession(ctx, m)
	require.NoError(t, err)
	defer s.Close()
	random := rand.New(rand.NewPCG(5, 6))
	memory := map[string]*modelrt.Buffer{}
	of := contract.Of(m)
	for _, st := range s.Streams() {
		a := of.Anchor(st.Handle)
		if st.Direction == ipu.HostToDevice && a.Role != contract.RunInput {
			continue // the file gives it
		}
		b, err := modelrt.NewBuffer(st, 1)
		require.NoError(t, err)
		require.NoError(t, s.Connect(ctx, st.Handle, b))
		memory[st.Handle] = b
		if st.Direction == ipu.HostToDevice {
			fillMade(b.Bytes(), a, random, most)
		}
	}
	loss := func() float32 {
		require.NoError(t, s.RunPrograms(ctx, 9))
		return math.Float32frombits(binary.LittleEndian.Uint32(memory["anchor_d2h_loss"].Bytes()))
	}
	require.NoError(t, s.Load(ctx))
	first, steps := loss(), 0
	for ; steps < 50 && loss() > first/2; steps++ {
		require.NoError(t, s.Run(ctx))
	}
	require.LessOrEqual(t, loss(), first/2, "after %d steps", steps)
	require.NoError(t, s.Save(ctx))
	learnt := checkpoint.Checkpoint{Contract: of.Callers().Hash(), Steps: uint64(steps)}
	for _, a := range checkpoint.Learnt(of) {
		x := checkpoint.Tensor{Name: a.Name, Role: checkpoint.RoleOf(&a), Info: a.Info}
		if saved := memory["weight_d2h_"+a.Name]; saved != nil {
			x.Data = saved.Bytes()
		} else {
			x.Data, err = m.ReadTensor(a.Name)
			require.NoError(t, err)
		}
		x.Given, _ = m.TensorData(a.Name)
		learnt.Tensors = append(learnt.Tensors, x)
	}
	require.NoError(t, learnt.Write(path))
}

// fillMade fills an input with numbers around 0, with labels 0 and 1, or with whole numbers less than most.
func fillMade(to []byte, a *contract.Anchor, random *rand.Rand, most uint64) {
	size := a.Info.DataType.Size()
	for i := 0; i < len(to); i += size {
		n := uint64(1)
		switch {
		case a.Info.DataType == popef.F32:
			n = uint64(math.Float32bits(float32(random.NormFloat64())))
		case a.Name == "labels":
			n = random.Uint64N(2)
		case most > 0 && a.Name != "attention_mask":
			n = random.Uint64N(most)
		}
		copy(to[i:i+size], binary.LittleEndian.AppendUint64(nil, n))
	}
}
