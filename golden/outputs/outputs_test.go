package outputs

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/popef"
)

// doubler is a model whose scores are twice its input, with drift added to
// the last one, and whose label is the index of the largest.
type doubler struct {
	*Model
	drift float32
	fail  error
}

func newDoubler() *doubler {
	d := &doubler{}
	port := func(name string, dt popef.DataType, shape ...int64) Port {
		p := Port{Anchor: name, Info: popef.TensorInfo{DataType: dt, Shape: shape}}
		n, err := p.Info.SizeInBytes()
		if err != nil {
			panic(err)
		}
		half := n / 2 / int64(dt.Size()) * int64(dt.Size())
		p.Data = [][]byte{make([]byte, half), make([]byte, n-half)} // as with two device iterations
		return p
	}
	d.Model = &Model{
		Inputs:  []Port{port("x", popef.F32, 2, 3)},
		Outputs: []Port{port("scores", popef.F32, 2, 3), port("fc/label:0", popef.S32, 2)},
	}
	d.Run = func(context.Context) error {
		x := floats(d.Inputs[0].bytes())
		for i := range x {
			x[i] *= 2
		}
		x[5] += d.drift
		d.Outputs[0].fill(bytesOf(x))
		var labels []byte
		for r := range 2 {
			best := 0
			for i, v := range x[3*r:][:3] {
				if v > x[3*r+best] {
					best = i
				}
			}
			labels = binary.LittleEndian.AppendUint32(labels, uint32(best))
		}
		d.Outputs[1].fill(labels)
		return d.fail
	}
	return d
}

func (d *doubler) set(x ...float32) { d.Inputs[0].fill(bytesOf(x)) }

func bytesOf(x []float32) (b []byte) {
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func floats(b []byte) (x []float32) {
	for ; len(b) > 0; b = b[4:] {
		x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return x
}

// recorded returns a model and two cases of it.
func recorded(t *testing.T) (*doubler, *Set) {
	t.Helper()
	d, dir := newDoubler(), filepath.Join(t.TempDir(), "golden")
	d.set(1, 2, 3, 4, 5, 6)
	require.NoError(t, Record(t.Context(), dir, "up", d.Model, nil))
	d.set(6, 5, 4, 3, 2, 1)
	require.NoError(t, Record(t.Context(), dir, "down", d.Model, nil))
	s, err := Open(dir)
	require.NoError(t, err)
	return d, s
}

func TestRecordAndVerify(t *testing.T) {
	d, s := recorded(t)
	require.Empty(t, cmp.Diff(map[string]Tolerance{"scores": {Rel: 1e-4, Abs: 1e-4}, "fc/label:0": {}}, s.Tolerances))
	cases, err := s.Cases()
	require.NoError(t, err)
	require.Equal(t, []string{"down", "up"}, cases)
	r, err := s.Verify(t.Context(), d.Model)
	require.NoError(t, err)
	require.True(t, r.OK())
	require.Equal(t, `ok    scores  F32 [2 3], 2 cases: equal in all 12 elements
ok    fc/label:0  S32 [2], 2 cases: equal in all 4 elements
`, r.String())

	d.drift = 1e-6
	r, err = s.Verify(t.Context(), d.Model)
	require.NoError(t, err)
	require.True(t, r.OK())
	require.Equal(t, `ok    scores  F32 [2 3], 2 cases: at most 9.54e-07 off (case down at [1 2]), 4 ULP (case down at [1 2]), top-1 agrees in 4 of 4 rows
ok    fc/label:0  S32 [2], 2 cases: equal in all 4 elements
`, r.String())

	d.drift = 5
	r, err = s.Verify(t.Context(), d.Model)
	require.NoError(t, err)
	require.False(t, r.OK())
	require.Equal(t, `FAIL  scores  F32 [2 3], 2 cases: at most 5 off (case down at [1 2]), 14680064 ULP (case down at [1 2]), top-1 agrees in 3 of 4 rows
      2 of 12 elements are out of tolerance (rel:0.0001,abs:0.0001), the worst one in case down at [1 2]:
    - 2
    + 7
      the largest element of a row is elsewhere in 1 of 4 rows
FAIL  fc/label:0  S32 [2], 2 cases: at most 2 off (case down at [1])
      1 of 4 elements are out of tolerance (exact), the worst one in case down at [1]:
    - 0
    + 2
`, r.String())
	_, err = json.Marshal(r)
	require.NoError(t, err)

	// Updated, it is as it should be.
	_, err = s.Update(t.Context(), d.Model)
	require.NoError(t, err)
	r, err = s.Verify(t.Context(), d.Model)
	require.NoError(t, err)
	require.True(t, r.OK())
}

// TestSameBytes wants the same file for the same case.
func TestSameBytes(t *testing.T) {
	_, a := recorded(t)
	_, b := recorded(t)
	for _, name := range []string{"up.npz", "down.npz", Manifest} {
		x, err := os.ReadFile(filepath.Join(a.Dir, name))
		require.NoError(t, err)
		y, err := os.ReadFile(filepath.Join(b.Dir, name))
		require.NoError(t, err)
		require.Equal(t, x, y, name)
	}
}

func TestNotFinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		want, got float32
		ok        bool
	}{
		{inf, inf, true}, {nan, nan, true}, {inf, -inf, false}, {inf, math.MaxFloat32, false}, {1, nan, false}, {nan, 1, false}, {0, float32(math.Copysign(0, -1)), true},
	} {
		info := popef.TensorInfo{DataType: popef.F32, Shape: []int64{1}}
		o := Output{Info: info, Tolerance: Tolerance{Rel: 1, Abs: 1}}
		o.compare("a", bytesOf([]float32{c.got}), bytesOf([]float32{c.want}))
		require.Equal(t, c.ok, o.Bad == 0, "%v for %v", c.got, c.want)
		_, err := json.Marshal(o)
		require.NoError(t, err)
	}
}

