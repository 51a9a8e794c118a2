package kernel

import (
	"fmt"
	"runtime"

	"github.com/popefgen/popefgen/ipu/graph"
)

func bindConvTranspose(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	o := op.(*graph.ConvTranspose)
	x, w, y := in[0].Shape, in[1].Shape, out[0].Shape
	s := convShape{
		batch: int(x[0]), group: int(o.Group), channels: int(x[1] / o.Group), maps: int(w[1]),
		in: [3]int{1, 1, 1}, out: [3]int{1, 1, 1}, kernel: [3]int{1, 1, 1},
		stride: [3]int{1, 1, 1}, dilation: [3]int{1, 1, 1},
	}
	skip := 5 - len(x)
	for i := range len(x) - 2 {
		s.in[skip+i], s.out[skip+i], s.kernel[skip+i] = int(x[2+i]), int(y[2+i]), int(w[2+i])
		s.stride[skip+i], s.dilation[skip+i], s.pad[skip+i] = int(o.Strides[i]), int(o.Dilations[i]), int(o.PadsBegin[i])
	}
	switch in[0].DType {
	case graph.F32:
		return newConvTranspose[float32](s), nil
	case graph.F64:
		return newConvTranspose[float64](s), nil
	}
	return nil, fmt.Errorf("no kernel for %v with weights %v", in[0], in[1])
}

// convTranspose computes a transposed convolution as Wᵀ·X, whose row r holds
// what one element of one output channel's kernel gives for every position of
// the input, and adds each row to the output where it belongs. The product is
// never whole: it is computed for a panel of positions and a number of rows
// that stay in the cache.
type convTranspose[T float] struct {
	convShape
	window int // elements of the kernel of one channel
	block  int // channels gathered at a time
	tall   int // rows of the product computed at a time: of whole maps or of one
	slots  int // parts that have scratch memory
	axis   int // the outermost spatial axis that may be cut into bands
	packed bool
	// first and last are, by kernel element of the last axis, the positions
	// of the input whose products fall into the output.
	first, last []int
	task        convTransposeTask[T]
}

// mostProducts is the most rows of products computed at a time.
const mostProducts = 256

func newConvTranspose[T float](s convShape) *convTranspose[T] {
	k := &convTranspose[T]{convShape: s, window: product3(s.kernel)}
	k.block = max(1, min(block[T](), s.channels))
	k.tall = min(mostProducts, k.window)
	if whole := mostProducts / max(1, k.window) * k.window; whole > 0 {
		k.tall = min(whole, s.maps*k.window)
	}
	k.slots = min(maxParts, 4*runtime.GOMAXPROCS(0))
	if s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 {
		k.axis = 1
	}
	k.first, k.last = make([]int, 0, s.kernel[2]), make([]int, 0, s.kernel[2])
	for kx := range s.kernel[2] {
		lo, hi := windowRange(s.out[2], s.in[2], s.stride[2], s.pad[2]-kx*s.dilation[2])
		k.first, k.last = append(k.first, lo), append(k.last, hi)
	}
	return k
}

func (k *convTranspose[T]) slotElements() int { return (k.block + k.tall) * panel }

// Scratch implements [Kernel].
func (k *convTranspose[T]) Scratch() int { return k.slots * k.slotElements() * elementSize[T]() }

// Packed implements [Packer]: weights come as rows of Wᵀ.
func (k *convTranspose[T]) Packed(i int) int {
	if i != 1 {
		return 0
	}
	return k.group * k.channels * k.maps * k.window * elementSize[T]()
}

// Pack implements [Packer].
func (k *convTranspose[T]) Pack(_ int, dst, src []byte) {
	d, s := view[T](dst), view[T](src)
	rows := k.maps * k.window
	for g := range k.group {
		base := g * k.channels * rows
		for c := range k.channels {
			for r, v := range s[base+c*rows:][:rows] {
				d[base+r*k.channels+c] = v
			}
		}
	}
}

// UsePacked implements [Packer].
func (k *convTranspose[T]) UsePacked(int) { k.packed = true }

// convTransposeTask is one run. A unit of work is a band of the output of some
// output channels of one image and group; parts take the next unit until none
// is left. However the work is cut, every element is the same sum.
type convTransposeTask[T float] struct {
	*convTranspose[T]
	x, w, b, y         []T
	scratch            []T
	height, mapBlocks  int // output channels of a unit, units per group
	band, bands, units int // rows of a band along the axis
	next               tickets
}

// Run implements [Kernel].
func (k *convTranspose[T]) Run(p Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	t.convTranspose = k
	t.x, t.w, t.y = view[T](in[0]), view[T](in[1]), view[T](out[0])
	t.b = view[T](memory(in, 2))
	t.scratch = view[T](scratch)
	if len(t.y) > 0 {
		work := float64(t.batch*t.group) * float64(product3(k.in)*k.window*k.maps) * (float64(k.channels)/8 + 2)
		workers := workersFor(p, work)
		t.divide(workers)
		t.next.reset(p, t.units)
		p.Run(t, min(t.units, workers, k.slots))
	}
	t.x, t.w, t.b, t.y, t.scratch = nil, nil, nil, nil, nil
	return nil
}

