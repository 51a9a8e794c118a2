package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/numbers/reader"
	"github.com/popefgen/popefgen/golden/outputs"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
)

func TestRun(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, run(&b, 3))
	found := regexp.MustCompile(`(\d+) of 96 lines read without a mistake`).FindStringSubmatch(b.String())
	require.NotNil(t, found, b.String())
	right, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	require.GreaterOrEqual(t, right, 94)
	require.Contains(t, b.String(), " pixels wide: ")
}

func TestParse(t *testing.T) {
	_, err := parse("#\n7\nab\nab\n")
	require.ErrorContains(t, err, "too few rows")
	_, err = parse("#\n7\nab\nab\nabc\nab\nab\nab\nab\nab\n")
	require.ErrorContains(t, err, "row 2 has 3 pixels, and the first 2")
}

func open(t *testing.T) (*reader.Runner, []line) {
	lines, err := parse(scans)
	require.NoError(t, err)
	r, err := reader.Open(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r, lines
}

func newNumbers(r *reader.Runner) *numbers {
	return &numbers{r: r, in: reader.NewInputs(1, 16), out: reader.NewOutputs()}
}

// TestGolden compares the scores of every size, and of a request that is filled up, with those that popefgen golden
// record stored.
func TestGolden(t *testing.T) {
	r, _ := open(t)
	set, err := outputs.Open(filepath.Join("reader", "testdata", "golden"))
	require.NoError(t, err)
	bytesOf := func(numbers []float32) [][]byte {
		return [][]byte{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(numbers))), 4*len(numbers))}
	}
	sized := func(batch, width int) *outputs.Model {
		in, out := reader.NewInputs(batch, width), reader.NewOutputs()
		out.Scores.Resize(batch, width/2)
		port := func(name string, numbers []float32, shape ...int64) outputs.Port {
			return outputs.Port{Anchor: name, Info: popef.TensorInfo{DataType: popef.F32, Shape: shape}, Data: bytesOf(numbers)}
		}
		n, w := int64(batch), int64(width)
		m := &outputs.Model{
			Contract: r.Session().Contract(),
			Inputs:   []outputs.Port{port("image", in.Image.Flat(), n, 1, height, w), port("mask", in.Mask.Flat(), n, 1, 1, w)},
			Outputs:  []outputs.Port{port("scores", out.Scores.Flat(), n, w/2, 11)},
		}
		m.Run = func(ctx context.Context) error {
			err := r.Run(ctx, in, out)
			m.Outputs[0].Data = bytesOf(out.Scores.Flat())
			return err
		}
		return m
	}
	m, seen := sized(1, 16), map[string]bool{}
	m.Sized = func(_ context.Context, shapes map[string][]int64) (*outputs.Model, error) {
		image := shapes["image"]
		seen[fmt.Sprintf("%d×%d", image[0], image[3])] = true
		return sized(int(image[0]), int(image[3])), nil
	}
	report, err := set.Verify(t.Context(), m)
	require.NoError(t, err)
	require.True(t, report.OK(), "%v", report)
	for _, s := range reader.Sizes() {
		require.True(t, seen[fmt.Sprintf("%d×%d", s.Batch(), s.Width())], "%v has no golden", s)
	}
	require.True(t, seen["3×25"], "nor has a request that is filled up")
}

// TestAnyWidth reads each line alone, whose width no member has, in the next larger batch and
// with others of any width: the scores are the same but for the order of sums.
func TestAnyWidth(t *testing.T) {
	r, lines := open(t)
	alone, together := newNumbers(r), newNumbers(r)
	for i := 0; i < len(lines); i += 3 {
		three := lines[i : i+3]
		require.NoError(t, together.read(three))
		for k := range three {
			require.NoError(t, alone.read(three[k:k+1]))
			columns := three[k].width / 2
			require.Equal(t, columns, alone.out.Scores.WidthOver2)
			for x := range columns {
				a, b := alone.out.Scores.At(0, x), together.out.Scores.At(k, x)
				for c := range a {
					require.InDelta(t, a[c], b[c], 1e-3, "line %d, column %d, class %d", i+k, x, c)
				}
			}
		}
	}
}

// TestCallers lets callers with lines of different widths ask at the same time: each gets its own.
func TestCallers(t *testing.T) {
	r, lines := open(t)
	var want []string
	m := newNumbers(r)
	for i := range lines {
		require.NoError(t, m.read(lines[i:i+1]))
		want = append(want, m.number(0, lines[i].width))
	}
	var all sync.WaitGroup
	for caller := range 8 {
		all.Go(func() {
			m := newNumbers(r)
			for k := range lines {
				i := (k*7 + caller*12) % len(lines)
				if err := m.read(lines[i : i+1]); err != nil {
					t.Error(err)
					return
				}
				if got := m.number(0, lines[i].width); got != want[i] {
					t.Errorf("caller %d, line %d: read %s, alone it is %s", caller, i, got, want[i])
				}
			}
		})
	}
	all.Wait()
}

func TestTooWide(t *testing.T) {
	r, _ := open(t)
	require.ErrorIs(t, r.Run(context.Background(), reader.NewInputs(1, 81), reader.NewOutputs()), rt.ErrSize)
}

func TestNoAllocation(t *testing.T) {
	r, lines := open(t)
	m := newNumbers(r)
	var err error
	i := 0
	read := func() {
		if e := m.read(lines[i : i+1+i%4]); e != nil {
			err = e
		}
		i = (i + 1) % 90
	}
	for range 90 { // until its memory is large enough for all
		read()
	}
	require.Zero(t, testing.AllocsPerRun(100, read))
	require.NoError(t, err)
}
