package genrt

import "iter"

// Rows returns an iterator over the indices of rows and pointers to them. A
// row is a view: nothing is copied or allocated, and what is written through it
// is in rows. A range over the array of a tensor with two variables copies
// every row instead.
//
//	for i, row := range rt.Rows(out.Y.Data[:]) {
func Rows[T any](rows []T) iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		for i := range rows {
			if !yield(i, &rows[i]) {
				return
			}
		}
	}
}
