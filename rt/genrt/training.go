package genrt

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/checkpoint"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/hostmem"
	"github.com/popefgen/popefgen/rt/internal/session"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// training is what a core of a model that trains has besides.
type training struct {
	evaluate [][]int // the program, if there is one; of a family by member
	optimize []int   // the programs that load values of the optimizer
	values   []value
	losses   []loss // scalars that a step returns; nil if nobody looks at them
	steps    atomic.Uint64

	saving sync.Mutex // guards memory
	memory map[*hostmem.Span][]byte
}

// value is a value of the optimizer, in the memory of generated code.
type value struct {
	spec   *AnchorSpec
	info   popef.TensorInfo
	stream int
	data   []byte
}

// loss is an output of a step that has one number in each transfer.
type loss struct {
	name string
	info popef.TensorInfo
	at   int                    // among the run inputs and outputs of the replica
	read func(b []byte) float64 // an element
}

// Value is the stream of a value of the optimizer, which lies at p: the program that loads it reads what is there by then.
func Value[T any](p *T) *hostmem.Live { return &hostmem.Live{Data: view.Bytes(p)} }

// resume makes the checkpoint that an option names the data of the session's inputs.
func (c *Core) resume(ctx context.Context, o *session.Options) error {
	if o.Checkpoint == "" {
		return nil
	}
	of, err := checkpoint.ReadContext(ctx, o.Checkpoint)
	if err != nil {
		return fmt.Errorf("WithCheckpoint: %w", err)
	}
	tensors, err := of.For(c.model)
	if err != nil {
		return fmt.Errorf("WithCheckpoint: %s: %w", o.Checkpoint, err)
	}
	handles := map[string]string{}
	for _, a := range checkpoint.Learnt(contract.Of(c.model)) {
		handles[a.Name] = a.Handle
	}
	total := int64(0)
	var data []rt.Weight
	for i := range tensors {
		total = budget.Add(total, int64(len(tensors[i].Data)))
		data = append(data, rt.Weight{Anchor: handles[tensors[i].Name], Data: tensors[i].Data})
	}
	c.room = budget.From(ctx).Part(0)
	if err := c.room.Take(total, "the tensors of a checkpoint"); err != nil {
		return err
	}
	o.Frozen = append(data, o.Frozen...)
	c.resumed = of.Steps
	return nil
}

// attachValue connects a value of the optimizer, which begins with the value of the checkpoint or the file.
func (r *replica) attachValue(a *AnchorSpec, handle string, v *hostmem.Live) error {
	s := r.session
	i := s.IndexOf(handle)
	if i < 0 || a.Role != Optimizer || len(v.Data) != a.Bytes || s.Infos[i].Bytes != a.Bytes {
		return fmt.Errorf("anchor %q: %w: a value of %d bytes is no value of the optimizer that the executable has", a.Name, rt.ErrGenerated, len(v.Data))
	}
	data, ok := s.Fixed(i)
	if !ok {
		return fmt.Errorf("anchor %q: %w: the file has no value for it", a.Name, rt.ErrData)
	}
	copy(v.Data, data)
	r.values = append(r.values, value{spec: a, stream: i, data: v.Data})
	return s.Attach(i, v, session.Given)
}