func TestBroken(t *testing.T) {
	d, s := recorded(t)
	failure := errors.New("no device")
	d.fail = failure
	_, err := s.Verify(t.Context(), d.Model)
	require.ErrorIs(t, err, failure)
	require.ErrorContains(t, err, "down.npz")
	d.fail = nil

	other := newDoubler()
	other.Inputs[0].Anchor = "pixels"
	_, err = s.Verify(t.Context(), other.Model)
	require.ErrorContains(t, err, `down.npz: there is no input "pixels"; record the case again`)

	other = newDoubler()
	other.Inputs[0].Info.Shape = []int64{3, 2}
	_, err = s.Verify(t.Context(), other.Model)
	require.ErrorContains(t, err, "down.npz: input x: found shape [2 3], want [3 2]")

	other = newDoubler()
	other.Outputs = other.Outputs[:1]
	_, err = s.Verify(t.Context(), other.Model)
	require.ErrorContains(t, err, "the model has no anchor for output/fc_label_0; record the case again")

	data, err := os.ReadFile(s.path("up"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path("up"), data[:len(data)/2], 0o666))
	_, err = s.Verify(t.Context(), d.Model)
	require.ErrorContains(t, err, "up.npz")

	for text, want := range map[string]string{
		`{"format": "popefgen golden 9"}`:                                     "found format",
		`{"format": "popefgen golden 1", "tolerance": 1}`:                     "unknown field",
		`{"format": "popefgen golden 1", "outputs": {"scores": {"ulp": -1}}}`: "golden.json",
		`{`: "golden.json",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(s.Dir, Manifest), []byte(text), 0o666))
		_, err = Open(s.Dir)
		require.ErrorContains(t, err, want)
	}

	empty := t.TempDir()
	_, err = Open(empty)
	require.ErrorIs(t, err, ErrNoGoldens)
	require.NoError(t, (&Set{Dir: empty}).save())
	_, err = (&Set{Dir: empty}).Verify(t.Context(), d.Model)
	require.ErrorIs(t, err, ErrNoGoldens)
	for _, name := range []string{"", "..", "a/b", ".x"} {
		require.ErrorContains(t, Record(t.Context(), empty, name, d.Model, nil), "want a plain file name", name)
	}
}

