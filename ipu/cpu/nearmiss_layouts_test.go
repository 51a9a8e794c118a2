package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// layoutMiss is a family of graphs around one of the engine's own decisions: what
// it takes in NCHWc, in NHWC or into fused tiles, and graphs that are
// one step off that. All of them must give the same bits with each mechanism and
// without it, with one thread and with two, and the numbers of float64.
type layoutMiss struct {
	nearMiss
	takes  string   // an operator of the plan where the mechanism took something
	leaves []string // steps by which there is none of it
	there  func() bool
}

// layoutMisses are the families, by file.
var layoutMisses []layoutMiss

// decideAll lets the engine take all that it can, however little that saves, with
// chains that are cut anywhere, until the function that it returns is called.
func decideAll(t *rapid.T) (undo func()) {
	return layout.Force(layout.Forced{NCHWc: always, NHWC: always, Fuse: cutAnywhere(t)})
}

// cutAnywhere draws how many operators become a chain of fused tiles, and which.
func cutAnywhere(t *rapid.T) func(most int, byRows func(take int) bool) (take int, blocks, rows int64) {
	return func(most int, byRows func(int) bool) (take int, blocks, rows int64) {
		take, blocks = rapid.IntRange(2, most).Draw(t, "members"), rapid.Int64Range(1, 3).Draw(t, "blocks")
		if byRows(take) && rapid.Bool().Draw(t, "by rows") {
			rows = rapid.Int64Range(1, 9).Draw(t, "rows")
		}
		return take, blocks, rows
	}
}

// check compares one draw of a family in all ways, and returns whether the plan
// with everything taken has the family's operator.
func (m *layoutMiss) check(t *rapid.T, off string) (taken bool) {
	d, exe := m.draw(t, off)
	plain, err := encoding.Decode(exe)
	require.NoError(t, err)
	var disabled []string
	if d.yes("integers only") {
		disabled = slices.DeleteFunc(passNames(), func(n string) bool { return n == "integer" })
	}
	image := optimized(t, exe, disabled)
	factors := []float32{1, 1.25}
	want := map[float32][]float64{}
	compute := func(way string, options ...string) *Engine {
		e, err := New(ipu.EngineConfig{Name: way, Executable: image, Options: opt(options...)})
		require.NoError(t, err)
		load(t, e)
		for _, factor := range factors {
			got := d.compute(t, plain, e, factor)
			if want[factor] == nil {
				want[factor] = got
			}
			for i, w := range want[factor] {
				g := got[i]
				same := math.Float64bits(g) == math.Float64bits(w) || g != g && w != w || d.dtype == graph.F16 && g == 0 && w == 0
				require.True(t, same, "%s, weights times %g: element %d is %v, want %v", way, factor, i, g, w)
			}
		}
		require.NoError(t, e.Close())
		return e
	}
	compute("planes", "layout", "off", "threads", "1")
	m.reference(t, d, plain, exe, want[1])
	threads := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "threads")
	compute("as estimated", "threads", threads)
	defer decideAll(t)()
	e := compute("all taken", "threads", threads)
	compute("all taken but NHWC", "nhwc", "off", "threads", threads)
	compute("all taken but tiling", "tiling", "off", "threads", "1")
	for _, p := range e.plan.Programs {
		taken = taken || slices.ContainsFunc(p.Steps, func(s plan.Step) bool { return s.Op == m.takes })
	}
	return taken
}

// reference compares numbers with those of float64, or of bytes with those of the
// graph as it was drawn, whose products are of floats.
func (m *layoutMiss) reference(t *rapid.T, d *missDraw, plain *graph.Executable, exe []byte, want []float64) {
	drawn := d.compute(t, plain, newInterpreter(plain), 1)
	sameNumbers(t, drawn, want, m.tolerance, 0, "as drawn")
	if m.integers || d.dtype != graph.F32 {
		return
	}
	noisy := newInterpreter(plain)
	noisy.noise = rand.New(rand.NewPCG(1, 2))
	sway := 0.0
	for i, v := range d.compute(t, plain, noisy, 1) {
		sway = max(sway, math.Abs(v-drawn[i]))
	}
	if wide, ok := widened(exe); ok {
		sameNumbers(t, d.compute(t, wide, newInterpreter(wide), 1), want, 1e-3, sway, "in float64")
	}
}

