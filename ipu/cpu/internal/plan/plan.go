// Package plan decides all about an executable that can be known before it runs: the
// order of its steps, which tensors share memory, the place of each in one arena, and
// which operands are kept packed for their kernels. What a file asks for (operations,
// steps, bytes of results and of kernels' tables) is checked here, before a kernel is
// made.
package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Plan is all that the engine decides about an executable before it runs:
// the order of execution of every program, which tensors share memory and
// where each of them lies, and which operands are kept in a kernel's own
// layout. It is plain data: two equal executables give equal plans.
type Plan struct {
	Name            string // the executable's name
	Threads         int    // workers of the engine, the caller included
	ArenaBytes      int64  // the one block that holds local tensors and scratch of whatever program runs: the largest program's
	PersistentBytes int64  // persistent tensors that are kept row-major; those whose stream gives constant memory take none of it
	PackedBytes     int64  // operands kept in a kernel's own layout, besides any row-major copy
	ConstantBytes   int64  // constants, used in place in the executable
	TableBytes      int64  // tables of kernels, at most
	Layout          layout.Summary
	Persistent      []Persistent
	Packed          []Packed
	Programs        []Program
}

// Persistent says how a persistent tensor is kept.
type Persistent struct {
	Tensor graph.TensorID
	Name   string
	Type   string
	Bytes  int64
	// Stored is false where every reader uses a packed copy, so that no
	// row-major copy is kept.
	Stored bool
	// Borrowed is true where nothing but streams writes the tensor, so that
	// the memory of a stream that promises not to change it (ipu.Constant)
	// stands in for it.
	Borrowed bool
}

// Packed is a copy of a tensor in the layout that kernels ask for. Operands whose
// kernels want the same layout, in whatever graphs and programs they are, have it in common.
type Packed struct {
	Tensor  graph.TensorID // the constant or persistent tensor it is made from
	Bytes   int64
	Readers []PackReader // the operands that it is kept for, at least one; the kernel of the first packs it
}

// PackReader is an operand of a node that comes packed.
type PackReader struct {
	Graph   graph.GraphID
	Node    int // index into the graph's nodes, as the engine keeps them
	Source  int // the node of the executable that it comes from
	Operand int
	// Taken says that the kernel has another choice and takes the copy since others want it.
	Taken bool
}

// Use tells the reader's kernel how the operand comes.
func (r *PackReader) Use(k tensor.Kernel) {
	if r.Taken {
		k.(tensor.Taker).Take(r.Operand)
	} else {
		k.(tensor.Packer).UsePacked(r.Operand)
	}
}

// Program is the plan of one program.
type Program struct {
	Index      int
	Name       string
	ArenaBytes int64
	Work       int64 // operations of a run, about multiplications; loops whose end is not known counted once
	Steps      []Step
	Buffers    []Buffer
}

// StepKind says what a [Step] does.
type StepKind uint8

// The kinds of step.
const (
	CopyIn    StepKind = iota + 1 // stream to Out[0]
	CopyOut                       // In[0] to stream
	Compute                       // run the kernel of a node
	Move                          // copy In[0] to Out[0]
	Share                         // Out[0] is In[0] seen with another shape: nothing to do
	LoopStart                     // what follows, up to Match, runs Count times or, if that is negative, In[0] times; not at all if In[1] is false. Out[0] counts
	LoopEnd                       // back to Match, unless In[0] is false; Out[0] counts
	Begin                         // where the memory of Out begins to be in use: nothing to do
	Collect                       // copy In[0] to place In[1] of Out[0]
	IfStart                       // what follows runs if In[0] is true, up to the Else step, else from there to Match
	Else                          // between the branches of the IfStart at Match
	IfEnd                         // after the branches of the IfStart at Match
	Keep                          // copy In[0] to the persistent tensor Out[0] and its packed copies
)

var stepNames = [...]string{CopyIn: "copy in", CopyOut: "copy out", Compute: "compute", Move: "move",
	Share: "share", LoopStart: "repeat", LoopEnd: "end", Begin: "begin", Collect: "collect",
	IfStart: "if", Else: "else", IfEnd: "end if", Keep: "keep"}

// String returns the kind in words, such as "copy in".
func (k StepKind) String() string {
	if int(k) < len(stepNames) && stepNames[k] != "" {
		return stepNames[k]
	}
	return fmt.Sprintf("step kind %d", uint8(k))
}

