// Package family says which main programs of a model compute the same with tensors
// of other sizes, and which sizes of outputs are decided by data. [Of] reads that from
// the opaque blob [BlobName], or finds it in the metadata of a file that other tools wrote;
// what it returns fits the file's anchors. [BranchesOf] says which main programs are models of their own
// in one file.
package family

import (
	"errors"
	"slices"

	"github.com/popefgen/popefgen/popef"
)

// BlobName is the name of the opaque blob that describes a family, as JSON.
const BlobName = "popefgen.family"

// ErrFamily marks every error by which [Of] refuses a blob, and [Family.CheckExecutable] an
// executable: the file claims a family that it does not hold.
var ErrFamily = errors.New("the file does not hold the family that it claims")

// Family is a model with several main programs, one for each of its members, that differ in
// sizes alone. A model of one size whose outputs have counts is a family of one member without
// open dimensions.
type Family struct {
	Dims    []Dim    // open dimensions, in the order in which callers give them
	Members []Member // a member stands before all that it fits into
	Tensors []Tensor // run inputs and then run outputs, in the order of the first member's anchors
}

// Dim is a dimension whose size the caller chooses.
type Dim struct {
	Name string
	// Rows says that rows along the dimension do not depend on each other, as was proven when
	// the model was compiled: a smaller size may be computed by a larger member.
	Rows bool
	// Pads are declared: inputs filled up with these values give the same results, for the rows
	// that the caller gave.
	Pads []Pad
}

// Pad is what an input is filled up with along a dimension.
type Pad struct {
	Input string // its name
	Value string // a number, as written in Go
}

// Padded reports whether a member may compute what is smaller than itself along d.
func (d *Dim) Padded() bool { return d.Rows || len(d.Pads) > 0 }

// Member is one size of a family.
type Member struct {
	Program uint32
	Sizes   []int64 // by dimension
	Cost    float64 // estimated operations of a run; 0 if nobody knows
}

// Fits reports whether sizes are those of m or smaller.
func (m *Member) Fits(sizes []int64) bool {
	for i, n := range sizes {
		if n > m.Sizes[i] {
			return false
		}
	}
	return true
}

// Tensor is a run input or run output of every member.
type Tensor struct {
	Name    string
	Type    popef.TensorType // Input or Output
	Elem    popef.DataType
	Axes    []Axis
	Anchors []int // by member: its index in the metadata's anchors
}

// Open reports whether the tensor has a size that is not the same in each request.
func (t *Tensor) Open() bool {
	return slices.ContainsFunc(t.Axes, func(a Axis) bool { return a.Sizes != nil || a.Count != "" })
}

// Axis is one axis of a tensor.
type Axis struct {
	Size  int64   // where it is the same in all members; Sizes is nil then
	Sizes []int64 // by member, where it is not
	// Dim is the open dimension that the size follows from: ⌊(Mul·n+Add)/Div⌋, where n is that of
	// the dimension. It is -1 for an axis of one size, and for one of which no such rule is known.
	Dim           int
	Mul, Add, Div int64
	// Count is the name of the run output, a single S64, that says how many elements along the axis
	// are filled, from the first on; Size or Sizes is the most there can be. It is "" for an axis
	// that is always full.
	Count string
}

// Same reports whether the size is that of the dimension itself.
func (a *Axis) Same() bool { return a.Dim >= 0 && a.Mul == 1 && a.Add == 0 && a.Div == 1 }

// Of returns the size of the axis in a member.
func (a *Axis) Of(member int) int64 {
	if a.Sizes != nil {
		return a.Sizes[member]
	}
	return a.Size
}

// At returns the size of the axis where the dimension that it follows from has n
// elements; of an axis that follows from none it returns Size.
func (a *Axis) At(n int64) int64 {
	if a.Dim < 0 {
		return a.Size
	}
	return floorDiv(a.Mul*n+a.Add, a.Div)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// Least returns the smallest size of dimension d that a larger member may compute: 1, or
// more where an axis that follows from the dimension would have less than nothing.
func (f *Family) Least(d int) int64 {
	least := int64(1)
	for i := range f.Tensors {
		for k := range f.Tensors[i].Axes {
			if a := &f.Tensors[i].Axes[k]; a.Dim == d {
				least = max(least, -floorDiv(a.Add, a.Mul))
			}
		}
	}
	return least
}

// Tensor returns the run input or output of that name, nil if there is none.
func (f *Family) Tensor(name string, typ popef.TensorType) *Tensor {
	i := slices.IndexFunc(f.Tensors, func(t Tensor) bool { return t.Name == name && t.Type == typ })
	if i < 0 {
		return nil
	}
	return &f.Tensors[i]
}

// Member returns the index of the member with exactly these sizes, -1 if there is none.
func (f *Family) Member(sizes []int64) int {
	return slices.IndexFunc(f.Members, func(m Member) bool { return slices.Equal(m.Sizes, sizes) })
}

// Program returns the index of the member that a program runs, -1 if there is none.
func (f *Family) Program(index uint32) int {
	return slices.IndexFunc(f.Members, func(m Member) bool { return m.Program == index })
}
