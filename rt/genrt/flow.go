package genrt

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/series"
)

// FlowSpec is what generated code knows of the streams of a model with several sizes.
type FlowSpec struct {
	Rows  int    // open dimension of whose rows a stream is one; -1 if its state has none
	Past  int    // open dimension by which states grow; -1 if none does
	Kept  []Kept // what a stream keeps, in the order of the generated State
	Fills []Filled
}

// Kept is an output that is an input of the next request.
type Kept struct {
	Input, Output int // among the run inputs, and among the run outputs
	Grows         int // positions by which a request makes it longer; 0 for one that stays as long as it is
}

// Filled is an input that a stream fills, where its state grows.
type Filled struct {
	Input int // among the run inputs
	Kind  FillKind
	Elem  string // Go type of its elements
}

// FillKind says what a stream fills an input with.
type FillKind uint8

// What a stream fills inputs with: by one of them, other than positions, the model knows how much there
// is of a state that has room for more.
const (
	FillMask      FillKind = iota // 1 for each position of the past and each new one, 0 for room that is empty
	FillBias                      // 0 for these, and the lowest value of 16 bits for room that is empty
	FillPositions                 // for each new position how many there were before
)

// Flow is a stream of a model with several sizes. It keeps what does not grow in two sets of memory that change
// places. What grows lies where the member reads it that has room for it: what a request adds is put behind what
// there is, and all of it is moved where that takes another member.
type Flow struct {
	turns  Turns
	family *Family
	spec   *FlowSpec
	now    int // which set the next request reads
	kept   []kept
	filled []filled
	views  []View // of the request under way
	skip   []bool // by tensor: callers do not give it
	past   int    // positions that there are
	class  int    // positions that there is room for: a member's
	taken  int64  // bytes of the family's budget

	// Of the request under way, which shares a run with others.
	ask   ask
	err   error
	wake  chan struct{} // capacity 1: look what became of it
	timer *time.Timer
}

// kept is a state, or the cache that a state is where it grows.
type kept struct {
	Kept
	sets  [2]own
	outer int      // of a cache: lines that have all positions each
	inner int      // bytes of a position in a line
	mem   []uint64 // of a cache
	fresh []byte   // what a request adds
	box   *scratch
}

// own is a tensor that a stream has memory for.
type own struct {
	sizes []int
	data  []byte // as long as it has elements, of a tensor with open dimensions; else its memory
}

// filled is an input that the stream fills.
type filled struct {
	Filled
	own
	mem   []uint64
	write series.Writer
}

// view shows o to the family.
func (o *own) view(t *fitted) View {
	if t.open {
		return Open(&o.sizes[0], &o.data)
	}
	return View{data: unsafe.Pointer(unsafe.SliceData(o.data))}
}

// bytes returns the memory of o.
func (o *own) bytes(t *fitted) []byte {
	if t.open {
		return unsafe.Slice(unsafe.SliceData(o.data), len(o.data)*t.elem)
	}
	return o.data
}

