package kernel

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu/graph"
)

func bindDeformConv(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	o := op.(*graph.DeformConv)
	c := &graph.Conv{Strides: o.Strides, Dilations: o.Dilations, PadsBegin: o.PadsBegin, PadsEnd: o.PadsEnd, Group: o.Group}
	s := newConvShape(c, in[0].Shape, in[1].Shape, out[0].Shape)
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
type deformConv[T float] struct {
	convShape
	window       int // elements of the kernel of one channel
	taps         int // of them, how many are gathered at a time
	block        int // channels gathered at a time
	offsetGroups int
	slots        int
	task         deformConvTask[T]
}

// mostTaps bounds the kernel elements that are gathered at a time.
const mostTaps = 64

func newDeformConv[T float](s convShape, offsetGroups int) *deformConv[T] {
	k := &deformConv[T]{convShape: s, window: product3(s.kernel), offsetGroups: offsetGroups, block: 1}
	k.taps = min(k.window, mostTaps)
	if k.taps == k.window {
		k.block = max(1, min(block[T]()/max(1, k.window), s.channels))
	}
	k.slots = min(maxParts, 4*runtime.GOMAXPROCS(0))
	return k
}

func (k *deformConv[T]) samples() int { return k.taps * panel }

func (k *deformConv[T]) panelElements() int { return k.block * k.taps * panel }

// Scratch implements [Kernel].
func (k *deformConv[T]) Scratch() int {
	return k.slots * (k.samples()*elementSize[sample[T]]() + k.panelElements()*elementSize[T]())
}

// deformConvTask is one run. A unit of work is a panel of output positions of
// one image and group.
type deformConvTask[T float] struct {
	*deformConv[T]
	x, w, offset, b, mask, y []T
	table                    []sample[T]
	columns                  []T
	panels, units            int
	next                     atomic.Int64
	pool                     Pool
}

// Run implements [Kernel].
func (k *deformConv[T]) Run(p Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	t.deformConv, t.pool = k, p
	t.x, t.w, t.offset, t.y = view[T](in[0]), view[T](in[1]), view[T](in[2]), view[T](out[0])
	t.b, t.mask = view[T](memory(in, 3)), view[T](memory(in, 4))
	tables := k.slots * k.samples() * elementSize[sample[T]]()
	t.table, t.columns = view[sample[T]](scratch[:tables]), view[T](scratch[tables:])
	if len(t.y) > 0 {
		t.panels = (product3(k.out) + panel - 1) / panel
		t.units = t.panels * k.batch * k.group
		t.next.Store(0)
		p.Run(t, min(cutSlots(p, t.units, panel*k.channels*k.window*(k.maps/2+8)), k.slots))
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
func (t *deformConvTask[T]) compute(unit int, table []sample[T], columns []T) {
	pos := unit % t.panels * panel
	unit /= t.panels
	g, n := unit%t.group, unit/t.group
	plane, positions := product3(t.in), product3(t.out)
	cols := min(panel, positions-pos)
	y := t.y[unit*t.maps*positions+pos:]
	for m := range t.maps {
		v := T(0)
		if t.b != nil {
			v = t.b[g*t.maps+m]
		}
		row := y[m*positions:][:cols]
		for i := range row {
			row[i] = v
		}
	}
	perOffset := t.channels * t.group / t.offsetGroups
	w := matrix[T]{t.w[g*t.maps*t.channels*t.window:], t.channels * t.window, 1}
	inTable, tapsFrom := -1, -1
	for c := 0; c < t.channels; c += t.block {
		channels := min(t.block, t.channels-c)
		for from := 0; from < t.window; from += t.taps {
			taps := min(t.taps, t.window-from)
			for i := range channels {
				channel := g*t.channels + c + i
				if og := channel / perOffset; og != inTable || from != tapsFrom {
					t.locate(table, n, og, from, taps, pos, cols)
					inTable, tapsFrom = og, from
				}
				x := t.x[(n*t.group*t.channels+channel)*plane:][:plane]
				for k := range taps {
					dst := columns[(i*taps+k)*panel:][:cols]
					for lane, s := range table[k*panel:][:cols] {
						dst[lane] = s.of(x)
					}
				}
			}
			multiplyBlock(y, positions, t.maps, cols, w.at(0, c*t.window+from), columns, panel, channels*taps, 1)
		}
	}
}

// locate finds out what the kernel elements [from, from+taps) sample at the
// output positions [pos, pos+cols) for a group of offsets.
func (t *deformConvTask[T]) locate(table []sample[T], n, group, from, taps, pos, cols int) {
	positions := product3(t.out)
	height, width := t.in[1], t.in[2]
	for k := range taps {
		point := (n*t.offsetGroups+group)*t.window + from + k
		dy := t.offset[2*point*positions+pos:][:cols]
		dx := t.offset[(2*point+1)*positions+pos:][:cols]
		ky, kx := (from+k)/t.kernel[2], (from+k)%t.kernel[2]
		for lane := range cols {
			oy, ox := (pos+lane)/t.out[2], (pos+lane)%t.out[2]
			v := T(oy*t.stride[1]-t.pad[1]+ky*t.dilation[1]) + dy[lane]
			h := T(ox*t.stride[2]-t.pad[2]+kx*t.dilation[2]) + dx[lane]
			mask := T(1)
			if t.mask != nil {
				mask = t.mask[point*positions+pos+lane]
			}
			table[k*panel+lane] = bilinear(v, h, height, width, mask)
		}
	}
}

// bilinear returns how the element at (v, h) of a plane is made of its
// neighbours; what is outside of the plane is zero. The weights are multiplied
// by factor.
func bilinear[T float](v, h T, height, width int, factor T) sample[T] {
	s := sample[T]{at: [4]int{-1, -1, -1, -1}}
	if !(v > -1 && v < T(height) && h > -1 && h < T(width)) {
		return s
	}
	y, x := int(math.Floor(float64(v))), int(math.Floor(float64(h)))
	fy, fx := v-T(y), h-T(x)
	for i := range s.at {
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
		s.at[i] = row*width + col
		s.weight[i] = wy * wx * factor
	}
	return s
}
