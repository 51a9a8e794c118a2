package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/checkpoint"
	"github.com/popefgen/popefgen/popef/contract"
)

// floats are the bytes of a tensor of F32.
func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func f32(shape ...int64) popef.TensorInfo {
	return popef.TensorInfo{DataType: popef.F32, Shape: append([]int64{}, shape...)}
}

// learnt is a checkpoint of the model that training makes.
func learnt() *checkpoint.Checkpoint {
	return &checkpoint.Checkpoint{Contract: "1a2b3c4d5e6f", Steps: 120, Tensors: []checkpoint.Tensor{
		{Name: "w", Role: contract.LoadData, Info: f32(2, 3), Data: floats(1, 2, 3, 4, 5, 6)},
		{Name: "b", Role: contract.LoadData, Info: f32(3), Data: floats(7, 8, 9)},
		{Name: "Accl___w", Role: contract.State, Info: f32(2, 3), Data: floats(0, 0, 0, 0, 0, 1)},
		{Name: "learningRate___default___FLOAT", Role: contract.Optimizer, Info: f32(), Data: floats(0.1)},
		{Name: "randomSeed___fromHost", Role: contract.Seed, Info: popef.TensorInfo{DataType: popef.U32, Shape: []int64{2}}, Data: []byte{255, 255, 255, 255, 0, 0, 192, 127}},
	}}
}

// half is a weight of bfloat16.
func half(bits ...uint16) checkpoint.Tensor {
	h := checkpoint.Tensor{Name: "h", Role: contract.LoadData, Info: popef.TensorInfo{DataType: popef.U16, Shape: []int64{int64(len(bits))}}, BFloat16: true}
	for _, b := range bits {
		h.Data = binary.LittleEndian.AppendUint16(h.Data, b)
	}
	return h
}

// model is a model with an anchor for each tensor, that trains or not.
func model(t *testing.T, tensors []checkpoint.Tensor, hidden ...string) *popef.Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.popef")
	require.NoError(t, popef.WriteFile(path, func(w *popef.Writer) error {
		meta := popef.Metadata{ReplicationFactor: 1, NumIPUs: 1, Executable: "e", ProgramFlow: popef.ProgramFlow{Main: []uint32{5}}}
		meta.Anchors = append(meta.Anchors, popef.Anchor{Name: "x", Handle: "x", Info: f32(2), Type: popef.Input, Programs: []uint32{5}})
		programs := map[contract.Role]uint32{contract.Optimizer: 1, contract.Seed: 2, contract.RandomState: 4}
		names := map[uint32]string{0: "WeightsFromHost", 1: "OptimizerFromHost", 2: "RandomSeedFromHost", 4: "RngStateFromHost"}
		for p, name := range names {
			meta.Programs = append(meta.Programs, popef.ProgramInfo{Index: p, Name: name})
			meta.ProgramFlow.Load = append(meta.ProgramFlow.Load, p)
		}
		for _, x := range tensors {
			p := programs[x.Role]
			meta.Anchors = append(meta.Anchors, popef.Anchor{Name: x.Name, Handle: "h2d_" + x.Name, Info: x.Info, Type: popef.Input, Programs: []uint32{p}})
			if x.Role == contract.Seed {
				meta.SeedHandle = "h2d_" + x.Name
			}
		}
		if err := w.WriteMetadata(&meta); err != nil {
			return err
		}
		for _, x := range tensors {
			if slices.Contains(hidden, x.Name) {
				continue
			}
			if err := w.WriteTensor(x.Name, x.Info, x.Data); err != nil {
				return err
			}
		}
		e, err := w.CreateExecutable("e", false)
		if err != nil {
			return err
		}
		if _, err := e.Write([]byte("executable")); err != nil {
			return err
		}
		return e.Close()
	}))
	m, err := popef.Load(path)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "digits.ckpt")
	want := learnt()
	require.NoError(t, want.Write(path))
	got, err := checkpoint.Read(path)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, got))
	first, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, got.Write(path))
	second, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(first, second), "the same checkpoint makes other bytes")
	require.Equal(t, floats(7, 8, 9), got.Tensor("b").Data)
	require.Nil(t, got.Tensor("c"))
}

