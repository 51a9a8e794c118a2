//go:build !amd64

package vec

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// VectorTile reports false, having done nothing: there is no assembly for this processor.
func VectorTile[E tensor.Unsigned](_, _ []E, _, _, _, _ int) (doneRows, doneCols int) { return 0, 0 }

// VectorDeal reports false, having done nothing: there is no assembly for this processor.
func VectorDeal[E tensor.Unsigned](_, _, _, _ []E) int { return 0 }

// VectorRuns reports false, having done nothing: there is no assembly for this processor.
func VectorRuns([]byte, []byte, int, int, int, int) bool { return false }

// VectorDeal2 reports false, having done nothing: there is no assembly for this processor.
func VectorDeal2[E tensor.Unsigned]([]E, []E, []E, int, int, int, int) bool { return false }
