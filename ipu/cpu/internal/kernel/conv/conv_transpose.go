package conv

import (
	"fmt"
	"runtime"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindConvTranspose(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.ConvTranspose)
	x, w, y := in[0].Shape, in[1].Shape, out[0].Shape
	s := ConvShape{
		Batch: int(x[0]), Group: int(o.Group), Channels: int(x[1] / o.Group), Maps: int(w[1]),
		In: [3]int{1, 1, 1}, Out: [3]int{1, 1, 1}, Kernel: [3]int{1, 1, 1},
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1},
	}
	skip := 5 - len(x)
	for i := range len(x) - 2 {
		s.In[skip+i], s.Out[skip+i], s.Kernel[skip+i] = int(x[2+i]), int(y[2+i]), int(w[2+i])
		s.Stride[skip+i], s.Dilation[skip+i], s.Pad[skip+i] = int(o.Strides[i]), int(o.Dilations[i]), int(o.PadsBegin[i])
	}
	switch in[0].DType {
	case graph.F32:
		if k := newPhased[float32](s); k != nil {
			return k, nil
		}
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
type convTranspose[T tensor.Float] struct {
	ConvShape
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

func newConvTranspose[T tensor.Float](s ConvShape) *convTranspose[T] {
	k := &convTranspose[T]{ConvShape: s, window: Product3(s.Kernel)}
	k.block = max(1, min(gemm.Block[T](), s.Channels))
	k.tall = min(mostProducts, k.window)
	if whole := mostProducts / max(1, k.window) * k.window; whole > 0 {
		k.tall = min(whole, s.Maps*k.window)
	}
	k.slots = min(tensor.MaxParts, 4*runtime.GOMAXPROCS(0))
	if s.In[0] == 1 && s.Out[0] == 1 && s.Kernel[0] == 1 {
		k.axis = 1
	}
	k.first, k.last = make([]int, 0, s.Kernel[2]), make([]int, 0, s.Kernel[2])
	for kx := range s.Kernel[2] {
		lo, hi := tensor.WindowRange(s.Out[2], s.In[2], s.Stride[2], s.Pad[2]-kx*s.Dilation[2])
		k.first, k.last = append(k.first, lo), append(k.last, hi)
	}
	return k
}

func (k *convTranspose[T]) slotElements() int { return (k.block + k.tall) * gemm.Panel }

// Scratch implements [Kernel].
func (k *convTranspose[T]) Scratch() int { return k.slots * k.slotElements() * tensor.ElementSize[T]() }

// Packed implements [Packer]: weights come as rows of Wᵀ.
func (k *convTranspose[T]) Packed(i int) int {
	if i != 1 {
		return 0
	}
	return k.Group * k.Channels * k.Maps * k.window * tensor.ElementSize[T]()
}

// Pack implements [Packer].
func (k *convTranspose[T]) Pack(_ int, dst, src []byte) {
	d, s := tensor.View[T](dst), tensor.View[T](src)
	rows := k.Maps * k.window
	for g := range k.Group {
		base := g * k.Channels * rows
		for c := range k.Channels {
			for r, v := range s[base+c*rows:][:rows] {
				d[base+r*k.Channels+c] = v
			}
		}
	}
}

// Packing implements [Packer].
func (k *convTranspose[T]) Packing(int) tensor.Packing {
	return tensor.PackingOf("transposed", tensor.ElementSize[T](), k.Group, k.Channels, k.Maps*k.window)
}

// UsePacked implements [Packer].
func (k *convTranspose[T]) UsePacked(int) { k.packed = true }

// convTransposeTask is one run. A unit of work is a band of the output of some
// output channels of one image and group; parts take the next unit until none
// is left. However the work is cut, every element is the same sum.
type convTransposeTask[T tensor.Float] struct {
	*convTranspose[T]
	x, w, b, y         []T
	scratch            []T
	height, mapBlocks  int // output channels of a unit, units per group
	band, bands, units int // rows of a band along the axis
	next               tensor.Tickets
}

// Run implements [Kernel].
func (k *convTranspose[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	t.convTranspose = k
	t.x, t.w, t.y = tensor.View[T](in[0]), tensor.View[T](in[1]), tensor.View[T](out[0])
	t.b = tensor.View[T](tensor.Memory(in, 2))
	t.scratch = tensor.View[T](scratch)
	if len(t.y) > 0 {
		work := float64(t.Batch*t.Group) * float64(Product3(k.In)*k.window*k.Maps) * (float64(k.Channels)/8 + 2)
		workers := tensor.WorkersFor(p, work)
		t.divide(workers)
		t.next.Reset(p, t.units)
		p.Run(t, min(t.units, workers, k.slots))
	}
	t.x, t.w, t.b, t.y, t.scratch = nil, nil, nil, nil, nil
	return nil
}

// divide chooses the units: whole groups where there are enough of them, else
// some of their output channels, else bands of those too.
func (t *convTransposeTask[T]) divide(workers int) {
	groups := t.Batch * t.Group
	t.height, t.bands = t.Maps, 1
	if want := 2 * workers; workers > 1 && groups < want {
		t.height = max(1, t.Maps*groups/want)
		if n := groups * ((t.Maps + t.height - 1) / t.height); n < want {
			// A band repeats the products of its neighbours' borders.
			span := (t.Kernel[t.axis]-1)*t.Dilation[t.axis] + 1
			t.bands = max(1, min((want+n-1)/n, t.Out[t.axis]/(4*span)))
		}
	}
	t.mapBlocks = (t.Maps + t.height - 1) / t.height
	t.band = (t.Out[t.axis] + t.bands - 1) / t.bands
	t.units = groups * t.mapBlocks * t.bands
}

// Do implements [Task].
func (t *convTransposeTask[T]) Do(part int) {
	buf := t.scratch[part*t.slotElements():][:t.slotElements()]
	for {
		unit, ok := t.next.Draw(part)
		if !ok {
			return
		}
		t.compute(unit, buf)
	}
}

// compute computes one unit.
func (t *convTransposeTask[T]) compute(unit int, buf []T) {
	from := min(unit%t.bands*t.band, t.Out[t.axis])
	to := min(from+t.band, t.Out[t.axis])
	unit /= t.bands
	firstMap := unit % t.mapBlocks * t.height
	lastMap := min(firstMap+t.height, t.Maps)
	group := unit / t.mapBlocks // of all images
	g := group % t.Group

	plane, positions := Product3(t.Out), Product3(t.In)
	y := t.y[group*t.Maps*plane:][:t.Maps*plane]
	inner := plane / t.Out[t.axis]
	for m := firstMap; m < lastMap; m++ {
		band := y[m*plane+from*inner : m*plane+to*inner]
		if t.b == nil {
			clear(band)
			continue
		}
		v := t.b[g*t.Maps+m]
		for i := range band {
			band[i] = v
		}
	}
	if positions == 0 || t.window == 0 {
		return
	}
	// The positions of the input that reach into the band.
	span := (t.Kernel[t.axis] - 1) * t.Dilation[t.axis]
	lo, hi := tensor.WindowRange(to-from+span, t.In[t.axis], t.Stride[t.axis], from+t.Pad[t.axis]-span)
	row := positions / t.In[t.axis]
	rows := t.Maps * t.window
	w := gemm.Matrix[T]{Data: t.w[g*t.Channels*rows:], Row: 1, Col: rows}
	if t.packed {
		w.Row, w.Col = t.Channels, 1
	}
	x := gemm.Matrix[T]{Data: t.x[group*t.Channels*positions:], Row: positions, Col: 1}
	gathered, products := buf[:t.block*gemm.Panel], buf[t.block*gemm.Panel:]
	for pos := lo * row / gemm.Panel * gemm.Panel; pos < hi*row; pos += gemm.Panel {
		cols := min(gemm.Panel, positions-pos)
		for r, n := firstMap*t.window, 0; r < lastMap*t.window; r += n {
			// However the maps are cut, those of one are added in the same
			// order.
			if t.next.Pool.Ended() {
				return
			}
			n = min(t.tall, lastMap*t.window-r)
			if t.tall < t.window {
				n = min(n, t.window-r%t.window)
			}
			clear(products[:n*gemm.Panel])
			for c := 0; c < t.Channels; c += t.block {
				depth := min(t.block, t.Channels-c)
				if t.block < t.Channels || r == firstMap*t.window {
					gemm.PackBlock(gathered, x.At(c, pos), depth, cols)
				}
				gemm.MultiplyBlock(products, gemm.Panel, n, cols, w.At(r, c), gathered, gemm.Panel, depth, 1)
			}
			t.scatter(y, products, r, n, pos, cols, from, to)
		}
	}
}

// scatter adds rows [r, r+n) of the product at the input positions
// [pos, pos+cols) to the rows [from, to) of the output along the axis.
func (t *convTransposeTask[T]) scatter(y, products []T, r, n, pos, cols, from, to int) {
	var lo, hi [2]int
	hi[0], hi[1] = t.Out[0], t.Out[1]
	lo[t.axis], hi[t.axis] = from, to
	plane := Product3(t.Out)
	// The positions fall into stretches of one input row each.
	for lane := 0; lane < cols; {
		at := pos + lane
		ix := at % t.In[2]
		iy := at / t.In[2] % t.In[1]
		iz := at / (t.In[2] * t.In[1])
		length := min(cols-lane, t.In[2]-ix)
		for i := range n {
			m, k := (r+i)/t.window, (r+i)%t.window
			kx := k % t.Kernel[2]
			oy := iy*t.Stride[1] - t.Pad[1] + k/t.Kernel[2]%t.Kernel[1]*t.Dilation[1]
			oz := iz*t.Stride[0] - t.Pad[0] + k/(t.Kernel[2]*t.Kernel[1])*t.Dilation[0]
			if oy < lo[1] || oy >= hi[1] || oz < lo[0] || oz >= hi[0] {
				continue
			}
			first, last := max(t.first[kx]-ix, 0), min(t.last[kx]-ix, length)
			if first >= last {
				continue
			}
			src := products[i*gemm.Panel+lane+first : i*gemm.Panel+lane+last]
			dst := y[m*plane+(oz*t.Out[1]+oy)*t.Out[2]:][:t.Out[2]]
			dst = dst[(ix+first)*t.Stride[2]-t.Pad[2]+kx*t.Dilation[2]:]
			if t.Stride[2] == 1 {
				dst = dst[:len(src)]
				for j, v := range src {
					dst[j] += v
				}
				continue
			}
			for j, at := 0, 0; j < len(src); j, at = j+1, at+t.Stride[2] {
				dst[at] += src[j]
			}
		}
		lane += length
	}
}
