package rt

import "errors"

// ErrSize: no member of the model's family computes tensors of the sizes that a
// request gave, or its tensors contradict each other. Nothing has run. The error is a [*SizeError],
// which names the field.
var ErrSize = errors.New("size that the model does not take")

// ErrSeveralSizes: a run is of one size, and nothing says which of the model's it is. Nothing has
// run. The error names the sizes with their programs. Generated packages choose one for each request;
// a [Session] runs one by [Session.RunPrograms], after [Session.Load], or is made for one with
// family.Family.Single; queues need a session for one.
var ErrSeveralSizes = errors.New("the model has several sizes, and a run is of one")

// SizeError says which size of a request the model does not take.
type SizeError struct {
	Model  string // the model's file; "" inside of an error that names it
	Field  string // what has the size, in Go's words: "Inputs.Tokens.Seq"
	Anchor string // name of the anchor
	Dim    string // name of the open dimension; "" if it is not about one
	Size   int    // what the field says
	Sizes  []int  // those that the dimension has, ascending; nil if it is not about one
	Reason string // what is wrong with the size, and what to do
}

// Error returns the likes of `bert.popef: Inputs.Tokens.Seq is 200: dimension
// "seq" of anchor "tokens" has the sizes 16, 32 and 128: ...`.
func (e *SizeError) Error() string {
	about := ""
	if e.Model != "" {
		about = e.Model + ": "
	}
	return about + e.Field + " " + e.Reason
}

// Is reports whether target is [ErrSize].
func (e *SizeError) Is(target error) bool { return target == ErrSize }