// divide chooses the units: whole groups where there are enough of them, else
// some of their output channels, else bands of those too.
func (t *convTransposeTask[T]) divide(workers int) {
	groups := t.batch * t.group
	t.height, t.bands = t.maps, 1
	if want := 2 * workers; workers > 1 && groups < want {
		t.height = max(1, t.maps*groups/want)
		if n := groups * ((t.maps + t.height - 1) / t.height); n < want {
			// A band repeats the products of its neighbours' borders.
			span := (t.kernel[t.axis]-1)*t.dilation[t.axis] + 1
			t.bands = max(1, min((want+n-1)/n, t.out[t.axis]/(4*span)))
		}
	}
	t.mapBlocks = (t.maps + t.height - 1) / t.height
	t.band = (t.out[t.axis] + t.bands - 1) / t.bands
	t.units = groups * t.mapBlocks * t.bands
}

// Do implements [Task].
func (t *convTransposeTask[T]) Do(part int) {
	buf := t.scratch[part*t.slotElements():][:t.slotElements()]
	for {
		unit, ok := t.next.draw(part)
		if !ok {
			return
		}
		t.compute(unit, buf)
	}
}

// compute computes one unit.
func (t *convTransposeTask[T]) compute(unit int, buf []T) {
	from := min(unit%t.bands*t.band, t.out[t.axis])
	to := min(from+t.band, t.out[t.axis])
	unit /= t.bands
	firstMap := unit % t.mapBlocks * t.height
	lastMap := min(firstMap+t.height, t.maps)
	group := unit / t.mapBlocks // of all images
	g := group % t.group

	plane, positions := product3(t.out), product3(t.in)
	y := t.y[group*t.maps*plane:][:t.maps*plane]
	inner := plane / t.out[t.axis]
	for m := firstMap; m < lastMap; m++ {
		band := y[m*plane+from*inner : m*plane+to*inner]
		if t.b == nil {
			clear(band)
			continue
		}
		v := t.b[g*t.maps+m]
		for i := range band {
			band[i] = v
		}
	}
	if positions == 0 || t.window == 0 {
		return
	}
	// The positions of the input that reach into the band.
	span := (t.kernel[t.axis] - 1) * t.dilation[t.axis]
	lo, hi := windowRange(to-from+span, t.in[t.axis], t.stride[t.axis], from+t.pad[t.axis]-span)
	row := positions / t.in[t.axis]
	rows := t.maps * t.window
	w := matrix[T]{t.w[g*t.channels*rows:], 1, rows}
	if t.packed {
		w.row, w.col = t.channels, 1
	}
	x := matrix[T]{t.x[group*t.channels*positions:], positions, 1}
	gathered, products := buf[:t.block*panel], buf[t.block*panel:]
	for pos := lo * row / panel * panel; pos < hi*row; pos += panel {
		cols := min(panel, positions-pos)
		for r, n := firstMap*t.window, 0; r < lastMap*t.window; r += n {
			// However the maps are cut, those of one are added in the same
			// order.
			if t.next.pool.Ended() {
				return
			}
			n = min(t.tall, lastMap*t.window-r)
			if t.tall < t.window {
				n = min(n, t.window-r%t.window)
			}
			clear(products[:n*panel])
			for c := 0; c < t.channels; c += t.block {
				depth := min(t.block, t.channels-c)
				if t.block < t.channels || r == firstMap*t.window {
					packBlock(gathered, x.at(c, pos), depth, cols)
				}
				multiplyBlock(products, panel, n, cols, w.at(r, c), gathered, panel, depth, 1)
			}
			t.scatter(y, products, r, n, pos, cols, from, to)
		}
	}
}

// scatter adds rows [r, r+n) of the product at the input positions
// [pos, pos+cols) to the rows [from, to) of the output along the axis.
func (t *convTransposeTask[T]) scatter(y, products []T, r, n, pos, cols, from, to int) {
	var lo, hi [2]int
	hi[0], hi[1] = t.out[0], t.out[1]
	lo[t.axis], hi[t.axis] = from, to
	plane := product3(t.out)
	// The positions fall into stretches of one input row each.
	for lane := 0; lane < cols; {
		at := pos + lane
		ix := at % t.in[2]
		iy := at / t.in[2] % t.in[1]
		iz := at / (t.in[2] * t.in[1])
		length := min(cols-lane, t.in[2]-ix)
		for i := range n {
			m, k := (r+i)/t.window, (r+i)%t.window
			kx := k % t.kernel[2]
			oy := iy*t.stride[1] - t.pad[1] + k/t.kernel[2]%t.kernel[1]*t.dilation[1]
			oz := iz*t.stride[0] - t.pad[0] + k/(t.kernel[2]*t.kernel[1])*t.dilation[0]
			if oy < lo[1] || oy >= hi[1] || oz < lo[0] || oz >= hi[0] {
				continue
			}
			first, last := max(t.first[kx]-ix, 0), min(t.last[kx]-ix, length)
			if first >= last {
				continue
			}
			src := products[i*panel+lane+first : i*panel+lane+last]
			dst := y[m*plane+(oz*t.out[1]+oy)*t.out[2]:][:t.out[2]]
			dst = dst[(ix+first)*t.stride[2]-t.pad[2]+kx*t.dilation[2]:]
			if t.stride[2] == 1 {
				dst = dst[:len(src)]
				for j, v := range src {
					dst[j] += v
				}
				continue
			}
			for j, at := 0, 0; j < len(src); j, at = j+1, at+t.stride[2] {
				dst[at] += src[j]
			}
		}
		lane += length
	}
}