// TestNamesThatMeet refuses anchors that one entry would stand for.
func TestNamesThatMeet(t *testing.T) {
	d := newDoubler()
	d.Outputs[0].Anchor, d.Outputs[1].Anchor = "a/b", "a:b"
	to := filepath.Join(t.TempDir(), "new")
	require.ErrorContains(t, Record(t.Context(), to, "x", d.Model, nil), `outputs "a/b" and "a:b" would both be stored as a_b.npy`)
	require.NoDirExists(t, to)
}

func TestParseTolerance(t *testing.T) {
	for text, want := range map[string]Tolerance{
		"exact": {}, "ulp:4": {ULP: 4}, "rel:1e-3,abs:1e-5": {Rel: 1e-3, Abs: 1e-5}, "abs:2,ulp:1,rel:0.5": {ULP: 1, Rel: 0.5, Abs: 2},
	} {
		got, err := ParseTolerance(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseTolerance(got.String())
		require.NoError(t, err)
		require.Equal(t, want, again)
	}
	for _, text := range []string{"", "close", "ulp", "ulp:-1", "ulp:1.5", "rel:x", "abs:-1", "abs:NaN", "rel:Inf", "rel:1,,abs:2"} {
		_, err := ParseTolerance(text)
		require.ErrorContains(t, err, "want exact or a list", text)
	}
}

// TestULP counts the values between two elements one by one.
func TestULP(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// In half precision every value can be counted.
		finite := rapid.Custom(func(t *rapid.T) uint16 {
			return uint16(rapid.IntRange(0, 0x7bff).Draw(t, "bits") | rapid.IntRange(0, 1).Draw(t, "sign")<<15)
		})
		a, b := finite.Draw(t, "a"), finite.Draw(t, "b")
		x, y := num.Float16(a).Float32(), num.Float16(b).Float32()
		n := uint64(0)
		for bits := range 0x10000 {
			v := num.Float16(bits).Float32()
			// Both zeros are one value.
			if bits != 0x8000 && v > min(x, y) && v <= max(x, y) {
				n++
			}
		}
		le := binary.LittleEndian
		require.Equal(t, n, ulps(popef.F16, le.AppendUint16(nil, a), le.AppendUint16(nil, b)))
	})
}

// TestSuit keeps the default tolerances.
func TestSuit(t *testing.T) {
	for _, c := range []struct {
		t       popef.DataType
		example []byte
		want    string
	}{
		{popef.F32, bytesOf([]float32{0.3, -0.9}), "rel:0.0001,abs:1e-06"},
		{popef.F32, bytesOf([]float32{-420, 1}), "rel:0.0001,abs:0.001"},
		{popef.F32, bytesOf([]float32{0}), "rel:0.0001,abs:1e-06"},
		{popef.F32, bytesOf([]float32{float32(math.Inf(1)), 2}), "rel:0.0001,abs:1e-05"},
		{popef.F16, []byte{0, 0x3c}, "rel:0.01,abs:0.001"},
		{popef.S64, make([]byte, 8), "exact"}, {popef.Bool, []byte{1}, "exact"}, {popef.F8, []byte{1}, "exact"},
	} {
		require.Equal(t, c.want, suit(precisions, popef.TensorInfo{DataType: c.t}, c.example).String())
	}
}

// FuzzCase gives the reader of cases any file.
func FuzzCase(f *testing.F) {
	d, dir := newDoubler(), f.TempDir()
	if err := Record(context.Background(), dir, "x", d.Model, nil); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "x.npz"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &Set{Dir: t.TempDir()}
		require.NoError(t, os.WriteFile(s.path("x"), data, 0o666))
		if want, err := s.load("x", newDoubler().Model); err == nil {
			require.Len(t, want, 2)
		}
	})
}

var kept [][]byte

// TestAllocations: what allocates in every call is noticed, what does once is not.
func TestAllocations(t *testing.T) {
	calls := 0
	require.Zero(t, Allocations(func() {
		if calls++; calls == 3 {
			for range 20 {
				kept = append(kept, make([]byte, 100))
			}
		}
	}))
	require.Equal(t, 12, calls)
	require.Positive(t, Allocations(func() { kept = append(kept[:0], make([]byte, 100)) }))
}