// TestRandomRoundTrips writes and reads checkpoints of any tensors.
func TestRandomRoundTrips(t *testing.T) {
	path := filepath.Join(t.TempDir(), "any.ckpt")
	rapid.Check(t, func(r *rapid.T) {
		want := &checkpoint.Checkpoint{Contract: rapid.StringMatching(`[0-9a-f]{0,64}`).Draw(r, "contract"), Steps: rapid.Uint64().Draw(r, "steps")}
		for _, name := range rapid.SliceOfNDistinct(rapid.StringN(1, 20, 60), 0, 6, rapid.ID[string]).Draw(r, "names") {
			shape := rapid.SliceOfN(rapid.Int64Range(0, 4), 0, 3).Draw(r, "shape")
			typ := popef.DataType(rapid.Uint16Range(uint16(popef.Bool), uint16(popef.F8152)).Draw(r, "type"))
			x := checkpoint.Tensor{Name: name, Role: contract.RandomState, Info: popef.TensorInfo{DataType: typ, Shape: append([]int64{}, shape...)}}
			x.BFloat16 = typ == popef.U16 && rapid.Bool().Draw(r, "bfloat16")
			x.Constant = rapid.Bool().Draw(r, "constant")
			size, err := x.Info.SizeInBytes()
			require.NoError(r, err)
			x.Data = rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(r, "data")
			want.Tensors = append(want.Tensors, x)
		}
		require.NoError(r, want.Write(path))
		got, err := checkpoint.Read(path)
		require.NoError(r, err)
		require.Empty(r, cmp.Diff(want, got))
	})
}

// TestRefusedToWrite leaves the file as it was.
func TestRefusedToWrite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name   string
		change func(c *checkpoint.Checkpoint)
		kind   error
		says   string
	}{
		{"infinite weight", func(c *checkpoint.Checkpoint) { c.Tensors[0].Data = floats(1, 2, 3, 4, inf, 6) }, checkpoint.ErrNotFinite, `weight "w", F32 [2 3]: not finite: element [1 1] is +Inf`},
		{"no number", func(c *checkpoint.Checkpoint) { c.Tensors[1].Data = floats(nan, 2, 3) }, checkpoint.ErrNotFinite, `weight "b", F32 [3]: not finite: element [0] is NaN`},
		{"state", func(c *checkpoint.Checkpoint) { c.Tensors[2].Data = floats(0, 0, 0, 0, 0, -inf) }, checkpoint.ErrNotFinite, `state "Accl___w", F32 [2 3]: not finite: element [1 2] is -Inf`},
		{"optimizer", func(c *checkpoint.Checkpoint) { c.Tensors[3].Data = floats(nan) }, checkpoint.ErrNotFinite, `optimizer "learningRate___default___FLOAT", F32 []: not finite: element [] is NaN`},
		{"float64", func(c *checkpoint.Checkpoint) {
			c.Tensors[1] = checkpoint.Tensor{Name: "d", Role: contract.LoadData, Info: popef.TensorInfo{DataType: popef.F64}, Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.Inf(-1)))}
		}, checkpoint.ErrNotFinite, `element [] is -Inf`},
		{"float16", func(c *checkpoint.Checkpoint) {
			c.Tensors[1] = checkpoint.Tensor{Name: "h", Role: contract.LoadData, Info: popef.TensorInfo{DataType: popef.F16, Shape: []int64{2}}, Data: []byte{0, 0x7b, 0, 0xfc}}
		}, checkpoint.ErrNotFinite, `element [1] is -Inf`},
		{"bfloat16", func(c *checkpoint.Checkpoint) { c.Tensors[1] = half(0x7f7f, 0xff80) }, checkpoint.ErrNotFinite, `weight "h", U16 [2]: not finite: element [1] is -Inf`},
		{"bfloat16, no number", func(c *checkpoint.Checkpoint) { c.Tensors[1] = half(0x7f81, 0) }, checkpoint.ErrNotFinite, `element [0] is NaN`},
		{"bfloat16 of another type", func(c *checkpoint.Checkpoint) { c.Tensors[1].BFloat16 = true }, checkpoint.ErrCheckpoint, `weight "b" is F32 [3], want U16 for the bits of bfloat16`},
		{"one name twice", func(c *checkpoint.Checkpoint) { c.Tensors[1].Name = "w" }, checkpoint.ErrCheckpoint, `tensor 1 is called "w"`},
		{"size", func(c *checkpoint.Checkpoint) { c.Tensors[1].Data = floats(1, 2) }, checkpoint.ErrCheckpoint, `weight "b" has 8 bytes, and F32 [3] needs 12`},
		{"role", func(c *checkpoint.Checkpoint) { c.Tensors[1].Role = contract.RunInput }, checkpoint.ErrCheckpoint, `tensor "b" is a run input`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "digits.ckpt")
			require.NoError(t, os.WriteFile(path, []byte("before"), 0o666))
			bad := learnt()
			c.change(bad)
			err := bad.Write(path)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.says)
			left, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, "before", string(left))
		})
	}
	t.Run("as given", func(t *testing.T) {
		mask := learnt()
		mask.Tensors[1].Data, mask.Tensors[1].Given = floats(-inf, 1, 2), floats(-inf, 5, 6)
		mask.Tensors[3].Data = floats(inf) // a bound that never holds
		require.NoError(t, mask.Write(filepath.Join(t.TempDir(), "mask.ckpt")))
		bits := half(0x7f80, 0xffff)
		bits.BFloat16 = false
		mask.Tensors = append(mask.Tensors, bits)
		require.NoError(t, mask.Check(), "numbers")
		mask.Tensors[1].Data = floats(0, -inf, 2)
		require.ErrorIs(t, mask.Check(), checkpoint.ErrNotFinite)
	})
}

