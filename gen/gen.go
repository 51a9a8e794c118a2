package gen

import "github.com/popefgen/popefgen/popef"

// Build decides everything about the package of model m. It reads the
// model's metadata and never its executable or data. Every mistake in the
// options and every anchor that Go has no type for is reported in one error
// that wraps [ErrBuild].
func Build(m *popef.Model, opts Options) (*Plan, error) {
	return buildPlan(m, opts, DeclaredNames())
}

// Propose returns Go names for the tensors of m's package that are called after
// what an exporter numbered: X39, Softmax11Tmp0, Identity1_0. It is empty where
// all names are fine, and has at most [MaxProposals]. With all of
// them, or any, in Options.Renames, [Build] gives a package in which those
// tensors have these names. Errors are those of Build.
func Propose(m *popef.Model, opts Options) ([]Rename, error) {
	return proposeNames(m, opts, DeclaredNames())
}

// PackageName makes a package name from the base name of a model or a folder: the lower-case
// ASCII letters and digits of everything before the first extension. A name
// that could not be imported or would read as a keyword or a predeclared
// identifier gets "model" in front.
func PackageName(base string) string { return packageName(base, DeclaredNames()) }
