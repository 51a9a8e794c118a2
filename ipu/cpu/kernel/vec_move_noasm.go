//go:build !amd64

package kernel

func vectorTile[E unsigned](_, _ []E, _, _, _, _ int) (doneRows, doneCols int) { return 0, 0 }

func vectorDeal[E unsigned](_, _, _, _ []E) int { return 0 }

func vectorRuns([]byte, []byte, int, int, int, int) bool { return false }

func vectorDeal2[E unsigned]([]E, []E, []E, int, int, int, int) bool { return false }
