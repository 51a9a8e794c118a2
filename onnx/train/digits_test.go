package train_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/train"
)

const digitsFolder = "../../generated_examples/digits/"

// batchOf returns the inputs of scans.
func batchOf(all []scans.Scan) (images, labels []byte) {
	for _, s := range all {
		for _, row := range s.Grey {
			for _, g := range row {
				images = append(images, bytesOf([]float32{float32(g) / 16})...)
			}
		}
		labels = binary.LittleEndian.AppendUint32(labels, uint32(s.Label))
	}
	return images, labels
}

// right counts the scans that are recognised, by the program that evaluates.
func (l *learner) right(all []scans.Scan, batch int) (n int) {
	for at := 0; at < len(all); at += batch {
		part := all[at:min(at+batch, len(all))]
		full := part
		for len(full) < batch {
			full = append(full[:len(full):len(full)], part[0])
		}
		images, labels := batchOf(full)
		l.give("image", images)
		l.give("labels", labels)
		l.run(9)
		p := floatsOf(l.got("probabilities")[0])
		for i, s := range part {
			best := 0
			for c := range 10 {
				if p[10*i+c] > p[10*i+best] {
					best = c
				}
			}
			if best == s.Label {
				n++
			}
		}
	}
	return n
}

// TestDigits trains the digits model from random weights on real scans: what it learns recognises held-out ones.
func TestDigits(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds of training")
	}
	m, err := onnx.ReadFile(digitsFolder + "digits.onnx")
	require.NoError(t, err)
	const batch = 64
	seed := uint64(1)
	adam := optim.NewAdam()
	adam.LearningRate = optim.Changeable(2e-3)
	r, err := train.Compile(context.Background(), m, train.Options{
		Options: onnx.Options{Batch: batch}, Optimizer: adam, Init: &seed,
	})
	require.NoError(t, err)
	require.Empty(t, r.Kept)
	l := newLearner(t, r).start()
	all, err := scans.Training()
	require.NoError(t, err)
	held, err := scans.HeldOut()
	require.NoError(t, err)
	require.Less(t, l.right(held, batch), 100, "before training")
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for at := 0; at+batch <= len(all); at += batch {
			images, labels := batchOf(all[at : at+batch])
			l.give("image", images)
			l.give("labels", labels)
			l.run(5)
		}
	}
	n := l.right(held, batch)
	t.Logf("%d of %d, loss %.4g", n, len(held), l.loss())
	require.GreaterOrEqual(t, float64(n)/float64(len(held)), 0.97)
}
