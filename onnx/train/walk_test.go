package train_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef/contract"
)

// TestPublicModels trains public models on made data until the loss has halved, and takes the learnt weights back into models of inference: their
// contract is that of the original, and they answer as the training model does.
func TestPublicModels(t *testing.T) {
	models := filepath.Join(onnxtest.Data(t), "models")
	for _, c := range []struct {
		model  string // a CNN, an LSTM and a transformer
		sizes  onnx.Options
		loss   string
		rate   float32
		most   uint64 // of inputs of integers
		output string
	}{
		{"mnist_cnn", onnx.Options{}, "cross-entropy", 1e-3, 0, "Plus214_Output_0"},
		{"bidi_lstm_bytes", onnx.Options{Batch: 4, Dims: map[string]int64{"length": 12}}, "cross-entropy", 3e-3, 200, ""},
		{"bert_mlm_small", onnx.Options{Batch: 2, Dims: map[string]int64{"tokens": 6}}, "cross-entropy=logits,axis=-1", 1e-2, 2, "logits"},
	} {
		t.Run(c.model, func(t *testing.T) {
			m, err := onnx.ReadFile(filepath.Join(models, c.model, "model.onnx"))
			require.NoError(t, err)
			loss, err := train.ParseLoss(c.loss)
			require.NoError(t, err)
			adam := optim.NewAdam()
			adam.LearningRate = optim.Changeable(c.rate)
			training := loaded(t, compiled(t, m, train.Options{Options: c.sizes, Loss: loss, Optimizer: adam}))
			about, err := train.ReadAbout(training)
			require.NoError(t, err)
			l := openLearner(t, training).start()
			inputs := made(l, c.most)
			l.run(9)
			first := l.loss()
			steps := 0
			for ; steps < 50 && (steps == 0 || l.loss() > first/2); steps++ {
				l.run(5)
			}
			l.run(9)
			require.LessOrEqual(t, l.loss(), first/2, "after %d steps", steps)
			t.Logf("loss %.4g to %.4g in %d steps", first, l.loss(), steps)
			output := c.output
			if output == "" {
				output = training.Metadata.Anchors[outputAt(l)].Name
			}
			answer := l.got(output)[0]

			file, err := train.Extract(training, l.weights())
			require.NoError(t, err)
			learnt, err := onnx.Decode(file, "")
			require.NoError(t, err)
			sized := compile.Options{Options: onnx.Options{Shapes: about.Shapes}}
			after, err := compile.Compile(learnt, sized)
			require.NoError(t, err)
			before, err := compile.Compile(m, sized)
			require.NoError(t, err)
			is, err := after.Model("after")
			require.NoError(t, err)
			was, err := before.Model("before")
			require.NoError(t, err)
			require.Empty(t, contract.Judge(contract.Of(was).Published(), contract.Of(is).Published()), "diff says identical")
			i := openLearner(t, is).start()
			for name, data := range inputs {
				if i.streams["h2d_"+name] != nil {
					i.give(name, data)
				}
			}
			i.run(5)
			a, b := floatsOf(answer), floatsOf(i.got(output)[0])
			require.Len(t, b, len(a))
			for k := range a {
				require.InDelta(t, a[k], b[k], 1e-3+1e-3*math.Abs(float64(a[k])), "element %d of %s", k, output)
			}
		})
	}
}

// outputAt returns the place of the first output of the model's own among the anchors.
func outputAt(l *learner) int {
	for i, a := range l.file.Metadata.Anchors {
		if l.streams[a.Handle] != nil && a.Handle == "anchor_d2h_"+a.Name && a.Name != "loss" {
			return i
		}
	}
	return -1
}

// made gives each input random values: floats, or whole numbers less than most.
func made(l *learner, most uint64) map[string][]byte {
	random := rand.New(rand.NewPCG(5, 6))
	out := map[string][]byte{}
	for _, a := range l.file.Metadata.Anchors {
		if l.streams[a.Handle].give != nil || a.Handle != "h2d_"+a.Name {
			continue
		}
		size, err := a.Info.SizeInBytes()
		require.NoError(l.t, err)
		var data []byte
		each := int64(a.Info.DataType.Size())
		for int64(len(data)) < int64(size) {
			n := uint64(1)
			if most > 0 && a.Name != "attention_mask" {
				n = random.Uint64N(most)
			}
			switch {
			case a.Name == "labels":
				data = binary.LittleEndian.AppendUint32(data, uint32(random.Uint64N(2)))
			case a.Info.DataType.String() == "F32":
				data = append(data, bytesOf([]float32{float32(random.NormFloat64())})...)
			default:
				data = append(data, binary.LittleEndian.AppendUint64(nil, n)[:each]...)
			}
		}
		out[a.Name] = data
		l.give(a.Name, data)
	}
	return out
}