// trains finds what a model that trains has besides others.
func (c *Core) trains(spec *Spec, found *agreement, o *session.Options) error {
	r := c.replicas[0]
	s := r.session
	t := &training{values: r.values, memory: map[*hostmem.Span][]byte{}}
	for i := range t.values {
		v := &t.values[i]
		v.info = found.contract.Anchor(s.Infos[v.stream].Handle).Info
		for _, p := range s.Infos[v.stream].Programs {
			if !slices.Contains(t.optimize, p) {
				t.optimize = append(t.optimize, p)
			}
		}
	}
	if err := t.checkOptimize(s); err != nil {
		return err
	}
	evaluates := found.contract.Evaluates
	if found.family == nil && found.contract.Evaluate > 0 {
		evaluates = []uint32{found.contract.Evaluate}
	}
	t.evaluate = make([][]int, len(evaluates))
	at := 0
	for i := range spec.Anchors {
		a := &spec.Anchors[i]
		if a.Role != RunInput && a.Role != RunOutput {
			continue
		}
		info := found.contract.Anchor(found.handles[i]).Info
		if a.Role == RunOutput && o.FiniteLoss && len(info.Shape) == 0 {
			if read := number(info.DataType, s.Infos[s.IndexOf(found.handles[i])].Type); read != nil {
				t.losses = append(t.losses, loss{a.Name, info, at, read})
			}
		}
		at++
		handles := found.handles[i : i+1]
		if found.family != nil {
			handles = found.family.streamsOf(a)
		}
		for m, program := range evaluates {
			if err := t.checkEvaluated(spec, a, s, s.IndexOf(handles[m]), int(program), m); err != nil {
				return err
			}
		}
	}
	for _, programs := range t.evaluate {
		if err := s.Check(programs); err != nil {
			return s.Errorf("open", err)
		}
	}
	t.steps.Store(c.resumed)
	c.training = t
	return nil
}

// checkOptimize wants the programs that load values of the optimizer to load nothing else, which they would set back.
func (t *training) checkOptimize(s *session.Session) error {
	for i := range s.Infos {
		own := slices.ContainsFunc(t.values, func(v value) bool { return v.stream == i })
		if !own && slices.ContainsFunc(s.Infos[i].Programs, func(p int) bool { return slices.Contains(t.optimize, p) }) {
			return s.Errorf("open", fmt.Errorf("stream %q: %w: programs %v move it and values of the optimizer, so that setting these would set it back", s.Infos[i].Handle, rt.ErrData, t.optimize))
		}
	}
	return nil
}

// checkEvaluated wants the program that evaluates to move as many transfers of a run input or output as a step does, in whose memory they are.
func (t *training) checkEvaluated(spec *Spec, a *AnchorSpec, s *session.Session, stream, program, member int) error {
	info := &s.Infos[stream]
	k := slices.Index(info.Programs, program)
	switch {
	case k < 0 && !a.Evaluated:
		return nil
	case k < 0:
		return s.Errorf("open", fmt.Errorf("anchor %q: %w: program %d, which evaluates, does not move it", a.Name, contract.ErrTransfers, program))
	}
	if n := spec.transfers(a); k < len(info.Transfers) && info.Transfers[k] != int64(n) {
		return s.Errorf("open", fmt.Errorf("anchor %q: %w: program %d, which evaluates, moves it %d times, and a step %d times", a.Name, contract.ErrTransfers, program, info.Transfers[k], n))
	}
	if a.Evaluated {
		t.evaluate[member] = []int{program}
	}
	return nil
}

// sets reports whether an input is a value of the optimizer.
func (t *training) sets(stream int) bool {
	return t != nil && slices.ContainsFunc(t.values, func(v value) bool { return v.stream == stream })
}

// step runs the main program for who holds the gate.
func (t *training) step(ctx context.Context, r *replica) error {
	if err := r.session.Request(ctx); err != nil {
		return err
	}
	t.steps.Add(1)
	for i := range t.losses {
		if err := t.losses[i].check(r.run[t.losses[i].at].At.Block); err != nil {
			return r.session.Errorf("step", err)
		}
	}
	return nil
}

// bfloat16 is what engines call the type of which PopEF has the bits as U16.
const bfloat16 = "bf16"

// number returns what reads an element of a floating-point type, nil for other types; element is what the engine calls it.
func number(t popef.DataType, element string) func(b []byte) float64 {
	switch t {
	case popef.U16:
		if element == bfloat16 {
			return func(b []byte) float64 { return float64(num.BFloat16(binary.LittleEndian.Uint16(b)).Float32()) }
		}
	case popef.F16:
		return func(b []byte) float64 { return float64(num.Float16(binary.LittleEndian.Uint16(b)).Float32()) }
	case popef.F32:
		return func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }
	case popef.F64:
		return func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
	}
	return nil
}