// over makes o lie in mem, with the sizes that one row and past positions make.
func (o *own) over(t *fitted, spec *FlowSpec, past int, mem []uint64) {
	for k := range t.fields {
		o.sizes[k] = lengthOf(t.fields[k].axis, spec, past)
	}
	n := t.count(o.sizes)
	if !t.open {
		n *= t.elem
	}
	o.data = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

// lengthOf returns the length of an axis for one row and so many positions of the past.
func lengthOf(x *family.Axis, spec *FlowSpec, past int) int {
	if x.Dim >= 0 && x.Dim == spec.Past {
		return int(x.At(int64(past)))
	}
	return int(x.At(1))
}

// words returns memory for so many bytes, aligned for any element.
func words(bytes int) []uint64 { return make([]uint64, (bytes+7)/8+1) }

// Open begins with a state of zeros, or with none where it grows.
func (s *Flow) Open(f *Family, spec *FlowSpec) error {
	if f.fit != nil {
		for _, k := range spec.Kept {
			if k.Input >= f.fit.inputs || f.fit.inputs+k.Output >= len(f.fit.tensors) {
				return f.errorf("open a stream", rt.ErrGenerated)
			}
		}
	}
	inputs := make([]int, len(spec.Kept))
	for i, k := range spec.Kept {
		inputs[i] = k.Input
	}
	if err := s.turns.Open(&f.Core, inputs...); err != nil {
		return err
	}
	s.family, s.spec, s.class, s.wake = f, spec, -1, make(chan struct{}, 1)
	s.views, s.skip = make([]View, len(f.fit.tensors)), make([]bool, len(f.fit.tensors))
	for _, k := range spec.Kept {
		t := &f.fit.tensors[k.Input]
		s.skip[k.Input], s.skip[f.fit.inputs+k.Output] = true, true
		o := kept{Kept: k, box: newScratch(len(t.tensor.Axes))}
		o.sets[0].sizes, o.sets[1].sizes = make([]int, len(t.fields)), make([]int, len(f.fit.tensors[f.fit.inputs+k.Output].fields))
		if k.Grows > 0 {
			o.lines(t, spec)
			o.fresh = make([]byte, o.outer*k.Grows*o.inner)
		} else {
			for i := range o.sets {
				o.sets[i].over(t, spec, 0, words(t.elem*t.with(spec, 0)))
			}
		}
		s.kept = append(s.kept, o)
	}
	for _, x := range spec.Fills {
		t := &f.fit.tensors[x.Input]
		s.skip[x.Input] = true
		o := filled{Filled: x, own: own{sizes: make([]int, len(t.fields))}}
		var size int
		if o.write, size = series.Of(x.Elem); o.write == nil || size != t.scalar {
			return f.errorf("open a stream", fmt.Errorf("anchor %q: %w: streams fill no elements of %s", t.spec.Name, rt.ErrGenerated, x.Elem))
		}
		s.filled = append(s.filled, o)
	}
	return nil
}

// with returns how many elements the slice has for one row and so many positions of the past.
func (t *fitted) with(spec *FlowSpec, past int) int {
	n := t.fixed
	for _, k := range t.axes {
		n *= lengthOf(t.fields[k].axis, spec, past)
	}
	return n
}

// lines finds how a cache lies in memory.
func (o *kept) lines(t *fitted, spec *FlowSpec) {
	o.outer, o.inner = 1, t.scalar
	behind := false
	for i := range t.tensor.Axes {
		switch x := &t.tensor.Axes[i]; {
		case x.Dim == spec.Past:
			behind = true
		case x.Dim >= 0: // of the rows it is one
		case behind:
			o.inner *= int(x.Size)
		default:
			o.outer *= int(x.Size)
		}
	}
}

// Frozen reports whether run input i has the same data in every request.
func (s *Flow) Frozen(i int) bool { return s.family != nil && s.family.Frozen(i) }

// NilAnchor is [Core.NilAnchor] of the runner that the stream belongs to.
func (s *Flow) NilAnchor(err error) error { return s.turns.NilAnchor(err) }

// Run computes a request: a view of every run input and then of every run output, in the order of the
// specification, but for what the stream keeps and fills.
func (s *Flow) Run(ctx context.Context, given []View) error {
	if _, _, err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.End()
	defer clear(s.views) // keep no reference to the caller's memory
	copy(s.views, given)
	if err := s.prepare(); err != nil {
		return s.family.errorf("run a stream", err)
	}
	return s.family.flows.run(ctx, s)
}

// prepare checks the request, finds the member that computes it, and makes room for what it adds to the
// state.
func (s *Flow) prepare() error {
	fit, spec := s.family.fit, s.spec
	for i := range fit.inputs {
		for k := range fit.tensors[i].fields {
			x := fit.tensors[i].fields[k].axis
			if s.skip[i] || !x.Same() {
				continue
			}
			n := *s.views[i].size(k)
			if s.ask.sizes[x.Dim] = n; x.Dim == spec.Rows && n != 1 {
				return fit.sizeError(i, k, n, fit.family.Dims[x.Dim].Name, nil,
					fmt.Sprintf("is %d, and a stream is one of them: give 1, and open a stream for each", n))
			}
		}
	}
	if spec.Rows >= 0 {
		s.ask.sizes[spec.Rows] = 1
	}
	if spec.Past >= 0 {
		step := 0
		for i := range s.kept {
			step = max(step, s.kept[i].Grows)
		}
		class, err := s.fits(s.past + step)
		if err == nil && class != s.class {
			err = s.move(class)
		}
		if err != nil {
			return err
		}
		s.fill(step)
	}
	for i := range s.kept {
		k := &s.kept[i]
		from, to := &k.sets[s.now], &k.sets[1-s.now]
		if k.Grows > 0 {
			from, to = &k.sets[0], &k.sets[1]
		}
		s.views[k.Input] = from.view(&fit.tensors[k.Input])
		s.views[fit.inputs+k.Output] = to.view(&fit.tensors[fit.inputs+k.Output])
	}
	for i := range s.filled {
		x := &s.filled[i]
		s.views[x.Input] = x.view(&fit.tensors[x.Input])
	}
	if err := fit.choose(s.views, &s.ask); err != nil {
		return err
	}
	fit.prepare(s.views, &s.ask)
	return nil
}

// fits returns the smallest size of the dimension by which states grow that has room for so many positions, and
// that a member has with the other sizes of the request.
func (s *Flow) fits(positions int) (int, error) {
	fit, dim := s.family.fit, s.spec.Past
	all, _, _ := fit.table.Sizes(dim)
	first, _ := slices.BinarySearch(all, max(positions, s.class))
	if first == len(all) {
		return 0, s.over(positions)
	}
	for _, n := range all[first:] {
		s.ask.sizes[dim] = n
		if m, _ := fit.table.Choose(s.ask.sizes[:len(fit.from)]); m >= 0 {
			return n, nil
		}
	}
	s.ask.sizes[dim] = all[first]
	return all[first], nil // which choose refuses with its reasons
}

// move makes the caches have room for so many positions, in memory that they have if it is enough.
func (s *Flow) move(class int) error {
	if err := s.reserve(class); err != nil {
		return err
	}
	for i := range s.kept {
		k := &s.kept[i]
		if k.Grows == 0 {
			continue
		}
		t := &s.family.fit.tensors[k.Input]
		k.sets[0].over(t, s.spec, class, k.mem)
		k.sets[1].over(&s.family.fit.tensors[s.family.fit.inputs+k.Output], s.spec, class, k.mem) // it has the size, so that nobody makes memory for it
		mem := k.bytes()
		was, is, n := s.class*k.inner, class*k.inner, s.past*k.inner
		for o := k.outer - 1; o >= 0; o-- { // from the end on, so that nothing is written over what is still to be moved
			if s.past > 0 {
				copy(mem[o*is:][:n], mem[o*was:][:n])
			}
			clear(mem[o*is+n : (o+1)*is])
		}
	}
	s.class = class
	return nil
}

// bytes returns the memory of a cache.
func (o *kept) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(o.mem))), 8*len(o.mem))
}

