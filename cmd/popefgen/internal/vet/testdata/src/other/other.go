// Package other has arrays of its own, which are nobody's business.
package other

type Table struct{ Data [64][1000]float32 }

func sum(t *Table) (n float32) {
	for _, row := range t.Data {
		n += row[0]
	}
	return n
}

func by(t Table) {}