// Step is one step of a program with its calls inlined. Steps are numbered by
// their place in [Program.Steps]; [Buffer] lifetimes count in these numbers.
type Step struct {
	Kind    StepKind
	Stream  graph.StreamID // CopyIn, CopyOut
	Graph   graph.GraphID  // Compute, Move, Share: the node it comes from
	Node    int            // index into the graph's nodes, as the engine keeps them
	Source  int            // the node of the executable that it comes from; they differ where activations are in NCHWc
	Name    string         // the node's name, or the stream's handle
	Op      string         // the node's operator
	In, Out []Operand
	Scratch int   // buffer of scratch memory, or -1
	Count   int64 // LoopStart
	Match   int   // LoopStart, LoopEnd, IfStart, Else, IfEnd: the step at the other end
	Work    int64 // LoopEnd: operations of one iteration, if how many there are depends on the run
	Loop    int   // the step that starts the innermost loop or branches around this one, or -1
}

// Place says what kind of memory an operand lies in.
type Place uint8

// The places.
const (
	LeftOut      Place = iota // no such operand
	InConstant                // Index is a tensor of the executable
	InPersistent              // Index is a tensor of the executable
	InBuffer                  // Index into Program.Buffers
	InPacked                  // Index into Plan.Packed
)

// Operand is one operand or result of a step.
type Operand struct {
	Place Place
	Index int
	// Tensor is what the executable calls it. Tensors beyond the
	// executable's own hold a result until it may overwrite its target.
	Tensor graph.TensorID
}

// Buffer is a part of the arena: one or more tensors that share memory, or
// the scratch memory of one step.
type Buffer struct {
	Tensors     []graph.TensorID // in the order they are written; nil for scratch
	Names       []string         // of Tensors
	Bytes       int64
	Offset      int64 // into the arena; a multiple of 64
	First, Last int   // steps between which it is in use
	// Part says that it lies within the memory of the buffer Within.
	Part   bool
	Within int
	// Input is the CopyIn step whose stream's own memory may stand in for
	// the buffer, or -1.
	Input int
	// Output is the CopyOut step whose stream's own memory may stand in for
	// the buffer from step First on, or -1.
	Output int
}

// WriteTo prints the plan for people: totals, then every program with its
// steps and the memory they use.
func (p *Plan) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %q: %d threads, arena %d B, persistent %d B, packed %d B, constants %d B\n",
		p.Name, p.Threads, p.ArenaBytes, p.PersistentBytes, p.PackedBytes, p.ConstantBytes)
	if p.Layout.Tensors > 0 {
		fmt.Fprintf(&b, "layout: %s\n", p.Layout)
	}
	for _, t := range p.Persistent {
		fmt.Fprintf(&b, "persistent t%d %q %s, %d B", t.Tensor, t.Name, t.Type, t.Bytes)
		if !t.Stored {
			b.WriteString(", packed copies only")
		} else if t.Borrowed {
			b.WriteString(", constant stream memory in place")
		}
		b.WriteByte('\n')
	}
	for i, k := range p.Packed {
		fmt.Fprintf(&b, "packed %d: t%d, %d B, for", i, k.Tensor, k.Bytes)
		for n, r := range k.Readers {
			if n > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, " operand %d of node %d in graph %d", r.Operand, r.Source, r.Graph)
		}
		b.WriteByte('\n')
	}
	for i := range p.Programs {
		p.Programs[i].write(&b)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// String returns what [Plan.WriteTo] prints.
func (p *Plan) String() string {
	var b strings.Builder
	p.WriteTo(&b) //nolint:errcheck // a strings.Builder never fails
	return b.String()
}

func (p *Program) write(b *strings.Builder) {
	fmt.Fprintf(b, "program %d %q: %d steps, arena %d B\n", p.Index, p.Name, len(p.Steps), p.ArenaBytes)
	depth := 0
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Kind == LoopEnd || s.Kind == Else || s.Kind == IfEnd {
			depth--
		}
		fmt.Fprintf(b, "  %4d %s%s", i, strings.Repeat("  ", depth), s.Kind)
		if s.Op != "" {
			fmt.Fprintf(b, " %s", s.Op)
		}
		if s.Name != "" {
			fmt.Fprintf(b, " %q", s.Name)
		}
		switch s.Kind {
		case LoopStart:
			if s.Count >= 0 {
				fmt.Fprintf(b, " %d times", s.Count)
			}
			depth++
		case IfStart, Else:
			depth++
		}
		if len(s.In)+len(s.Out) > 0 {
			b.WriteString(operands(s.In) + " ->" + operands(s.Out))
		}
		if s.Scratch >= 0 {
			fmt.Fprintf(b, " scratch b%d", s.Scratch)
		}
		b.WriteByte('\n')
	}
	for i := range p.Buffers {
		u := &p.Buffers[i]
		fmt.Fprintf(b, "  b%d at %d, %d B, steps %d-%d", i, u.Offset, u.Bytes, u.First, u.Last)
		for k, t := range u.Tensors {
			fmt.Fprintf(b, " t%d %q", t, u.Names[k])
		}
		if u.Tensors == nil {
			b.WriteString(" scratch")
		}
		if u.Part {
			fmt.Fprintf(b, ", in b%d", u.Within)
		}
		if u.Input >= 0 {
			fmt.Fprintf(b, ", or the memory that step %d reads", u.Input)
		}
		if u.Output >= 0 {
			fmt.Fprintf(b, ", or the memory that step %d fills", u.Output)
		}
		b.WriteByte('\n')
	}
}

