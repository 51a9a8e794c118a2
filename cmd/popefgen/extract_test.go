package main

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/checkpoint"
	"github.com/popefgen/popefgen/popef/contract"
)

// TestExtractCheckpoint takes the weights of a checkpoint into the ONNX model, and refuses one of another model and one that is cut short.
func TestExtractCheckpoint(t *testing.T) {
	dir := t.TempDir()
	digits := "../../generated_examples/digits/digits.onnx"
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(want int, args ...string) string {
		t.Helper()
		var said bytes.Buffer
		require.Equal(t, want, Run(context.Background(), args, strings.NewReader(""), io.Discard, &said), said.String())
		return said.String()
	}
	run(0, "compile", digits, "--train", "--batch", "4", "-q", "-o", at("t.popef"))
	run(0, "compile", digits, "--train", "--batch", "4", "-q", "-o", at("other.popef"), "--optimizer", "rmsprop,lr=~0.01")
	m, err := popef.Load(at("t.popef"))
	require.NoError(t, err)
	defer m.Close()
	learnt := checkpoint.Checkpoint{Contract: contract.Of(m).Callers().Hash(), Steps: 3}
	for _, a := range checkpoint.Learnt(contract.Of(m)) {
		data, err := m.ReadTensor(a.Name)
		require.NoError(t, err)
		data = bytes.Clone(data)
		if a.Name == "0.0.bias" {
			copy(data, []byte{0, 0, 0x80, 0x3f}) // 1
		}
		learnt.Tensors = append(learnt.Tensors, checkpoint.Tensor{Name: a.Name, Role: checkpoint.RoleOf(&a), Info: a.Info, Data: data})
	}
	require.NoError(t, learnt.Write(at("learnt.popef")))
	run(0, "extract", at("t.popef"), "--checkpoint", at("learnt.popef"), "-o", at("learnt.onnx"), "-q")
	was, err := os.ReadFile(digits)
	require.NoError(t, err)
	is, err := os.ReadFile(at("learnt.onnx"))
	require.NoError(t, err)
	require.Len(t, is, len(was))
	changed := 0
	for i := range is {
		if is[i] != was[i] {
			changed++
		}
	}
	require.LessOrEqual(t, changed, 4, "one number")
	after, err := onnx.ReadFile(at("learnt.onnx"))
	require.NoError(t, err)
	for _, w := range after.Graph.Initializers {
		if w.Name == "0.0.bias" {
			require.Equal(t, []byte{0, 0, 0x80, 0x3f}, w.Data[:4])
		}
	}
	run(0, "compile", digits, "--train", "--batch", "4", "-q", "-o", at("bare.popef"), "--optimizer", "sgd,lr=0.01") // no states, no values
	require.Contains(t, run(2, "extract", at("bare.popef"), "--checkpoint", at("learnt.popef"), "-o", at("x.onnx")), `"Accl1___0.0.weight", F32 [16 1 3 3], is in the checkpoint and not in the model`)
	require.NoError(t, os.Link(at("t.popef"), at("link.popef")))
	require.Contains(t, run(2, "extract", at("t.popef"), "-o", at("link.popef")), "would be written over")
	require.Contains(t, run(2, "extract", at("t.popef"), "--checkpoint", at("learnt.popef"), "-o", filepath.Join(dir, "..", filepath.Base(dir), "learnt.popef")), "would be written over")
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("net.onnx", was, 0o666))
	require.Contains(t, run(2, "compile", at("net.onnx"), "--batch", "1", "-o", "net.onnx"), "would be written over")
	require.Contains(t, run(2, "extract", at("other.popef"), "--checkpoint", at("learnt.popef"), "-o", at("x.onnx")), "checkpoint of another contract")
	whole, err := os.ReadFile(at("learnt.popef"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at("short.popef"), whole[:len(whole)/2], 0o666))
	require.Contains(t, run(2, "extract", at("t.popef"), "--checkpoint", at("short.popef"), "-o", at("x.onnx")), "cut short")
	require.NoFileExists(t, at("x.onnx"))
}

