package packed

import (
	"fmt"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/packing"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// measure finds how long the sequences of a call are, and refuses those that fit
// nowhere.
func (p *Packer) measure(c *Call, n int) error {
	if len(c.Parts) != n*len(p.tensors) {
		return fmt.Errorf("%w: %d parts of %d sequences for %d tensors", rt.ErrGenerated, len(c.Parts), n, len(p.tensors))
	}
	for i := range n {
		s, err := p.sequence(c.of(p, i))
		if err == nil {
			err = p.plain.Check(s.n)
		}
		if err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
		c.sequences = append(c.sequences, s)
	}
	return nil
}

// sequence returns what of one is computed.
func (p *Packer) sequence(parts []view.Samples) (sequence, error) {
	n, of := -1, 0
	for i := range p.tensors {
		t := &p.tensors[i]
		switch {
		case t.frozen || t.kind != Position && t.kind != Mask && t.kind != Entry:
		case t.kind == Entry:
			if parts[i].N != 1 {
				return sequence{}, fmt.Errorf("%w: the result %q has no memory", rt.ErrSequence, t.name)
			}
		case n < 0:
			n, of = parts[i].N, i
		case parts[i].N != n:
			return sequence{}, fmt.Errorf("%w: %d of %q, but %d of %q", rt.ErrSequence, n, p.tensors[of].name, parts[i].N, t.name)
		}
	}
	s := sequence{n: max(n, 0)}
	if p.mask < 0 {
		return s, nil
	}
	mask, size := parts[p.mask].Data, p.tensors[p.mask].part
	for s.n > 0 && zero(mask[(s.n-1)*size:s.n*size]) {
		s.n--
	}
	for s.n > 0 && zero(mask[s.first*size:(s.first+1)*size]) {
		s.first, s.n = s.first+1, s.n-1
	}
	if s.n == 0 && n > 0 {
		return s, fmt.Errorf("%w: %q says that all its %d elements are padding", rt.ErrSequence, p.tensors[p.mask].name, n)
	}
	return s, nil
}

func zero(mem []byte) bool {
	for _, b := range mem {
		if b != 0 {
			return false
		}
	}
	return true
}

// copyIn copies a sequence to its place.
func (p *Packer) copyIn(o *pack, parts []view.Samples, s sequence, at packing.Place) {
	for i := range p.tensors {
		t := &p.tensors[i]
		if t.input && !t.frozen && (t.kind == Position || t.kind == Mask) {
			clear(o.mem[i][(at.Start-at.Gap)*t.part:][:at.Gap*t.part])
			copy(o.mem[i][at.Start*t.part:], parts[i].Data[s.first*t.part:][:s.n*t.part])
		}
	}
}

// copyOut is copyIn for outputs, the other way. index is that of the sequence in its
// run.
func (p *Packer) copyOut(o *pack, parts []view.Samples, s sequence, at packing.Place, index int) {
	for i := range p.tensors {
		switch t := &p.tensors[i]; {
		case t.input:
		case t.kind == Entry:
			copy(parts[i].Data, o.mem[i][index*t.part:][:t.part])
		default:
			copy(parts[i].Data[s.first*t.part:][:s.n*t.part], o.mem[i][at.Start*t.part:])
		}
	}
}

// complete fills what no sequence fills: what lies behind the last of each row, and
// the inputs that keep sequences apart.
func (p *Packer) complete(o *pack) {
	for i := range p.tensors {
		t := &p.tensors[i]
		if !t.input || t.frozen {
			continue
		}
		mem := o.mem[i]
		switch t.kind {
		case Position, Mask:
			o.layout.Rest(func(start, n int) { clear(mem[start*t.part:][:n*t.part]) })
		case Segments, Positions, First:
			clear(mem)
			for k, at := range o.places {
				switch t.kind {
				case Segments:
					t.write(mem, at.Start, at.N, k+1, 0)
				case Positions:
					t.write(mem, at.Start, at.N, 0, 1)
				case First:
					t.write(mem, k, 1, at.Start, 0)
				}
			}
		case Blocks, Bias:
			p.blocks(o, t, mem)
		}
	}
}

// blocks fills a square for each row: a line for each position, which says of which
// it may know. What belongs to no sequence has the number 0 and may know of its
// like, so that no line is empty: the softmax of nothing is no number.
func (p *Packer) blocks(o *pack, t *tensor, mem []byte) {
	length := p.spec.Length
	line := length * t.part
	numbers := o.numbers
	clear(numbers)
	for k, at := range o.places {
		for i := range at.N {
			numbers[at.Start+i] = int32(k + 1)
		}
	}
	for row := range p.spec.Rows {
		of := numbers[row*length:][:length]
		for i := range length {
			at := mem[(row*length+i)*line:][:line]
			if i > 0 && of[i] == of[i-1] {
				copy(at, mem[(row*length+i-1)*line:])
				continue
			}
			copy(at, t.other)
			for j := 0; j < length; j++ {
				from := j
				for j < length && of[j] == of[i] {
					j++
				}
				copy(at[from*t.part:j*t.part], t.same)
			}
		}
	}
}
