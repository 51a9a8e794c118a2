package conv

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// mostPhases is the most convolutions that a transposed one is made of.
const mostPhases = 16

// phasedTranspose computes a transposed convolution of float32 as convolutions of the same operand with stride 1. Along
// an axis, the elements of the result that have the same remainder by the stride, its phase, meet the same
// elements of the kernel, in the opposite order: those whose product with the dilation has the right remainder. A
// phase is computed whole and then written between the others.
type phasedTranspose struct {
	ConvShape // of the transposed convolution
	phases    []phase
	taps      int // elements of the longest phase's weights
	values    int // elements of the longest phase's result, where there are several
	inner     int // scratch bytes that a phase's kernel wants
	packed    bool
	task      phaseTask
}

// phase is one of the convolutions.
type phase struct {
	ConvShape
	start   [3]int        // of the result, its first element
	last    [3]int        // of the kernel, the element that comes first
	back    [3]int        // of the kernel, from an element to the next one
	kernel  tensor.Kernel // nil if the phase meets no element of the kernel
	weights int           // where its packed weights begin, in bytes
}

// phasesAlong returns the phases along an axis: there are as many as the stride, or as there are elements.
func (s *ConvShape) phasesAlong(axis int) []phase {
	stride, dilation := s.Stride[axis], s.Dilation[axis]
	apart := stride / gcd(stride, dilation) // elements of the kernel from one that a phase meets to the next
	var list []phase
	for start := range min(stride, s.Out[axis]) {
		var p phase
		at := start + s.Pad[axis]
		first := 0
		for first < min(apart, s.Kernel[axis]) && mod(at-first*dilation, stride) != 0 {
			first++
		}
		n := 0
		if first < min(apart, s.Kernel[axis]) {
			n = (s.Kernel[axis]-1-first)/apart + 1
		}
		p.start[axis], p.Out[axis], p.Kernel[axis] = start, (s.Out[axis]-start+stride-1)/stride, n
		p.back[axis], p.Dilation[axis] = apart, apart*dilation/stride
		p.last[axis] = first + (n-1)*apart
		if n > 0 {
			// Element q of the phase and element k of the kernel meet element q + (at-k·dilation)/stride of the operand.
			p.Pad[axis] = -(at - p.last[axis]*dilation) / stride
		}
		list = append(list, p)
	}
	return list
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// mod is the remainder of a by b, from 0 to b-1.
func mod(a, b int) int { return (a%b + b) % b }

// newPhased returns a kernel that computes s by phases, nil if there are no fast convolutions for T or too many phases.
func newPhased[T tensor.Float](s ConvShape) tensor.Kernel {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() || s.Batch == 0 || s.Channels == 0 || s.Maps == 0 {
		return nil
	}
	count := 1
	for i := range 3 {
		if s.In[i] == 0 || s.Out[i] == 0 || s.Kernel[i] == 0 || s.Stride[i] > mostPhases {
			return nil
		}
		if count *= min(s.Stride[i], s.Out[i]); count > mostPhases {
			return nil
		}
	}
	k := &phasedTranspose{ConvShape: s}
	along := [3][]phase{s.phasesAlong(0), s.phasesAlong(1), s.phasesAlong(2)}
	for _, z := range along[0] {
		for _, y := range along[1] {
			for _, x := range along[2] {
				p := phase{ConvShape: s}
				p.Stride = [3]int{1, 1, 1}
				for i, from := range []phase{z, y, x} {
					p.start[i], p.last[i], p.back[i] = from.start[i], from.last[i], from.back[i]
					p.Out[i], p.Kernel[i], p.Dilation[i], p.Pad[i] = from.Out[i], from.Kernel[i], from.Dilation[i], from.Pad[i]
				}
				if Product3(p.Kernel) > 0 {
					if p.kernel = newConv[float32](p.ConvShape); p.kernel == nil {
						return nil
					}
					k.inner = max(k.inner, tensor.RoundUp(p.kernel.Scratch(), 64))
					k.taps = max(k.taps, p.elements())
				}
				if count > 1 {
					k.values = max(k.values, s.Batch*s.Group*s.Maps*Product3(p.Out))
				}
				k.phases = append(k.phases, p)
			}
		}
	}
	bytes := 0
	for i := range k.phases {
		k.phases[i].weights = bytes
		bytes += tensor.RoundUp(k.phases[i].packedBytes(), 64)
	}
	return k
}

// elements is how many weights the phase has.
func (p *phase) elements() int { return p.Group * p.Channels * p.Maps * Product3(p.Kernel) }

// packedBytes is what the phase's weights take up packed.
func (p *phase) packedBytes() int {
	if packer, ok := p.kernel.(tensor.Packer); ok && packer.Packed(1) > 0 {
		return packer.Packed(1)
	}
	return 4 * p.elements()
}

// Scratch implements [Kernel].
func (k *phasedTranspose) Scratch() int {
	n := k.inner + tensor.RoundUp(4*k.values, 64)
	if !k.packed {
		n += tensor.RoundUp(4*k.taps, 64)
	}
	return n
}

// Packed implements [Packer]: the weights of each phase come as its convolution wants them.
func (k *phasedTranspose) Packed(i int) int {
	if i != 1 {
		return 0
	}
	p := &k.phases[len(k.phases)-1]
	return p.weights + tensor.RoundUp(p.packedBytes(), 64)
}

// Packing implements [Packer].
func (k *phasedTranspose) Packing(int) tensor.Packing {
	all := tensor.PackingOf("phases", k.Group, k.Channels, k.Maps, k.Kernel[0], k.Kernel[1], k.Kernel[2])
	for i := range k.phases {
		p := &k.phases[i]
		all += tensor.Packing(fmt.Sprint(" of ", p.last, p.back, p.Kernel))
		if packer, ok := p.kernel.(tensor.Packer); ok && packer.Packed(1) > 0 {
			all += " " + packer.Packing(1)
		}
	}
	return all
}

// Pack implements [Packer].
func (k *phasedTranspose) Pack(_ int, dst, src []byte) {
	turned := make([]byte, 4*k.taps)
	for i := range k.phases {
		p := &k.phases[i]
		to := dst[p.weights:][:p.packedBytes()]
		if packer, ok := p.kernel.(tensor.Packer); ok && packer.Packed(1) > 0 {
			t := turned[:4*p.elements()]
			p.turn(tensor.F32s(t), tensor.F32s(src), 0, p.Group*p.Maps, k.Kernel)
			packer.Pack(1, to, t)
			continue
		}
		p.turn(tensor.F32s(to), tensor.F32s(src), 0, p.Group*p.Maps, k.Kernel)
	}
}

// UsePacked implements [Packer].
func (k *phasedTranspose) UsePacked(int) {
	k.packed, k.inner = true, 0
	for i := range k.phases {
		p := &k.phases[i]
		if packer, ok := p.kernel.(tensor.Packer); ok && packer.Packed(1) > 0 {
			packer.UsePacked(1)
		}
		if p.kernel != nil {
			k.inner = max(k.inner, tensor.RoundUp(p.kernel.Scratch(), 64))
		}
	}
}

// turn writes the weights that the output channels [from, to) of all groups have in the phase, those of each together and
// its elements in the order of the convolution. whole is the kernel of the transposed convolution.
func (p *phase) turn(dst, w []float32, from, to int, whole [3]int) {
	window, taps := Product3(whole), Product3(p.Kernel)
	for m := from; m < to; m++ {
		group, m0 := m/p.Maps, m%p.Maps
		for c := range p.Channels {
			src := w[((group*p.Channels+c)*p.Maps+m0)*window:][:window]
			d := dst[(m*p.Channels+c)*taps:][:taps]
			i := 0
			for z := range p.Kernel[0] {
				for y := range p.Kernel[1] {
					row := ((p.last[0]-z*p.back[0])*whole[1]+p.last[1]-y*p.back[1])*whole[2] + p.last[2]
					for x := range p.Kernel[2] {
						d[i] = src[row-x*p.back[2]]
						i++
					}
				}
			}
		}
	}
}

// phaseTask turns the weights of a phase or, if it has values, puts them in their places.
type phaseTask struct {
	*phase
	of      *phasedTranspose
	w, to   []float32 // weights, and turned ones
	y       []float32
	values  []float32 // of the phase
	b       []float32 // the values of a phase that is empty
	placing bool
	parts   int
	pool    tensor.Pool
	in      [3][]byte // of the phase's kernel
	out     [1][]byte
}

// Run implements [Kernel].
func (k *phasedTranspose) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = phaseTask{of: k, w: tensor.F32s(in[1]), y: tensor.F32s(out[0]), b: tensor.F32s(tensor.Memory(in, 2)), pool: p}
	defer func() { *t = phaseTask{} }()
	inner, scratch := scratch[:k.inner], scratch[k.inner:]
	values := scratch[:tensor.RoundUp(4*k.values, 64)]
	turned := scratch[len(values):]
	for i := range k.phases {
		t.phase = &k.phases[i]
		n := t.Batch * t.Group * t.Maps * Product3(t.Out)
		to := out[0]
		if len(k.phases) > 1 {
			to = values[:4*n]
		}
		if t.kernel != nil {
			t.in, t.out = [3][]byte{in[0], nil, tensor.Memory(in, 2)}, [1][]byte{to}
			if k.packed {
				t.in[1] = in[1][t.weights:][:t.packedBytes()]
			} else {
				t.in[1] = turned[:4*t.elements()]
				t.to, t.placing = tensor.F32s(t.in[1]), false
				t.parts = tensor.Cut(p, t.Group*t.Maps, 4*t.Channels*Product3(t.Kernel))
				p.Run(t, t.parts)
			}
			if err := t.kernel.Run(p, t.in[:], t.out[:], inner[:t.kernel.Scratch()]); err != nil {
				return err
			}
		}
		if len(k.phases) > 1 || t.kernel == nil {
			t.values, t.placing = tensor.F32s(to), true
			t.parts = tensor.Cut(p, t.Batch*t.Group*t.Maps, 4*Product3(t.Out))
			p.Run(t, t.parts)
		}
	}
	return nil
}

