// Package rows proves that the rows of a batch are independent of each other: that row
// i of every output of a program follows from row i of the inputs, from weights and
// constants alone, whatever the other rows hold. Only with independent rows may a batch be filled up
// with rows that nobody asked for, cut back, or be put together from several callers'
// rows. Where that can't be proven it names the node that mixes rows.
//
// The proof follows the rows through a program, operator by operator. For every tensor
// it knows where its rows are (layout), that it has none, or which node mixed them. An
// operator has a rule that says which axes of its operands become which axes of its
// results, element by element; rows in an axis that it computes along, or adds up over,
// are mixed. What has no rule is not proven.
package rows

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Reason says what is wrong with rows.
type Reason uint8

const (
	Mixes   Reason = iota + 1 // a row of a result follows from other rows too
	Keeps                     // something is kept from one run, or iteration, to the next
	Refuses                   // a row of zeros, as batches are filled up with, may end the run with an error
	Differs                   // a row's result follows from its place in the batch too
	Unknown                   // nothing is known of the operator
)

// String returns the reason in a word.
func (r Reason) String() string {
	switch r {
	case Mixes:
		return "mixes"
	case Keeps:
		return "keeps"
	case Refuses:
		return "refuses"
	case Differs:
		return "differs"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Finding is why the rows of a program are not proven independent. It is the error
// that [Independent] returns.
type Finding struct {
	Reason Reason
	Node   string // the name of the node at fault; empty where it is none, but a step or a tensor
	Kind   string // its operator
	Output string // the handle of the output that it reaches; empty where the run as a whole is concerned
	Why    string // a sentence without its end
}

// Error returns the finding in words.
func (f *Finding) Error() string {
	s := f.Why
	switch {
	case f.Node != "":
		s = fmt.Sprintf("node %q (%s): %s", f.Node, f.Kind, s)
	case f.Kind != "":
		s = fmt.Sprintf("a node (%s): %s", f.Kind, s)
	}
	if f.Output != "" {
		s += fmt.Sprintf("; output %q follows from it", f.Output)
	}
	return s
}

// Independent proves that the rows of a program are independent of each other. axes
// says by the handles of streams which axis of an input or output counts rows; its size
// is n, or a multiple of n where a row is several neighbours of the axis. A stream
// that is not listed has no rows: an input holds the same for all of them, and an
// output must not follow from any.
//
// It returns nil if all of this holds for any numbers in the other rows, NaN and
// infinities included: row i of an output follows from row i of the inputs, in the same
// way for every i, rows of zeros never end the run with an error, and nothing is kept
// from run to run. Otherwise the error is a [*Finding], the first there is. With one row
// there is nothing to mix, but something may be kept.
//
// e is to be verified, as what [encoding.Decode] and [graph.Builder] return is.
func Independent(e *graph.Executable, program int, n int64, axes map[string]int) error {
	fs, err := Findings(e, program, n, axes)
	if err == nil && len(fs) > 0 {
		err = fs[0]
	}
	return err
}

// Findings is [Independent] with all findings, one for each node at fault, in the order
// in which they reach outputs; there are none if the rows are independent. The error is about
// what was asked: there is no such program, or an axis does not fit its stream.
func Findings(e *graph.Executable, program int, n int64, axes map[string]int) ([]*Finding, error) {
	a := newAnalysis(unjoined(e), n, axes)
	if err := a.program(program); err != nil {
		return nil, err
	}
	return a.findings, nil
}