// TestNearMissesOfLayouts compares what the engine takes in NCHWc, in NHWC or
// into fused tiles, and what is one step off that, with planes.
func TestNearMissesOfLayouts(t *testing.T) {
	fewerChecks(t, "3")
	for i := range layoutMisses {
		m := &layoutMisses[i]
		if !m.there() {
			t.Logf("there are no kernels for %s here", m.pass)
			continue
		}
		require.Subset(t, m.off, m.leaves)
		for _, off := range append([]string{""}, m.off...) {
			name := off
			if off == "" {
				name = "found"
			}
			t.Run(m.pass+"/"+name, func(t *testing.T) {
				found := 0
				check := func(t *rapid.T) {
					taken := m.check(t, off)
					if taken {
						found++
					}
					require.False(t, taken && slices.Contains(m.leaves, off), "the plan has %s", m.takes)
				}
				rapid.Check(t, check)
				if off == "" { // many draws have something in them that the mechanism leaves alone
					for more := 0; found == 0 && more < 50; more++ {
						rapid.Check(t, check)
					}
					require.Positive(t, found, "no plan has %s", m.takes)
				}
			})
		}
	}
}

// missConv is a convolution of images.
type missConv struct {
	maps, group, kernel, stride, dilation, begin, end int64
	bias                                              bool
}

// convolved adds a convolution with weights; what is 0 of it is 1, but for the
// padding.
func (d *missDraw) convolved(x graph.TensorID, c missConv) graph.TensorID {
	for _, v := range []*int64{&c.group, &c.kernel, &c.stride, &c.dilation} {
		*v = max(*v, 1)
	}
	from := d.b.Type(x).Shape
	shape := slices.Concat([]int64{c.maps, from[1] / c.group}, slices.Repeat([]int64{c.kernel}, len(from)-2))
	w := d.some(shape...)
	for i := range w {
		w[i] /= float32(shape[1]*c.kernel*c.kernel+3) / 4
	}
	in := []graph.TensorID{x, d.loaded(w, shape...)}
	if c.bias {
		in = append(in, d.weight(c.maps))
	}
	return d.node(c.op(len(from)-2), in...)
}

func (c missConv) op(axes int) *graph.Conv {
	all := func(v int64) []int64 { return slices.Repeat([]int64{v}, axes) }
	return &graph.Conv{Strides: all(max(c.stride, 1)), Dilations: all(max(c.dilation, 1)), PadsBegin: all(c.begin), PadsEnd: all(c.end), Group: max(c.group, 1)}
}

// depthwise convolves every channel of x by itself, with padding that keeps the
// size.
func (d *missDraw) depthwise(x graph.TensorID, kernel int64) graph.TensorID {
	c := d.b.Type(x).Shape[1]
	return d.convolved(x, missConv{maps: c, group: c, kernel: kernel, begin: kernel / 2, end: kernel / 2, bias: true})
}

// channelSteps are steps that change nothing but how many channels there are.
var channelSteps = []string{"1 channel", "3 channels", "15 channels", "17 channels"}

// channels returns how many channels a graph off by one of those steps has.
func (d *missDraw) channels(usual int64) int64 {
	for i, n := range []int64{1, 3, 15, 17} {
		if d.is(channelSteps[i]) {
			return n
		}
	}
	return usual
}

// rewritten is weights that a node changes after all that reads them, so that the
// next run has others.
func (d *missDraw) rewritten(shape ...int64) (w graph.TensorID, later func()) {
	w = d.weight(shape...)
	return w, func() {
		require.NoError(d, d.b.NodeTo(&graph.Unary{Fn: graph.Neg}, "later", []graph.TensorID{w}, w))
	}
}
