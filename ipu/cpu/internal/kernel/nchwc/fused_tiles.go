package nchwc

import (
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// FusedTiles is fused tiles: operators on NCHWc that follow each other, computed by
// depth-first tiling: all operators compute a tile, which is some blocks of
// channels and some rows of them, before the next tile is begun. What they pass
// on then stays in the second-level cache, and takes up no other memory. For
// that, an operator reads, of what the one before computes, nothing but the
// channels that it computes itself; the first one alone may be a convolution of
// all channels.
//
// Like the other operators of this package, the engine alone makes it.
type FusedTiles struct {
	Members  []FusedMember
	Channels int64 // of every member's result
	Lanes    int64
	Blocks   int64 // of channels of a tile
	Rows     int64 // of the last result that a tile has; 0 if all
}

// FusedMember is an operator of a [FusedTiles].
type FusedMember struct {
	Op graph.Op
	// In says what its operands are: those of the FusedTiles by their number, left-out ones
	// as OperandNone, and the result of the member before as OperandPrevious.
	In []int
}

// What a FusedMember's operand may be besides one of the FusedTiles'.
const (
	OperandNone     = -1
	OperandPrevious = -2
)

// Kind returns "FusedTiles".
func (*FusedTiles) Kind() string { return "FusedTiles" }

// String returns the kinds of the members.
func (o *FusedTiles) String() string {
	kinds := make([]string, len(o.Members))
	for i, m := range o.Members {
		kinds[i] = m.Op.Kind()
	}
	return strings.Join(kinds, ", ")
}

// Infer implements [graph.Op].
func (o *FusedTiles) Infer(in []graph.TensorType) ([]graph.TensorType, error) {
	types, err := o.Types(in)
	if err != nil {
		return nil, err
	}
	last := types[len(types)-1]
	return last[len(last)-1:], nil
}

// Types returns the types of every member's operands and, last, its result.
func (o *FusedTiles) Types(in []graph.TensorType) ([][]graph.TensorType, error) {
	if len(o.Members) == 0 {
		return nil, fmt.Errorf("no operators")
	}
	all := make([][]graph.TensorType, len(o.Members))
	for m, member := range o.Members {
		types := make([]graph.TensorType, len(member.In), len(member.In)+1)
		for i, at := range member.In {
			switch {
			case at == OperandPrevious && m > 0:
				types[i] = all[m-1][len(all[m-1])-1]
			case at >= 0 && at < len(in):
				types[i] = in[at]
			case at != OperandNone:
				return nil, fmt.Errorf("operator %d, %s: operand %d is not there", m, member.Op.Kind(), i)
			}
		}
		out, err := member.Op.Infer(types)
		if err != nil {
			return nil, fmt.Errorf("operator %d, %s: %w", m, member.Op.Kind(), err)
		}
		all[m] = append(types, out[0])
	}
	return all, nil
}

// share is what of an operand a member reads to compute some channels.
type share uint8

const (
	shareWhole  share = iota // everything
	shareImage               // an image
	shareBlocks              // its blocks
	sharePlanes              // its channels, in planes
	shareMaps                // weights and biases of its channels
)

// shareOf returns what op reads of operand i of the given type; beyond the
// last operand what it writes.
func shareOf(op graph.Op, i, operands int, t graph.TensorType) share {
	result := i == operands
	switch op := op.(type) {
	case *Conv:
		switch {
		case i == 0 && op.Group == 1:
			return shareImage
		case !result && (i == 1 || i == 2):
			return shareMaps
		}
		return shareBlocks
	case *ToNCHWc:
		if !result {
			return sharePlanes
		}
		return shareBlocks
	case *FromNCHWc:
		if result {
			return sharePlanes
		}
		return shareBlocks
	}
	if t.Elements() == 1 {
		return shareWhole
	}
	return shareBlocks
}
