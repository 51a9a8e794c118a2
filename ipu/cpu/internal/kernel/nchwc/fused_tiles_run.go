package nchwc

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// fusedTiles is the kernel of a [FusedTiles]. Every worker has kernels of its own,
// for every shape that a tile can have.
type fusedTiles struct {
	op      *FusedTiles
	images  int
	shapes  []tileShape
	tiles   []tile              // of an image
	steps   [][]int             // by member and operand: bytes from image to image, 0 where all read the same
	step    int                 // likewise of the result
	kernels [][][]tensor.Kernel // by slot, shape and member
	runs    []tileRun           // by slot
	packed  []tilePack          // by operand
	cost    float64

	bufferAt [2]int // in a slot's scratch memory
	innerAt  int
	slot     int // bytes of a slot

	// The run in progress.
	in      [][]byte
	out     []byte
	scratch []byte
	next    tensor.Tickets
}

// tileShape is the shape of a tile.
type tileShape struct {
	types  [][]graph.TensorType // of every member's operands and result
	ops    []graph.Op
	blocks int64
	buffer []int // of the two, the one that a member's result lies in
	apart  bool  // the last result is copied to where it belongs
}

// equal reports whether kernels for the one compute the other: operators differ in
// their paddings and in what the types say.
func (s *tileShape) equal(o *tileShape) bool {
	if s.blocks != o.blocks {
		return false
	}
	for m := range s.types {
		if !slices.EqualFunc(s.types[m], o.types[m], graph.TensorType.Equal) {
			return false
		}
		if a, ok := s.ops[m].(*Conv); ok {
			b := o.ops[m].(*Conv)
			if !slices.Equal(a.PadsBegin, b.PadsBegin) || !slices.Equal(a.PadsEnd, b.PadsEnd) {
				return false
			}
		}
	}
	return true
}

// tile is where in memory of the first image the operands of members lie for one tile.
type tile struct {
	shape  int
	group  int        // of blocks
	places [][]extent // by member and operand; those of the FusedTiles alone
	result extent     // of the FusedTiles'
	pitch  int        // bytes from block to block of that, and
	row    int        // bytes of a block of a tile
}

// extent is a part of memory.
type extent struct{ at, bytes int }

// of returns that part of m, nil if there is no m.
func (e extent) of(m []byte) []byte { return e.behind(0, m) }

// behind returns the part of m that lies so many bytes behind e, nil if there is no m.
func (e extent) behind(n int, m []byte) []byte {
	if m == nil {
		return nil
	}
	return m[n+e.at : n+e.at+e.bytes : n+e.at+e.bytes]
}

// tilePack is how an operand is packed.
type tilePack struct {
	member, operand int // that read it
	groups          []extent
	src             []extent
	bytes           int
	used            bool
}

// windower is a kernel that may know XPlane and YPlane of a [Conv].
type windower interface{ Windows() bool }

// tileRun is what a worker needs to run members.
type tileRun struct{ in, out [][]byte }

// NewFusedTiles returns the kernel of o, whose members bind makes.
func NewFusedTiles(bind tensor.Binder, o *FusedTiles, in []graph.TensorType, out graph.TensorType) (tensor.Kernel, error) {
	types, err := o.Types(in)
	if err != nil {
		return nil, err
	}
	c := &fusedTiles{op: o}
	if err := c.cut(types, out); err != nil {
		return nil, err
	}
	if err := c.bindMembers(bind); err != nil {
		return nil, err
	}
	c.findPacked(in)
	return c, nil
}

// windowOf returns the member, for the rows [lo, hi) of its result alone, and the
// rows of its first operand that it then reads.
func windowOf(op graph.Op, types []graph.TensorType, lo, hi int64) (graph.Op, int64, int64) {
	conv, ok := op.(*Conv)
	if !ok {
		return op, lo, hi
	}
	height := types[0].Shape[2]
	from := lo*conv.Strides[0] - conv.PadsBegin[0]
	to := (hi-1)*conv.Strides[0] - conv.PadsBegin[0] + (types[1].Shape[2]-1)*conv.Dilations[0] + 1
	part := *conv
	part.PadsBegin, part.PadsEnd = slices.Clone(conv.PadsBegin), slices.Clone(conv.PadsEnd)
	part.PadsBegin[0], part.PadsEnd[0] = max(0, -from), max(0, to-height)
	return &part, max(0, from), min(to, height)
}