// TestDamaged cuts a checkpoint at every byte, and changes every byte: each is an error with a name, or leaves all as it was.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "digits.ckpt")
	want := learnt()
	require.NoError(t, want.Write(path))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for n := range whole {
		_, err := checkpoint.ReadBytes("digits.ckpt", whole[:n:n])
		require.ErrorIs(t, err, checkpoint.ErrTruncated, "cut at byte %d of %d", n, len(whole))
	}
	digests := 0
	for i := range whole {
		bad := bytes.Clone(whole)
		bad[i] ^= 0x10
		got, err := checkpoint.ReadBytes("digits.ckpt", bad)
		if err == nil {
			require.Empty(t, cmp.Diff(want, got), "byte %d changed", i)
			continue
		}
		require.ErrorIs(t, err, checkpoint.ErrCheckpoint, "byte %d changed", i)
		if bytes.Contains(whole[max(0, i-24):], floats(1, 2, 3, 4, 5, 6)) {
			digests++
		}
	}
	require.Positive(t, digests)
	at := bytes.Index(whole, floats(1, 2, 3, 4, 5, 6))
	require.Positive(t, at)
	whole[at]++
	_, err = checkpoint.ReadBytes("digits.ckpt", whole)
	require.ErrorIs(t, err, checkpoint.ErrDigest)
	require.ErrorContains(t, err, "digits.ckpt: ")
}

func TestNoCheckpoint(t *testing.T) {
	_, err := checkpoint.Read(filepath.Join(t.TempDir(), "none.ckpt"))
	require.ErrorIs(t, err, os.ErrNotExist)
	m := model(t, learnt().Tensors)
	_, err = checkpoint.Read(m.Files()[0])
	require.ErrorIs(t, err, checkpoint.ErrCheckpoint)
	require.ErrorContains(t, err, "the file has a model")
}