// placeLetters mark where an operand lies: k0 is constant 0 of the tensor
// table, t0 persistent tensor 0, b0 buffer 0, p0 packed operand 0.
var placeLetters = [...]string{LeftOut: "_", InConstant: "k", InPersistent: "t", InBuffer: "b", InPacked: "p"}

func operands(all []Operand) string {
	var b strings.Builder
	for _, o := range all {
		b.WriteString(" " + placeLetters[o.Place])
		if o.Place != LeftOut {
			fmt.Fprint(&b, o.Index)
		}
	}
	return b.String()
}

// MemoryReport sums up the memory of an engine in bytes, all known before the
// first run.
type MemoryReport struct {
	ArenaBytes      int64 // peak of local tensors and scratch over all programs
	PersistentBytes int64
	PackedBytes     int64
	ConstantBytes   int64 // in the executable, not allocated by the engine
	TableBytes      int64 // tables of kernels, at most
	Tensors         []TensorMemory
}

// TensorMemory is where one local tensor of one program lies and how long.
type TensorMemory struct {
	Program     int // the program's index
	Tensor      graph.TensorID
	Name        string
	Bytes       int64
	Offset      int64 // into the arena
	First, Last int   // steps of the program between which its memory is in use
}

// Memory returns the memory side of the plan: totals and, by program and
// offset, the place of every local tensor.
func (p *Plan) Memory() MemoryReport {
	r := MemoryReport{
		ArenaBytes:      p.ArenaBytes,
		PersistentBytes: p.PersistentBytes,
		PackedBytes:     p.PackedBytes,
		ConstantBytes:   p.ConstantBytes,
		TableBytes:      p.TableBytes,
	}
	for _, g := range p.Programs {
		from := len(r.Tensors)
		for _, u := range g.Buffers {
			for k, t := range u.Tensors {
				r.Tensors = append(r.Tensors, TensorMemory{g.Index, t, u.Names[k], u.Bytes, u.Offset, u.First, u.Last})
			}
		}
		slices.SortStableFunc(r.Tensors[from:], func(a, b TensorMemory) int { return int(min(1, max(-1, a.Offset-b.Offset))) })
	}
	return r
}

// Touched returns how much of the arena, from its start, is used even where the
// host's memory stands in for all that it can.
func (p *Plan) Touched() int64 {
	var n int64
	for i := range p.Programs {
		for _, u := range p.Programs[i].Buffers {
			if u.Input < 0 && u.Output < 0 && !u.Part {
				n = max(n, u.Offset+u.Bytes)
			}
		}
	}
	return n
}

// Greatest names the greatest block of memory and the step that needs it first.
func (p *Plan) Greatest() string {
	size, text := int64(0), ""
	for i := range p.Programs {
		g := &p.Programs[i]
		for k := range g.Buffers {
			b := &g.Buffers[k]
			if b.Part || b.Bytes <= size {
				continue
			}
			size = b.Bytes
			what := "scratch memory"
			if len(b.Names) > 0 {
				what = fmt.Sprintf("tensor %q", b.Names[0])
			}
			s := &g.Steps[b.First]
			text = strings.TrimSpace(fmt.Sprintf("%s of %s", budget.Text(size), what))
			if s.Op != "" {
				text += fmt.Sprintf(" of node %q (%s)", s.Name, s.Op)
			}
		}
	}
	for i := range p.Persistent {
		if t := &p.Persistent[i]; t.Stored && t.Bytes > size {
			size, text = t.Bytes, fmt.Sprintf("%s of persistent tensor %q", budget.Text(t.Bytes), t.Name)
		}
	}
	return text
}

// Largest names, of several main programs, the one whose local tensors decide how much
// memory there is for those of all; "" where there are not several.
func (p *Plan) Largest() string {
	var most *Program
	mains := 0
	for i := range p.Programs {
		if g := &p.Programs[i]; g.ArenaBytes > 0 {
			mains++
			if most == nil || g.ArenaBytes > most.ArenaBytes {
				most = g
			}
		}
	}
	if mains < 2 {
		return ""
	}
	return fmt.Sprintf("the local tensors are those of program %d %q, the largest of %d: without its size it takes less", most.Index, most.Name, mains)
}

// IsPersistent reports whether a tensor that is kept packed is a persistent one.
func (p *Plan) IsPersistent(t graph.TensorID) bool {
	return slices.ContainsFunc(p.Persistent, func(k Persistent) bool { return k.Tensor == t })
}
