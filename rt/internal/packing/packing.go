// Package packing decides where sequences of different lengths lie in an input of
// rows of one length. It knows nothing of memory, time or callers.
package packing

import (
	"fmt"

	"github.com/popefgen/popefgen/rt"
)

// Place is where a sequence lies. Start and Gap count positions of all rows, one
// row behind the other.
type Place struct {
	Start int // of its first element: row · length + column
	N     int // elements
	Gap   int // positions before Start that separate it from the one before
}

// Layout is a pack that sequences are put into, one after the other.
type Layout struct {
	rows, length int
	most         int // entries
	separator    int
	algorithm    rt.PackAlgorithm

	used    []int // positions of each row that are taken; all of them in used[0] for end-to-end
	row     int   // of the last entry
	open    int   // rows before it have no room for anything
	entries int
}

// New returns an empty layout of that many rows. The policy was checked; at most that
// many entries go in, if its MaxEntries is 0 or more than that.
func New(rows, length, most int, p rt.PackPolicy) *Layout {
	l := &Layout{rows: rows, length: length, most: most, separator: p.Separator, algorithm: p.Algorithm}
	if p.MaxEntries > 0 {
		l.most = min(most, p.MaxEntries)
	}
	if l.algorithm == rt.PackEndToEnd {
		l.rows, l.length = 1, rows*length
	}
	l.used = make([]int, l.rows)
	return l
}

// Longest returns how long a sequence may be.
func (l *Layout) Longest() int { return l.length }

// Entries returns how many sequences are in.
func (l *Layout) Entries() int { return l.entries }

// Add puts a sequence of n elements in, and reports whether there is room for it. n
// is at least 1.
func (l *Layout) Add(n int) (Place, bool) {
	if l.entries == l.most {
		return Place{}, false
	}
	from := l.open
	if l.algorithm == rt.PackNextFit {
		from = l.row
	}
	for r := from; r < l.rows; r++ {
		gap := l.gap(r)
		if l.used[r]+gap+n > l.length {
			continue
		}
		p := Place{Start: r*l.length + l.used[r] + gap, N: n, Gap: gap}
		l.used[r] += gap + n
		l.row = r
		l.entries++
		for l.open < l.rows && l.used[l.open]+l.gap(l.open) >= l.length {
			l.open++
		}
		return p, true
	}
	return Place{}, false
}

// gap returns how many zeros stand before the next entry of a row.
func (l *Layout) gap(r int) int {
	if l.used[r] == 0 {
		return 0
	}
	return l.separator
}

// Full reports whether no sequence fits any more, however short it is.
func (l *Layout) Full() bool {
	last := l.algorithm == rt.PackNextFit && l.row == l.rows-1 && l.used[l.row]+l.gap(l.row) >= l.length
	return l.entries == l.most || l.open == l.rows || last
}

// Rest calls f for what follows the last entry of each row: its first position, and
// how many there are.
func (l *Layout) Rest(f func(start, n int)) {
	for r, used := range l.used {
		if used < l.length {
			f(r*l.length+used, l.length-used)
		}
	}
}

// Reset makes the layout empty.
func (l *Layout) Reset() {
	clear(l.used)
	l.row, l.open, l.entries = 0, 0, 0
}

// Plan returns where the first of these sequences lie that go into one run: all up
// to the one that does not fit. It fails with [rt.ErrSequence] if one of them could
// not go into any.
func Plan(lengths []int, rows, length int, p rt.PackPolicy) ([]Place, error) {
	l := New(rows, length, rows*length, p)
	for i, n := range lengths {
		if err := l.Check(n); err != nil {
			return nil, fmt.Errorf("sequence %d: %w", i, err)
		}
	}
	var places []Place
	for _, n := range lengths {
		place, ok := l.Add(n)
		if !ok {
			break
		}
		places = append(places, place)
	}
	return places, nil
}

// Check returns why a sequence of n elements goes into no run, if it does not.
func (l *Layout) Check(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("%w: it has no elements", rt.ErrSequence)
	case n > l.length && l.algorithm == rt.PackEndToEnd:
		return fmt.Errorf("%w: %d elements, and all rows together hold %d", rt.ErrSequence, n, l.length)
	case n > l.length:
		return fmt.Errorf("%w: %d elements, and a row holds %d", rt.ErrSequence, n, l.length)
	}
	return nil
}