// TestFor compares checkpoints with models.
func TestFor(t *testing.T) {
	inf := float32(math.Inf(-1))
	pick := func(names ...string) (out []checkpoint.Tensor) {
		for _, x := range learnt().Tensors {
			if slices.Contains(names, x.Name) {
				out = append(out, x)
			}
		}
		return out
	}
	all := []string{"w", "b", "Accl___w", "learningRate___default___FLOAT", "randomSeed___fromHost"}
	shaped := learnt().Tensors
	shaped[1].Info, shaped[1].Data = f32(4), floats(0, 0, 0, 0)
	for _, c := range []struct {
		name   string
		model  []checkpoint.Tensor
		change func(c *checkpoint.Checkpoint)
		takes  []string
		kinds  []error
		says   []string
	}{
		{name: "the model that made it", model: pick(all...), takes: all},
		{name: "inference", model: pick("b", "w"), takes: []string{"w", "b"}},
		{name: "another shape", model: shaped, kinds: []error{checkpoint.ErrContract}, says: []string{`weight "b" is F32 [3] in the checkpoint and F32 [4] in the model`, "contract 1a2b3c4d"}},
		{name: "another optimizer", model: append(pick("w", "b", "learningRate___default___FLOAT", "randomSeed___fromHost"),
			checkpoint.Tensor{Name: "adamEps___default___FLOAT", Role: contract.Optimizer, Info: f32(), Data: floats(1)}),
			kinds: []error{checkpoint.ErrContract, checkpoint.ErrMissing}, says: []string{`optimizer "adamEps___default___FLOAT", F32 [], is not in the checkpoint`, `state "Accl___w", F32 [2 3], is in the checkpoint and not in the model`}},
		{name: "a weight is missing", model: append(pick("w"), checkpoint.Tensor{Name: "bb", Role: contract.LoadData, Info: f32(3), Data: floats(0, 0, 0)}),
			kinds: []error{checkpoint.ErrMissing}, says: []string{`weight "bb", F32 [3], is not in the checkpoint`, `"b"?`}},
		{name: "constants", model: nil, kinds: []error{checkpoint.ErrContract}, says: []string{"without --constants"}},
		{name: "poisoned", model: pick("w", "b"), change: func(c *checkpoint.Checkpoint) { c.Tensors[0].Data = floats(1, inf, 3, 4, 5, 6) },
			kinds: []error{checkpoint.ErrNotFinite}, says: []string{`element [0 1] is -Inf`}},
		{name: "a constant that was learnt", model: pick("w"), change: func(c *checkpoint.Checkpoint) { c.Tensors[1].Constant = true },
			kinds: []error{checkpoint.ErrContract}, says: []string{`weight "b" was learnt, and is a constant in models of inference`, "popefgen extract"}},
		{name: "a constant of one of its own", model: pick("w", "b"), change: func(c *checkpoint.Checkpoint) { c.Tensors[1].Constant = true }, takes: []string{"w", "b"}},
		{name: "the learner of constants", model: pick(all...), change: func(c *checkpoint.Checkpoint) { c.Tensors[1].Constant = true }, takes: all},
		{name: "poisoned bfloat16", model: []checkpoint.Tensor{half(0, 0)}, change: func(c *checkpoint.Checkpoint) { c.Tensors = append(c.Tensors, half(0, 0x7f80)) },
			kinds: []error{checkpoint.ErrNotFinite}, says: []string{`element [1] is +Inf`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := learnt()
			if c.change != nil {
				c.change(of)
			}
			got, err := of.For(model(t, c.model))
			if c.kinds == nil {
				require.NoError(t, err)
				var names []string
				for i := range got {
					names = append(names, got[i].Name)
				}
				require.ElementsMatch(t, c.takes, names)
				return
			}
			require.ErrorIs(t, err, checkpoint.ErrCheckpoint)
			for _, kind := range c.kinds {
				require.ErrorIs(t, err, kind)
			}
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
	t.Run("a mask of the model", func(t *testing.T) {
		of := learnt()
		of.Tensors[0].Data = floats(1, inf, 3, 4, 5, 6)
		of.Tensors[0].Given = of.Tensors[0].Data
		_, err := of.For(model(t, of.Tensors))
		require.NoError(t, err)
	})
}

// TestKilled kills a process again and again that saves checkpoints: the file is always one of them, whole.
func TestKilled(t *testing.T) {
	const env = "POPEFGEN_CHECKPOINT_KILLED"
	if path := os.Getenv(env); path != "" {
		for step := uint64(1); ; step++ {
			c := big(step)
			if err := c.Write(path); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "digits.ckpt")
	require.NoError(t, big(0).Write(path))
	saved := 0
	for i := range 6 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), env+"="+path)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(40+7*i) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait(), "it ended by itself")
		require.Empty(t, errs.String())
		c, err := checkpoint.Read(path)
		require.NoError(t, err)
		require.Equal(t, big(c.Steps), c)
		if c.Steps > 0 {
			saved++
		}
	}
	t.Logf("%d of 6 processes had saved before they were killed", saved)
}

// big is a checkpoint all of whose elements tell its step.
func big(step uint64) *checkpoint.Checkpoint {
	data := bytes.Repeat(floats(float32(step)), 1<<16)
	return &checkpoint.Checkpoint{Steps: step, Tensors: []checkpoint.Tensor{{Name: "w", Role: contract.LoadData, Info: f32(1 << 16), Data: data}}}
}

// FuzzRead reads arbitrary bytes: what is read can be written and read again.
func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed.ckpt")
	for _, c := range []*checkpoint.Checkpoint{learnt(), {}, big(1)} {
		if err := c.Write(path); err != nil {
			f.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 1<<12 {
			f.Add(b)
			f.Add(b[:len(b)-9])
		}
	}
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := checkpoint.ReadBytes("f", b)
		if err != nil {
			require.ErrorIs(t, err, checkpoint.ErrCheckpoint)
			return
		}
		if c.Check() != nil {
			return // not finite
		}
		again := filepath.Join(t.TempDir(), "again.ckpt")
		require.NoError(t, c.Write(again))
		got, err := checkpoint.Read(again)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(c, got))
	})
}
