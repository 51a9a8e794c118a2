// Package gen compiles a PopEF model into the source of a Go package.
//
// It has three stages that know nothing of each other's work: [Build] decides
// everything and returns a [Plan], which is plain data; [Emit] turns a plan
// into files without deciding anything; [Write] and [Check] bring files to a
// directory, or tell how it differs. The same model and options give the same
// plan, and the same plan the same bytes, on every machine.
package gen

import (
	"github.com/popefgen/popefgen/gen/emit"
	"github.com/popefgen/popefgen/gen/plan"
	"github.com/popefgen/popefgen/popef"
)

// What the stages hand on.
type (
	// Options says how a package is to be generated.
	Options = plan.Options
	// PackOptions say how sequences of different lengths share a run.
	PackOptions = plan.PackOptions
	// StatePair is an output that is the input of the next request.
	StatePair = plan.StatePair
	// Plan holds every decision about a generated package.
	Plan = plan.Plan
	// Rename is a Go name for a tensor whose own says little.
	Rename = plan.Rename
	// File is one file of a generated package.
	File = emit.File
)

// DefaultQueueDepth is the queue depth where [Options.QueueDepth] is 0.
const DefaultQueueDepth = plan.DefaultQueueDepth

// ErrBuild marks every error by which [Build] refuses a model or its options.
var ErrBuild = plan.ErrBuild

// Build decides everything about the package of model m. It reads the
// model's metadata and never its executable or data. Every mistake in the
// options and every anchor that Go has no type for is reported in one error
// that wraps [ErrBuild].
func Build(m *popef.Model, opts Options) (*Plan, error) {
	return plan.Build(m, opts, emit.Declared())
}

// Emit renders a plan's Go files and its contract.txt, in the order of
// [Plan.Files]. The embedded model copy, which a plan only names, is not among
// them; see [ModelCopy].
func Emit(p *Plan) ([]File, error) { return emit.Emit(p) }

// Propose returns Go names for the tensors of m's package that are called after
// what an exporter numbered: X39, Softmax11Tmp0, Identity1_0. It is empty where
// all names are fine, and has at most 32. With all of
// them, or any, in Options.Renames, [Build] gives a package in which those
// tensors have these names. Errors are those of Build.
func Propose(m *popef.Model, opts Options) ([]Rename, error) {
	return plan.Propose(m, opts, emit.Declared())
}

// PackageName makes a package name from the base name of a model or a folder: the lower-case
// ASCII letters and digits of everything before the first extension. A name
// that could not be imported or would read as a keyword or a predeclared
// identifier gets "model" in front.
func PackageName(base string) string { return plan.PackageName(base, emit.Declared()) }
