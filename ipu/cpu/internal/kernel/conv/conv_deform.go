package conv

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/window"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindDeformConv(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.DeformConv)
	c := &graph.Conv{Strides: o.Strides, Dilations: o.Dilations, PadsBegin: o.PadsBegin, PadsEnd: o.PadsEnd, Group: o.Group}
	s := NewConvShape(c, in[0].Shape, in[1].Shape, out[0].Shape)
	switch in[0].DType {
	case graph.F32:
		return newDeformConv[float32](s, int(o.OffsetGroup)), nil
	case graph.F64:
		return newDeformConv[float64](s, int(o.OffsetGroup)), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// deformConv computes a deformable convolution as W·X, where column j of X
// holds what the window of output position j samples. X is gathered panel by
// panel.
type deformConv[T tensor.Float] struct {
	ConvShape
	window       int // elements of the kernel of one channel
	taps         int // of them, how many are gathered at a time
	block        int // channels gathered at a time
	offsetGroups int
	slots        int
	task         deformConvTask[T]
}

// mostTaps bounds the kernel elements that are gathered at a time.
const mostTaps = 64

func newDeformConv[T tensor.Float](s ConvShape, offsetGroups int) *deformConv[T] {
	k := &deformConv[T]{ConvShape: s, window: Product3(s.Kernel), offsetGroups: offsetGroups, block: 1}
	k.taps = min(k.window, mostTaps)
	if k.taps == k.window {
		k.block = max(1, min(gemm.Block[T]()/max(1, k.window), s.Channels))
	}
	k.slots = min(tensor.MaxParts, 4*runtime.GOMAXPROCS(0))
	return k
}

func (k *deformConv[T]) samples() int { return k.taps * gemm.Panel }

func (k *deformConv[T]) panelElements() int { return k.block * k.taps * gemm.Panel }

// Scratch implements [Kernel].
func (k *deformConv[T]) Scratch() int {
	return k.slots * (k.samples()*tensor.ElementSize[window.Sample[T]]() + k.panelElements()*tensor.ElementSize[T]())
}

// deformConvTask is one run. A unit of work is a panel of output positions of
// one image and group.
type deformConvTask[T tensor.Float] struct {
	*deformConv[T]
	x, w, offset, b, mask, y []T
	table                    []window.Sample[T]
	columns                  []T
	panels, units            int
	next                     atomic.Int64
	pool                     tensor.Pool
}

// Run implements [Kernel].
func (k *deformConv[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	t.deformConv, t.pool = k, p
	t.x, t.w, t.offset, t.y = tensor.View[T](in[0]), tensor.View[T](in[1]), tensor.View[T](in[2]), tensor.View[T](out[0])
	t.b, t.mask = tensor.View[T](tensor.Memory(in, 3)), tensor.View[T](tensor.Memory(in, 4))
	tables := k.slots * k.samples() * tensor.ElementSize[window.Sample[T]]()
	t.table, t.columns = tensor.View[window.Sample[T]](scratch[:tables]), tensor.View[T](scratch[tables:])
	if len(t.y) > 0 {
		t.panels = (Product3(k.Out) + gemm.Panel - 1) / gemm.Panel
		t.units = t.panels * k.Batch * k.Group
		t.next.Store(0)
		p.Run(t, min(tensor.CutSlots(p, t.units, gemm.Panel*k.Channels*k.window*(k.Maps/2+8)), k.slots))
	}
	t.x, t.w, t.offset, t.b, t.mask, t.y, t.table, t.columns = nil, nil, nil, nil, nil, nil, nil, nil
	return nil
}

// Do implements [Task].
func (t *deformConvTask[T]) Do(part int) {
	table := t.table[part*t.samples():][:t.samples()]
	columns := t.columns[part*t.panelElements():][:t.panelElements()]
	for {
		unit := int(t.next.Add(1)) - 1
		if unit >= t.units || t.pool.Ended() {
			return
		}
		t.compute(unit, table, columns)
	}
}

// compute computes one unit.
func (t *deformConvTask[T]) compute(unit int, table []window.Sample[T], columns []T) {
	pos := unit % t.panels * gemm.Panel
	unit /= t.panels
	g, n := unit%t.Group, unit/t.Group
	plane, positions := Product3(t.In), Product3(t.Out)
	cols := min(gemm.Panel, positions-pos)
	y := t.y[unit*t.Maps*positions+pos:]
	for m := range t.Maps {
		v := T(0)
		if t.b != nil {
			v = t.b[g*t.Maps+m]
		}
		row := y[m*positions:][:cols]
		for i := range row {
			row[i] = v
		}
	}
	perOffset := t.Channels * t.Group / t.offsetGroups
	w := gemm.Matrix[T]{Data: t.w[g*t.Maps*t.Channels*t.window:], Row: t.Channels * t.window, Col: 1}
	inTable, tapsFrom := -1, -1
	for c := 0; c < t.Channels; c += t.block {
		channels := min(t.block, t.Channels-c)
		for from := 0; from < t.window; from += t.taps {
			taps := min(t.taps, t.window-from)
			for i := range channels {
				channel := g*t.Channels + c + i
				if og := channel / perOffset; og != inTable || from != tapsFrom {
					t.locate(table, n, og, from, taps, pos, cols)
					inTable, tapsFrom = og, from
				}
				x := t.x[(n*t.Group*t.Channels+channel)*plane:][:plane]
				for k := range taps {
					dst := columns[(i*taps+k)*gemm.Panel:][:cols]
					for lane, s := range table[k*gemm.Panel:][:cols] {
						dst[lane] = s.Of(x)
					}
				}
			}
			gemm.MultiplyBlock(y, positions, t.Maps, cols, w.At(0, c*t.window+from), columns, gemm.Panel, channels*taps, 1)
		}
	}
}

// locate finds out what the kernel elements [from, from+taps) sample at the
// output positions [pos, pos+cols) for a group of offsets.
func (t *deformConvTask[T]) locate(table []window.Sample[T], n, group, from, taps, pos, cols int) {
	positions := Product3(t.Out)
	height, width := t.In[1], t.In[2]
	for k := range taps {
		point := (n*t.offsetGroups+group)*t.window + from + k
		dy := t.offset[2*point*positions+pos:][:cols]
		dx := t.offset[(2*point+1)*positions+pos:][:cols]
		ky, kx := (from+k)/t.Kernel[2], (from+k)%t.Kernel[2]
		for lane := range cols {
			oy, ox := (pos+lane)/t.Out[2], (pos+lane)%t.Out[2]
			v := T(oy*t.Stride[1]-t.Pad[1]+ky*t.Dilation[1]) + dy[lane]
			h := T(ox*t.Stride[2]-t.Pad[2]+kx*t.Dilation[2]) + dx[lane]
			mask := T(1)
			if t.mask != nil {
				mask = t.mask[point*positions+pos+lane]
			}
			table[k*gemm.Panel+lane] = bilinear(v, h, height, width, mask)
		}
	}
}

// bilinear returns how the element at (v, h) of a plane is made of its
// neighbours; what is outside of the plane is zero. The weights are multiplied
// by factor.
func bilinear[T tensor.Float](v, h T, height, width int, factor T) window.Sample[T] {
	s := window.Sample[T]{At: [4]int{-1, -1, -1, -1}}
	if !(v > -1 && v < T(height) && h > -1 && h < T(width)) {
		return s
	}
	y, x := int(math.Floor(float64(v))), int(math.Floor(float64(h)))
	fy, fx := v-T(y), h-T(x)
	for i := range s.At {
		row, col := y+i/2, x+i%2
		if row < 0 || row >= height || col < 0 || col >= width {
			continue
		}
		wy, wx := fy, fx
		if i/2 == 0 {
			wy = 1 - fy
		}
		if i%2 == 0 {
			wx = 1 - fx
		}
		s.At[i] = row*width + col
		s.Weight[i] = wy * wx * factor
	}
	return s
}