// TestExtractArchive takes weights out of an .npz file, and refuses one that lacks a weight, has another shape or type, is cut short, or has what is no number.
func TestExtractArchive(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(want int, args ...string) string {
		t.Helper()
		var said bytes.Buffer
		require.Equal(t, want, Run(context.Background(), args, strings.NewReader(""), io.Discard, &said), said.String())
		return said.String()
	}
	run(0, "compile", "../../generated_examples/digits/digits.onnx", "--train", "--batch", "4", "-q", "-o", at("t.popef"))
	m, err := popef.Load(at("t.popef"))
	require.NoError(t, err)
	defer m.Close()
	about, err := train.ReadAbout(m)
	require.NoError(t, err)
	// archive writes the weights, each of which change may replace by another or leave out.
	archive := func(change func(name string, info popef.TensorInfo, data []byte) (popef.TensorInfo, []byte)) []byte {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for _, a := range m.Metadata.Anchors {
			if a.Type != popef.Input || !slices.Contains(about.Trained, a.Name) {
				continue
			}
			data, err := m.ReadTensor(a.Name)
			require.NoError(t, err)
			info, data := change(a.Name, a.Info, bytes.Clone(data))
			if data == nil {
				continue
			}
			w, err := z.Create(a.Name + ".npy")
			require.NoError(t, err)
			require.NoError(t, npy.Write(w, info, data))
		}
		require.NoError(t, z.Close())
		return b.Bytes()
	}
	type tensor = func(info popef.TensorInfo, data []byte) (popef.TensorInfo, []byte)
	for _, c := range []struct {
		name   string
		change tensor // of weight 0.0.bias, F32 [16]
		short  int    // bytes that are cut off
		says   string // nothing if it is taken
	}{
		{name: "one", change: func(i popef.TensorInfo, d []byte) (popef.TensorInfo, []byte) {
			copy(d, []byte{0, 0, 0x80, 0x3f})
			return i, d
		}},
		{name: "missing", change: func(i popef.TensorInfo, d []byte) (popef.TensorInfo, []byte) { return i, nil }, says: `weight "0.0.bias" is missing`},
		{name: "shape", change: func(i popef.TensorInfo, d []byte) (popef.TensorInfo, []byte) {
			i.Shape = []int64{4, 4}
			return i, d
		}, says: `weight "0.0.bias": found shape [4 4], want [16]`},
		{name: "type", change: func(i popef.TensorInfo, d []byte) (popef.TensorInfo, []byte) {
			i.DataType = popef.S32
			return i, d
		}, says: `weight "0.0.bias": found element type "<i4", want "<f4" (F32)`},
		{name: "nan", change: func(i popef.TensorInfo, d []byte) (popef.TensorInfo, []byte) {
			copy(d[8:], []byte{0, 0, 0xc0, 0x7f})
			return i, d
		}, says: `element [2] is NaN`},
		{name: "cut", change: func(i popef.TensorInfo, d []byte) (popef.TensorInfo, []byte) { return i, d }, short: 10, says: "cut short"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := archive(func(name string, info popef.TensorInfo, data []byte) (popef.TensorInfo, []byte) {
				if name == "0.0.bias" {
					return c.change(info, data)
				}
				return info, data
			})
			require.NoError(t, os.WriteFile(at(c.name+".npz"), b[:len(b)-c.short], 0o666))
			args := []string{"extract", at("t.popef"), "--checkpoint", at(c.name + ".npz"), "-o", at(c.name + ".onnx"), "-q"}
			if c.says != "" {
				require.Contains(t, run(2, args...), c.says)
				require.NoFileExists(t, at(c.name+".onnx"))
				return
			}
			run(0, args...)
			after, err := onnx.ReadFile(at(c.name + ".onnx"))
			require.NoError(t, err)
			for _, w := range after.Graph.Initializers {
				if w.Name == "0.0.bias" {
					require.Equal(t, []byte{0, 0, 0x80, 0x3f}, w.Data[:4])
				}
			}
		})
	}
}

// TestExtractBFloat16 refuses a weight of bfloat16, U16 in files, that is no number.
func TestExtractBFloat16(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	one := []onnx.Dim{{Known: true, Value: 2}}
	file, err := onnx.Encode(&onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 13}}, Graph: &onnx.Graph{
		Name: "half", Initializers: []*onnx.Tensor{{Name: "w", Elem: onnx.BFloat16, Dims: []int64{2}, Data: []byte{0x80, 0x3f, 0, 0x40}}},
		Inputs:  []onnx.ValueInfo{{Name: "x", Elem: onnx.BFloat16, HasShape: true, Dims: one}},
		Nodes:   []*onnx.Node{{OpType: "Mul", Inputs: []string{"x", "w"}, Outputs: []string{"y"}}},
		Outputs: []onnx.ValueInfo{{Name: "y", Elem: onnx.BFloat16}},
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at("m.onnx"), file, 0o666))
	run := func(want int, args ...string) string {
		t.Helper()
		var said bytes.Buffer
		require.Equal(t, want, Run(context.Background(), args, strings.NewReader(""), io.Discard, &said), said.String())
		return said.String()
	}
	run(0, "compile", at("m.onnx"), "--train", "--loss", "mse", "-q", "-o", at("t.popef"))
	for bits, says := range map[string]string{"\x80\x3f\x7f\x7f": "", "\x80\x3f\x80\xff": `weight "w", U16 [2]: not finite: element [1] is -Inf`} {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		w, err := z.Create("w.npy")
		require.NoError(t, err)
		require.NoError(t, npy.Write(w, popef.TensorInfo{DataType: popef.U16, Shape: []int64{2}}, []byte(bits)))
		require.NoError(t, z.Close())
		require.NoError(t, os.WriteFile(at("w.npz"), b.Bytes(), 0o666))
		args := []string{"extract", at("t.popef"), "--checkpoint", at("w.npz"), "-o", at("learnt.onnx"), "-q"}
		if says == "" {
			run(0, args...)
			require.NoError(t, os.Remove(at("learnt.onnx")))
			continue
		}
		require.Contains(t, run(2, args...), says)
		require.NoFileExists(t, at("learnt.onnx"))
	}
}
