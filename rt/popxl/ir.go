package popxl

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Ir is a model in the making: streams, variables, constants and the operators
// between them. Its zero value is not usable, see [New]. One goroutine at a time
// may use it.
type Ir struct {
	name    string
	b       *graph.Builder
	inputs  []export.Port
	outputs []export.Port
	weights []export.Weight // the variables
	states  []export.Weight // of optimizers: are loaded and saved as variables are
	fed     []export.Weight // numbers of optimizers that the host sets

	optimizers []optimizer
	detached   []graph.TensorID
	held       []graph.TensorID // what gradients read of the graphs before them

	calls      [3][]graph.GraphID // graphs that a run calls, by stage; nodes go to the last of the current stage
	stage      stage
	iterations int64
	copies     int              // replicas; 0 is 1
	micro      int64            // over how many micro-batches gradients are added up; 0 is 1
	exchanges  []exchange       // of replicas, in sessions
	stands     map[string]stand // for collectives, by name of node
	collects   bool             // there are collectives, also of one replica
	cleared    []graph.GraphID  // clear what micro-batches add to, before the first of them

	main   *frame                    // of the graphs that a run calls
	nest   []*frame                  // of those that are being made within them, innermost last
	owners map[graph.TensorID]*frame // of tensors of such graphs

	loaded       []loaded   // by input
	written      []declared // by output
	remote       []error    // a mistake for each remote variable
	sessionsOnly []error    // a mistake for each collective, if the Ir is exported
	prints       []printed
	unequal      bool // inputs may be loaded differently often

	names  map[string]bool // of streams and variables
	scopes []string
	taken  bool // Export has been called
	errs   []error
}

// stage is a part of a run. Stages follow each other, so that the first leaves variables as they are and can run by itself.
type stage int

const (
	forward  stage = iota
	backward       // from the first gradients on
	update         // from the first change of a variable on
)

// enter makes nodes go to a graph of a stage, or of a later one if that has begun.
func (ir *Ir) enter(s stage) {
	if s > ir.stage {
		ir.advance(s)
	}
}

// advance is enter with a graph that has no nodes yet.
func (ir *Ir) advance(s stage) {
	ir.stage = max(ir.stage, s)
	ir.begin()
}

// begin makes nodes go to a new graph of the current stage.
func (ir *Ir) begin() {
	name := ir.name
	if n := len(slices.Concat(ir.calls[:]...)); n > 0 {
		name = fmt.Sprintf("%s:%d", name, n)
	}
	ir.calls[ir.stage] = append(ir.calls[ir.stage], ir.b.BeginGraph(name))
}

// SetIterations makes a run compute the graph n times, each time with the next elements of every input and output: PopXL's
// num_host_transfers. n is at least 1, which it is without this call.
func (ir *Ir) SetIterations(n int64) {
	const call = "popxl.Ir.SetIterations"
	switch {
	case !ir.usable():
	case ir.taken:
		ir.fail(call, ErrTaken)
	case n < 1:
		ir.fail(call, fmt.Errorf("%d iterations, want at least 1", n))
	default:
		ir.iterations = n
	}
}

// New returns an empty Ir; name is for people.
func New(name string) *Ir {
	ir := &Ir{name: name, b: graph.NewBuilder(name), names: map[string]bool{}, stands: map[string]stand{}, owners: map[graph.TensorID]*frame{}, main: newFrame(-1, nil), iterations: 1}
	ir.b.SetProducer("popxl")
	ir.begin()
	return ir
}

// ErrTaken marks the errors of calls that would change an Ir that has been exported.
var ErrTaken = errors.New("the Ir has been exported and can't be changed")

// ErrNoIr is the error of calls whose Ir is nil, or was not made by [New].
var ErrNoIr = errors.New("no Ir: make one with popxl.New")

// Error is one mistake in the making of a model.
type Error struct {
	File string // of the call, outside of this package and ops
	Line int
	Call string // what was called, such as "ops.MatMul"
	Err  error
}

// Error returns the text, such as "net.go:14: ops.MatMul: …".
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d: %s: %v", filepath.Base(e.File), e.Line, e.Call, e.Err)
}

// Unwrap returns what was wrong.
func (e *Error) Unwrap() error { return e.Err }

// Err returns all mistakes so far, each an [*Error], joined in the order of the calls; nil if there are none.
func (ir *Ir) Err() error {
	if !ir.usable() {
		return ErrNoIr
	}
	return errors.Join(ir.errs...)
}

func (ir *Ir) usable() bool { return ir != nil && ir.b != nil }

// Scope calls build, and puts the name before those of the operators that it adds, as in "encoder/ops.MatMul":
// models show them to people. Scopes nest.
func (ir *Ir) Scope(name string, build func()) {
	if build == nil {
		ir.fail("popxl.Ir.Scope", errors.New("the function is nil"))
		return
	}
	if !ir.usable() {
		build()
		return
	}
	ir.scopes = append(ir.scopes, name)
	defer func() { ir.scopes = ir.scopes[:len(ir.scopes)-1] }()
	build()
}

// scoped returns a name within the scopes that are open.
func (ir *Ir) scoped(name string) string {
	if len(ir.scopes) == 0 {
		return name
	}
	return strings.Join(ir.scopes, "/") + "/" + name
}

// fail keeps a mistake together with the place of the call.
func (ir *Ir) fail(call string, err error) {
	if !ir.usable() {
		return
	}
	file, line := caller()
	ir.errs = append(ir.errs, &Error{file, line, call, err})
}

// claim reserves a name that callers will see.
func (ir *Ir) claim(call, name string) bool {
	switch {
	case ir.taken:
		ir.fail(call, ErrTaken)
	case name == "":
		ir.fail(call, errors.New("the name is empty"))
	case ir.names[name]:
		ir.fail(call, fmt.Errorf("there is a stream or variable %q already", name))
	default:
		ir.names[name] = true
		return true
	}
	return false
}

// deepest is how many callers are searched for one outside of this package.
const deepest = 16

// caller returns the file and line of the innermost call from outside of this package and those below it.
func caller() (string, int) {
	var pcs [deepest]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, own+".") && !strings.HasPrefix(f.Function, own+"/ops.") || !more {
			return f.File, f.Line
		}
	}
}

const own = "github.com/popefgen/popefgen/rt/popxl"
