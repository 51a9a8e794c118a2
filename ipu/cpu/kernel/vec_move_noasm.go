//go:build !amd64

package kernel

func vectorTile[E unsigned](_, _ []E, _, _, _, _ int) (doneRows, doneCols int) { return 0, 0 }

func vectorDeal[E unsigned](_, _, _, _ []E) int { return 0 }