// reserve gives all that grows, or nothing of it, memory for so many positions.
func (s *Flow) reserve(class int) error {
	more := int64(0)
	grow := func(mem *[]uint64, bytes int, now bool) {
		if *mem != nil && bytes <= 8*len(*mem) {
			return
		}
		if !now {
			more += int64(bytes - 8*len(*mem))
			return
		}
		old := *mem
		*mem = words(bytes)
		copy(*mem, old)
	}
	each := func(now bool) {
		for i := range s.kept {
			if k := &s.kept[i]; k.Grows > 0 {
				grow(&k.mem, k.outer*(class+k.Grows)*k.inner, now)
			}
		}
		for i := range s.filled {
			t := &s.family.fit.tensors[s.filled[i].Input]
			grow(&s.filled[i].mem, t.with(s.spec, class)*t.elem, now)
		}
	}
	each(false)
	if more > 0 {
		if err := s.family.flows.take(more, "the state of a stream of %d positions", class); err != nil {
			return err
		}
		s.taken += more
	}
	each(true)
	return nil
}

// fill fills the inputs that tell the model how much there is of the past.
func (s *Flow) fill(step int) {
	for i := range s.filled {
		x := &s.filled[i]
		x.over(&s.family.fit.tensors[x.Input], s.spec, s.class, x.mem)
		mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x.mem))), 8*len(x.mem))
		there, empty := 1, 0
		switch x.Kind {
		case FillPositions:
			x.write(mem, 0, step, s.past, 1)
			continue
		case FillBias:
			there, empty = 0, series.Lowest
		}
		x.write(mem, 0, s.past, there, 0)
		x.write(mem, s.past, s.class-s.past, empty, 0)
		x.write(mem, s.class, step, there, 0)
	}
}

