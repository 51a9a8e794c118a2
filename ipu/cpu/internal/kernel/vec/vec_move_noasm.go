//go:build !amd64

package vec

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

func VectorTile[E tensor.Unsigned](_, _ []E, _, _, _, _ int) (doneRows, doneCols int) { return 0, 0 }

func VectorDeal[E tensor.Unsigned](_, _, _, _ []E) int { return 0 }

func VectorRuns([]byte, []byte, int, int, int, int) bool { return false }

func VectorDeal2[E tensor.Unsigned]([]E, []E, []E, int, int, int, int) bool { return false }
