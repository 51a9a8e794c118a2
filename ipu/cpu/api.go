package cpu

import (
	"context"

	"github.com/popefgen/popefgen/ipu/cpu/internal/costs"
	"github.com/popefgen/popefgen/ipu/cpu/internal/eval"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/cpu/internal/weights"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Costs is a record of what steps of a plan take on one machine, from which the engine
// estimates which layout activations get and where operators are fused tile by
// tile. No result depends on it. [github.com/popefgen/popefgen/ipu/cpu/calibrate]
// measures it, and the engine option "costs" takes its JSON form.
type Costs = costs.Record

// ErrCosts is what errors about records of costs wrap.
var ErrCosts = costs.ErrRecord

// ParseCosts reads a record of costs from its JSON form and checks it. Errors
// wrap [ErrCosts].
func ParseCosts(data []byte) (Costs, error) { return costs.Parse(data) }

// UsualCosts returns the costs that the engine takes where the option "costs"
// gives no others: those of one machine for each path of the kernels, zero where
// kernels are in plain Go.
func UsualCosts() Costs { return costs.Usual() }

// Plan is all that the engine decides about an executable before it runs: plain data,
// from [PlanOf] or [Engine.Plan]. Program, Step, Operand, Buffer, Persistent and Packed
// are its parts.
type Plan = plan.Plan

// Program is the plan of one program: its steps in order and the memory they use.
type Program = plan.Program

// Step is one step of a program with its calls inlined.
type Step = plan.Step

// StepKind says what a [Step] does.
type StepKind = plan.StepKind

// The kinds of step.
const (
	CopyIn    = plan.CopyIn    // stream to Out[0]
	CopyOut   = plan.CopyOut   // In[0] to stream
	Compute   = plan.Compute   // run the kernel of a node
	Move      = plan.Move      // copy In[0] to Out[0]
	Share     = plan.Share     // Out[0] is In[0] seen with another shape: nothing to do
	LoopStart = plan.LoopStart // what follows, up to Match, runs several times
	LoopEnd   = plan.LoopEnd   // back to Match
	Begin     = plan.Begin     // where the memory of Out begins to be in use: nothing to do
	Collect   = plan.Collect   // copy In[0] to place In[1] of Out[0]
	IfStart   = plan.IfStart   // what follows runs if In[0] is true, up to the Else step
	Else      = plan.Else      // between the branches of the IfStart at Match
	IfEnd     = plan.IfEnd     // after the branches of the IfStart at Match
	Keep      = plan.Keep      // copy In[0] to the persistent tensor Out[0] and its packed copies
)

// Operand is one operand or result of a step, and where it lies.
type Operand = plan.Operand

// Place says what kind of memory an operand lies in.
type Place = plan.Place

// The places.
const (
	LeftOut      = plan.LeftOut      // no such operand
	InConstant   = plan.InConstant   // Index is a tensor of the executable
	InPersistent = plan.InPersistent // Index is a tensor of the executable
	InBuffer     = plan.InBuffer     // Index into Program.Buffers
	InPacked     = plan.InPacked     // Index into Plan.Packed
)

// Buffer is a part of the arena: one or more tensors that share memory, or
// the scratch memory of one step.
type Buffer = plan.Buffer

// Persistent says how a persistent tensor is kept.
type Persistent = plan.Persistent

// Packed is one operand of one node, kept in the layout its kernel asks for.
type Packed = plan.Packed

// MemoryReport sums up the memory of an engine in bytes, all known before the
// first run.
type MemoryReport = plan.MemoryReport

// TensorMemory is where one local tensor of one program lies and how long.
type TensorMemory = plan.TensorMemory

// Layout sums up which activations of a plan have another layout than the model's.
type Layout = layout.Summary

// Sharing says what an engine has in common with others.
type Sharing = weights.Sharing

// ErrNotFolded is wrapped by the error of [Folder.Fold] where an operator is
// better left to the executable: it would take too long, give too much, or
// nothing says what it takes.
var ErrNotFolded = eval.ErrNotFolded

// Folder computes operators on constants while a model is compiled, within
// bounds and until its context is done.
type Folder = eval.Folder

// NewFolder returns a Folder whose results count on the budget of ctx, with a limit of
// memory bytes, 0 for what that budget has (see the engine option "memory"), and which stops
// when ctx is done.
func NewFolder(ctx context.Context, memory int64) *Folder { return eval.NewFolder(ctx, memory) }

// Eval computes one operator: in are the types of its operands, of which a
// left-out one has the zero type, and data their elements, row-major and
// little-endian. It returns the types and elements of all results. It is
// meant for computing single operators; a [Folder] has bounds besides, and an
// engine plans whole graphs.
func Eval(op graph.Op, in []graph.TensorType, data [][]byte) (out []graph.TensorType, outData [][]byte, err error) {
	return eval.Op(op, in, data)
}