// cut makes the tiles of an image and their shapes.
func (c *fusedTiles) cut(types [][]graph.TensorType, out graph.TensorType) error {
	o := c.op
	blocks := (o.Channels + o.Lanes - 1) / o.Lanes
	rows := out.Shape[2]
	if o.Rows > 0 {
		rows = o.Rows
	}
	c.images = int(out.Shape[0])
	c.measure(types)
	if c.images == 0 {
		return nil
	}
	c.tiles = make([]tile, 0, (out.Shape[2]+rows-1)/max(1, rows)*((blocks+o.Blocks-1)/o.Blocks))
	for row := int64(0); row < out.Shape[2]; row += rows {
		for block := int64(0); block < blocks; block += o.Blocks {
			if err := c.addTile(types, block, min(blocks, block+o.Blocks), row, min(out.Shape[2], row+rows)); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure finds out how far apart the images of operands and of the result lie.
func (c *fusedTiles) measure(types [][]graph.TensorType) {
	c.steps = make([][]int, len(types))
	for m, all := range types {
		n := len(all) - 1
		c.steps[m] = make([]int, n)
		for i, t := range all {
			step := 0
			switch shareOf(c.op.Members[m].Op, i, n, t) {
			case shareImage, shareBlocks, sharePlanes:
				if t.DType != graph.Invalid && t.Shape[0] > 1 {
					step = tensor.Elements(t.Shape[1:]) * t.DType.Size()
				}
			}
			if i < n {
				c.steps[m][i] = step
			} else {
				c.step = step // that of the last member stays
			}
		}
	}
}

// addTile adds a tile: blocks [b0, b1) and rows [lo, hi) of the result.
func (c *fusedTiles) addTile(types [][]graph.TensorType, b0, b1, lo, hi int64) error {
	o := c.op
	c0, c1 := b0*o.Lanes, min(o.Channels, b1*o.Lanes)
	s := tileShape{types: make([][]graph.TensorType, len(types)), ops: make([]graph.Op, len(types)), blocks: b1 - b0, buffer: make([]int, len(types))}
	p := tile{group: int(b0 / o.Blocks), places: make([][]extent, len(types))}
	last := len(types) - 1
	for m := last; m >= 0; m-- {
		n := len(types[m]) - 1
		s.types[m], p.places[m] = make([]graph.TensorType, n+1), make([]extent, n)
		op, from, to := o.Members[m].Op, lo, hi
		if o.Rows > 0 {
			if op, from, to = windowOf(op, types[m], lo, hi); from >= to {
				return fmt.Errorf("operator %d, %s: rows %d to %d read nothing but padding", m, op.Kind(), lo, hi)
			}
		}
		whole := types[m][0]
		op = of(op, c1-c0)
		for i, t := range types[m] {
			if t.DType == graph.Invalid {
				continue
			}
			s.types[m][i] = t
			part := &s.types[m][i]
			part.Shape = slices.Clone(t.Shape)
			size := func(axis int) int { return tensor.Elements(t.Shape[axis:]) * t.DType.Size() }
			e := extent{bytes: size(0)}
			share := shareOf(o.Members[m].Op, i, n, t)
			switch share {
			case shareImage, shareBlocks, sharePlanes:
				if share != shareImage {
					part.Shape[1] = b1 - b0
					e.at = int(b0) * size(2)
					if share == sharePlanes {
						part.Shape[1], e.at = c1-c0, int(c0)*size(2)
					}
				}
				part.Shape[0] = 1
				e.bytes = int(part.Shape[1]) * size(2)
				first, end := lo, hi
				if i == 0 {
					first, end = from, to
				}
				if o.Rows > 0 && t.Shape[2] > 1 {
					part.Shape[2] = end - first
					e.at += int(first) * size(3)
					e.bytes += int(end-first-t.Shape[2]) * size(3)
				}
			case shareMaps:
				part.Shape[0] = c1 - c0
				e.at, e.bytes = int(c0)*size(1), int(c1-c0)*size(1)
			}
			if i < n {
				p.places[m][i] = e
			} else if m == last {
				p.result, p.pitch, p.row = e, size(2), tensor.Elements(part.Shape[2:])*t.DType.Size()
			}
		}
		if conv, ok := op.(*Conv); ok && o.Rows > 0 {
			if o.Members[m].In[0] >= 0 {
				conv.XPlane = int64(tensor.Elements(whole.Shape[2:4]))
			}
			if m == last && conv.Group > 1 {
				conv.YPlane = int64(tensor.Elements(types[m][n].Shape[2:4]))
			}
		}
		s.ops[m] = op
		lo, hi = from, to
	}
	if o.Rows > 0 && b1-b0 > 1 {
		conv, ok := s.ops[last].(*Conv)
		s.apart = !ok || conv.YPlane == 0
	}
	if p.shape = slices.IndexFunc(c.shapes, func(other tileShape) bool { return s.equal(&other) }); p.shape < 0 {
		p.shape = len(c.shapes)
		c.shapes = append(c.shapes, s)
	}
	c.tiles = append(c.tiles, p)
	return nil
}

// of returns op for so many channels of an image.
func of(op graph.Op, channels int64) graph.Op {
	switch op := op.(type) {
	case *Conv:
		part := *op
		if part.Group > 1 {
			part.Group, part.Channels = channels, channels
		}
		return &part
	case *FromNCHWc:
		return &FromNCHWc{Channels: channels, To: op.To}
	case *Resize:
		part := *op
		part.Resize.Sizes = slices.Clone(part.Resize.Sizes)
		part.Resize.Sizes[0] = 1
		return &part
	}
	return op
}

// bindMembers makes the kernels and lays out scratch memory.
func (c *fusedTiles) bindMembers(bind tensor.Binder) error {
	c.kernels = make([][][]tensor.Kernel, max(1, min(tensor.MaxParts, c.images*len(c.tiles), runtime.GOMAXPROCS(0))))
	c.runs = make([]tileRun, len(c.kernels))
	most, inner := 0, 0
	var buffers [2]int
	for slot := range c.kernels {
		for i := range c.shapes {
			s := &c.shapes[i]
			members := make([]tensor.Kernel, len(s.ops))
			where := 0
			for m, op := range s.ops {
				n := len(s.types[m]) - 1
				out, err := op.Infer(s.types[m][:n])
				if err != nil {
					return fmt.Errorf("operator %d, %s: %w", m, op.Kind(), err)
				}
				if !out[0].Equal(s.types[m][n]) {
					return fmt.Errorf("operator %d, %s: a part of it gives %v, want %v", m, op.Kind(), out[0], s.types[m][n])
				}
				k, err := bind(op, s.types[m][:n], s.types[m][n:])
				if err != nil {
					return err
				}
				if conv, ok := op.(*Conv); ok && (conv.XPlane > 0 || conv.YPlane > 0) {
					if w, ok := k.(windower); !ok || !w.Windows() {
						return fmt.Errorf("operator %d, %s: no kernel for some rows of an image", m, op.Kind())
					}
				}
				members[m] = k
				inner = max(inner, k.Scratch())
				most = max(most, n)
				p, ok := k.(tensor.InPlacer)
				previous := slices.Index(c.op.Members[m].In, OperandPrevious)
				if !ok || previous < 0 || !p.InPlace(previous) || !s.types[m][previous].Equal(s.types[m][n]) {
					where = 1 - where
				}
				s.buffer[m] = where
				if m < len(s.ops)-1 || s.apart {
					buffers[where] = max(buffers[where], int(s.types[m][n].Bytes()))
				}
			}
			c.kernels[slot] = append(c.kernels[slot], members)
		}
		c.runs[slot] = tileRun{in: make([][]byte, most), out: make([][]byte, 1)}
	}
	c.bufferAt[1] = tensor.RoundUp(buffers[0], 64)
	c.innerAt = c.bufferAt[1] + tensor.RoundUp(buffers[1], 64)
	c.slot = c.innerAt + tensor.RoundUp(inner, 64)
	for _, p := range c.tiles {
		s := &c.shapes[p.shape]
		for m, op := range s.ops {
			n := len(s.types[m]) - 1
			elements := float64(s.types[m][n].Elements())
			if conv, ok := op.(*Conv); ok {
				products := float64(s.types[m][1].Elements() / s.types[m][1].Shape[0])
				if conv.Group > 1 {
					products *= 3
				}
				elements *= (products + 8) / 2
			}
			c.cost += elements / float64(c.op.Lanes) * float64(c.images)
		}
	}
	return nil
}

// findPacked finds out which operands are packed: those that one member reads
// and whose kernel wants that.
func (c *fusedTiles) findPacked(in []graph.TensorType) {
	c.packed = make([]tilePack, len(in))
	for i := range in {
		k := &c.packed[i]
		readers := 0
		for m, member := range c.op.Members {
			for operand, at := range member.In {
				if at == i {
					readers++
					k.member, k.operand = m, operand
				}
			}
		}
		if readers != 1 {
			continue
		}
		for _, p := range c.tiles {
			if p.group < len(k.groups) {
				continue
			}
			packer, ok := c.kernels[0][p.shape][k.member].(tensor.Packer)
			if !ok || packer.Packed(k.operand) == 0 {
				k.groups, k.bytes = nil, 0
				break
			}
			n := packer.Packed(k.operand)
			k.groups = append(k.groups, extent{k.bytes, n})
			k.src = append(k.src, p.places[k.member][k.operand])
			k.bytes += tensor.RoundUp(n, 64)
		}
	}
}

// Packed implements [Packer].
func (c *fusedTiles) Packed(i int) int { return c.packed[i].bytes }

// Pack implements [Packer]: what each group of blocks needs follows that of
// the one before.
func (c *fusedTiles) Pack(i int, dst, src []byte) {
	k := &c.packed[i]
	done := 0
	for _, p := range c.tiles {
		if p.group == done {
			c.kernels[0][p.shape][k.member].(tensor.Packer).Pack(k.operand, k.groups[done].of(dst), k.src[done].of(src))
			done++
		}
	}
}

// Packing implements [Packer].
func (c *fusedTiles) Packing(i int) tensor.Packing {
	k := &c.packed[i]
	all := tensor.PackingOf("groups of blocks", k.bytes)
	done := 0
	for _, p := range c.tiles {
		if p.group != done {
			continue
		}
		one := c.kernels[0][p.shape][k.member].(tensor.Packer).Packing(k.operand)
		if len(k.groups) == 1 {
			return one
		}
		all += tensor.PackingOf("", k.groups[done].at, k.src[done].at, k.src[done].bytes) + " " + one
		done++
	}
	return all
}

// UsePacked implements [Packer].
func (c *fusedTiles) UsePacked(i int) {
	k := &c.packed[i]
	k.used = true
	for _, shapes := range c.kernels {
		for _, members := range shapes {
			members[k.member].(tensor.Packer).UsePacked(k.operand)
		}
	}
}

// Scratch implements [Kernel].
func (c *fusedTiles) Scratch() int { return len(c.kernels) * c.slot }

// Run implements [Kernel].
func (c *fusedTiles) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	if len(out[0]) == 0 {
		return nil
	}
	c.in, c.out, c.scratch = in, out[0], scratch
	c.next.Reset(p, c.images*len(c.tiles))
	p.Run(c, min(len(c.kernels), tensor.WorkersFor(p, c.cost)))
	c.in, c.out, c.scratch = nil, nil, nil
	return nil
}

// Do implements [Task].
func (c *fusedTiles) Do(part int) {
	for {
		tile, ok := c.next.Draw(part)
		if !ok {
			return
		}
		c.compute(part, tile/len(c.tiles), &c.tiles[tile%len(c.tiles)])
	}
}

// compute computes a tile of an image.
func (c *fusedTiles) compute(slot, image int, p *tile) {
	s, r := &c.shapes[p.shape], &c.runs[slot]
	scratch := c.scratch[slot*c.slot:][:c.slot]
	var previous []byte
	for m, k := range c.kernels[slot][p.shape] {
		member := &c.op.Members[m]
		in := r.in[:len(member.In)]
		for i, at := range member.In {
			switch {
			case at == OperandPrevious:
				in[i] = previous
			case at == OperandNone:
				in[i] = nil
			case c.packed[at].used:
				in[i] = c.packed[at].groups[p.group].of(c.in[at])
			default:
				in[i] = p.places[m][i].behind(image*c.steps[m][i], c.in[at])
			}
		}
		if m == len(s.ops)-1 && !s.apart {
			r.out[0] = p.result.behind(image*c.step, c.out)
		} else {
			n := int(s.types[m][len(member.In)].Bytes())
			r.out[0] = scratch[c.bufferAt[s.buffer[m]]:][:n:n]
		}
		if err := k.Run(tensor.Serial{}, in, r.out, scratch[c.innerAt:c.slot]); err != nil {
			panic(err) // none of these operators forbids any data
		}
		previous = r.out[0]
		clear(in)
	}
	r.out[0] = nil
	if s.apart {
		for at, to := 0, p.result.behind(image*c.step, c.out); at < len(previous); at += p.row {
			copy(to[at/p.row*p.pitch:], previous[at:at+p.row])
		}
	}
}