// Do implements [Task].
func (t *phaseTask) Do(part int) {
	if !t.placing {
		from, to := tensor.Span(t.Group*t.Maps, t.parts, part, 1)
		t.turn(t.to, t.w, from, to, t.of.Kernel)
		return
	}
	from, to := tensor.Span(t.Batch*t.Group*t.Maps, t.parts, part, 1)
	for plane := from; plane < to; plane++ {
		if t.pool.Ended() {
			return
		}
		t.place(plane)
	}
}

// place writes a plane of the phase's values between those of the others.
func (t *phaseTask) place(plane int) {
	s := t.of
	size := Product3(t.Out)
	bias := float32(0)
	if t.b != nil {
		bias = t.b[plane%(t.Group*t.Maps)]
	}
	y := t.y[plane*Product3(s.Out):][:Product3(s.Out)]
	for z := range t.Out[0] {
		for row := range t.Out[1] {
			at := ((t.start[0]+z*s.Stride[0])*s.Out[1]+t.start[1]+row*s.Stride[1])*s.Out[2] + t.start[2]
			if t.kernel == nil {
				for range t.Out[2] {
					y[at] = bias
					at += s.Stride[2]
				}
				continue
			}
			for _, v := range t.values[plane*size+(z*t.Out[1]+row)*t.Out[2]:][:t.Out[2]] {
				y[at] = v
				at += s.Stride[2]
			}
		}
	}
}