// ended puts what a request added behind what there was, and makes the state that it left the one that the next
// request reads.
func (s *Flow) ended() {
	for i := range s.kept {
		k := &s.kept[i]
		if k.Grows == 0 {
			continue
		}
		mem, n := k.bytes(), k.Grows*k.inner
		for o := range k.outer {
			copy(mem[(o*s.class+s.past)*k.inner:][:n], k.fresh[o*n:])
		}
	}
	if s.spec.Past >= 0 {
		for i := range s.kept {
			if g := s.kept[i].Grows; g > 0 {
				s.past += g
				break
			}
		}
	}
	s.now = 1 - s.now
}

// Len returns how many positions there are of what grows.
func (s *Flow) Len() int {
	if _, _, err := s.turns.Begin(); err != nil {
		return 0
	}
	defer s.turns.End()
	return s.past
}

// Reserve makes room for so many positions.
func (s *Flow) Reserve(positions int) error {
	if _, _, err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.End()
	all, _, _ := s.family.fit.table.Sizes(s.spec.Past)
	i, _ := slices.BinarySearch(all, positions)
	var err error
	if i == len(all) {
		err = s.over(positions)
	} else {
		err = s.reserve(all[i])
	}
	if err != nil {
		return s.family.errorf("reserve room in a stream", err)
	}
	return nil
}

// over is the error of more positions than the largest member has room for.
func (s *Flow) over(positions int) error {
	fit := s.family.fit
	all, _, _ := fit.table.Sizes(s.spec.Past)
	name, most := fit.family.Dims[s.spec.Past].Name, all[len(all)-1]
	return &rt.SizeError{Field: "Stream", Dim: name, Size: positions, Sizes: slices.Clone(all),
		Reason: fmt.Sprintf("has %d positions and would have %d: the largest size of dimension %q is %d: Reset the stream, or compile the model with --dim %s=…,%d",
			s.past, positions, name, most, name, positions)}
}

// Reset makes the state that of a new stream.
func (s *Flow) Reset() error {
	if _, _, err := s.turns.Begin(); err != nil {
		return err
	}
	defer s.turns.End()
	for i := range s.kept {
		if k := &s.kept[i]; k.Grows == 0 {
			clear(k.sets[s.now].bytes(&s.family.fit.tensors[k.Input]))
		}
	}
	s.past, s.class = 0, -1
	return nil
}

// Close ends the stream and gives back its memory.
func (s *Flow) Close() error {
	if err := s.turns.Close(); err != nil {
		return err
	}
	if s.family != nil {
		s.family.flows.give(s.taken)
	}
	s.kept, s.filled, s.taken = nil, nil, 0
	return nil
}
