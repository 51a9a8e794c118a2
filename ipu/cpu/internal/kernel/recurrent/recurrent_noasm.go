//go:build !amd64

package recurrent

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

func (t *recurrentTask[T]) vectorUnit(_, _, _, _ int, _, _, _ []T) bool { return false }

func vectorProducts[T tensor.Float](_ []T, _, _, _ int, _ gemm.Matrix[T], _ []T, _ int, _ []T) bool {
	return false
}

func (t *recurrentTask[T]) vectorGates(*groupProduct) bool { return false }

func vectorBackLstm[T tensor.Float](_, _, _, _, _, _, _, _ []T) bool { return false }
func vectorBackGru[T tensor.Float](_, _, _, _ []T) bool              { return false }
func vectorBackReset[T tensor.Float](_, _, _, _ []T) bool            { return false }
func vectorBackLinear[T tensor.Float](_, _, _ []T) bool              { return false }
func vectorBackTanh[T tensor.Float](_, _, _ []T) bool                { return false }