// check looks at what a step returned.
func (l *loss) check(block []byte) error {
	size := l.info.DataType.Size()
	for i := 0; (i+1)*size <= len(block); i++ {
		if v := l.read(block[i*size:]); math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("output %q: %w: transfer %d of %d is %v: the weights were updated with its gradient; open the model with the last checkpoint (rt.WithCheckpoint) and a lower learning rate",
				l.name, rt.ErrNotFinite, i+1, len(block)/size, v)
		}
	}
	return nil
}

// Step is [Core.Main] of a model that trains: it counts steps, and looks at losses if it was asked to.
func (c *Core) Step(ctx context.Context, replica int) error {
	r := c.replicas[replica]
	defer r.end()
	return c.training.step(ctx, r)
}

// Evaluate runs the program that computes what a step does without changing a weight, as [Core.Main] runs the main program.
func (c *Core) Evaluate(ctx context.Context, replica int) error {
	r := c.replicas[replica]
	defer r.endEvaluate()
	return r.session.RunProgram(ctx, "evaluate", c.training.evaluate[0])
}

// Evaluate runs the program that computes what a step of a request's size does without changing a weight, as [Family.Run] runs the main
// program. Views of outputs that it does not compute are zero.
func (f *Family) Evaluate(ctx context.Context, views []View) error {
	var a ask
	if err := f.fits(views, &a); err != nil {
		return f.errorf("evaluate", err)
	}
	i, err := f.Begin(ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	r := f.replicas[i]
	defer r.endEvaluate()
	f.place(r, views, a.member)
	return r.session.RunProgram(ctx, "evaluate", f.training.evaluate[a.member])
}

func (r *replica) endEvaluate() {
	forget(r.run)
	r.session.Gate.Release(0)
}

// Steps returns how many steps were made since training began, those before a checkpoint included.
func (c *Core) Steps() uint64 {
	if c.training == nil {
		return 0
	}
	return c.training.steps.Load()
}

// Values are the values of an optimizer as generated code has them: a struct with a field for each, to which [Value] makes streams. The zero Values
// is ready for [Core.Open].
type Values[T any] struct {
	mu  sync.Mutex
	Now T // guarded by mu, and by the engine's gate while programs run
}

// Get returns the values.
func (v *Values[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.Now
}

// Set makes next the values, where merge takes from the present ones what next leaves out, and runs the program that loads them, alone. If that fails, or one of
// them is no number, they stay as they were.
func (v *Values[T]) Set(ctx context.Context, c *Core, next T, merge func(next, was T) T) error {
	replica, err := c.Begin(ctx, 0)
	if err != nil {
		return err
	}
	s, t := c.replicas[replica].session, c.training
	defer s.Gate.Release(0)
	v.mu.Lock()
	defer v.mu.Unlock()
	was, over := v.Now, false
	defer func() {
		if !over {
			v.Now = was
		}
	}()
	v.Now = merge(next, was)
	for i := range t.values {
		x := checkpoint.Tensor{Name: t.values[i].spec.Name, Role: contract.Optimizer, Info: t.values[i].info, Data: t.values[i].data}
		if err := x.Finite(); err != nil {
			return s.Errorf("set the optimizer", fmt.Errorf("%w; nothing was set", err))
		}
	}
	if err := s.RunProgram(ctx, "set the optimizer", t.optimize); err != nil {
		v.Now = was
		_ = s.RunProgram(context.Background(), "set the optimizer", t.optimize) // some may have been moved; err says what is wrong
		return err
	}
	over = true
	return nil
}

// Checkpoint saves what the model has learnt to a file, see package checkpoint. Requests wait while it copies what the save programs deliver, and go on while it
// writes.
func (c *Core) Checkpoint(ctx context.Context, spec *Spec, path string) error {
	t := c.training
	if t == nil {
		return c.errorf("save a checkpoint", rt.ErrClosed)
	}
	if err := c.spares(path); err != nil {
		return c.errorf("save a checkpoint", err)
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	replica, err := c.Begin(ctx, 0)
	if err != nil {
		return err
	}
	r := c.replicas[replica]
	for _, w := range r.saved {
		if t.memory[w] == nil {
			t.memory[w] = make([]byte, w.At.Size)
		}
		w.Over(t.memory[w])
	}
	of := &checkpoint.Checkpoint{Steps: t.steps.Load()}
	missing := c.learnt(r, of)
	if err := c.Save(ctx, replica); err != nil { // which leaves the engine
		return err
	}
	if missing != nil {
		return c.errorf("save a checkpoint", missing)
	}
	callers, err := contract.Parse(spec.Contract)
	if err == nil {
		of.Contract = callers.Hash()
		err = of.Write(path)
	}
	if err != nil {
		return c.errorf("save a checkpoint", err)
	}
	return nil
}

// spares returns an error if path is one of the model's own files, whatever it is called: a checkpoint would take its place.
func (c *Core) spares(path string) error {
	is, err := os.Stat(path)
	if err != nil {
		return nil // it is not there, or writing says why not
	}
	for _, name := range c.model.Files() {
		if was, err := os.Stat(name); err == nil && os.SameFile(was, is) {
			return fmt.Errorf("%s is the file of the model, which would be written over; choose another file", path)
		}
	}
	return nil
}

// learnt lists the tensors of a checkpoint: in the memory that save programs fill, those of the optimizer in a copy, and what no program changes where it is.
func (c *Core) learnt(r *replica, of *checkpoint.Checkpoint) error {
	s := r.session
	found := s.Contract()
	constants := contract.ConstantsOf(c.model)
	for _, a := range checkpoint.Learnt(found) {
		t := checkpoint.Tensor{Name: a.Name, Role: checkpoint.RoleOf(&a), Info: a.Info}
		t.Given, _ = c.model.TensorData(a.Name)
		stream := s.IndexOf(a.Handle)
		t.Constant = slices.Contains(constants, a.Name)
		t.BFloat16 = a.Info.DataType == popef.U16 && s.Infos[stream].Type == bfloat16
		data, fixed := s.Fixed(stream)
		saved := slices.IndexFunc(r.saved, func(w *hostmem.Span) bool { return w.Anchor == a.Name })
		value := slices.IndexFunc(c.training.values, func(v value) bool { return v.stream == stream })
		switch {
		case saved >= 0:
			t.Data = c.training.memory[r.saved[saved]]
		case slices.ContainsFunc(found.Anchors, func(o contract.Anchor) bool { return o.Role == SaveOutput && o.Name == a.Name }):
			return fmt.Errorf("anchor %q: %w: the model saves it, and the package does not know it: generate the package again", a.Name, rt.ErrContract)
		case value >= 0:
			t.Data = slices.Clone(c.training.values[value].data)
		case fixed:
			t.Data = data
		default:
			return fmt.Errorf("anchor %q: %w: neither a save program nor the model's file gives it", a.Name, rt.ErrData)
		}
		of.Tensors = append(of.Tensors, t)
	}
	return nil
}

// WeightOf is the [rt.Weight] of a generated tensor, with its type and shape, so that a model with another one refuses it.
func WeightOf[T any](anchor string, t *T, elem popef.DataType, shape ...int64) rt.Weight {
	w := rt.WeightOf(anchor, t)
	w.Info = &popef.TensorInfo{DataType: elem, Shape: shape}
	return w
}

// The element types of [WeightOf].
const (
	Bool  = popef.Bool
	F8    = popef.F8
	F16   = popef.F16
	F32   = popef.F32
	F64   = popef.F64
	S8    = popef.S8
	U8    = popef.U8
	S16   = popef.S16
	U16   = popef.U16
	S32   = popef.S32
	U32   = popef.U32
	S64   = popef.S64
	U64   = popef.U64
	F8143 = popef.F8143
	F8152 = popef.F8152
)
