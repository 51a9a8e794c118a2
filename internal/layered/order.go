package layered

import (
	"cmp"
	"slices"
)

// sweeps over the rows, down and up in turns, that look for fewer crossings.
const sweeps = 24

// order orders the rows by the mean place of neighbours, in turns of those
// above and those below, and keeps the best of what it saw.
func (s *state) order() {
	best, fewest := s.snapshot(), s.crossings()
	mean := make([]float64, len(s.rank))
	for k := range sweeps {
		if fewest == 0 {
			break
		}
		for i := range s.rows {
			row, next := s.rows[i], s.up
			if k%2 == 1 {
				row, next = s.rows[len(s.rows)-1-i], s.down
			}
			if s.isFixed(row) {
				continue
			}
			for _, b := range row {
				mean[b] = float64(s.pos[b])
				if len(next[b]) > 0 {
					sum := 0
					for _, o := range next[b] {
						sum += s.pos[o]
					}
					mean[b] = float64(sum) / float64(len(next[b]))
				}
			}
			slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(mean[a], mean[b]) })
			for p, b := range row {
				s.pos[b] = p
			}
		}
		if c := s.crossings(); c < fewest {
			best, fewest = s.snapshot(), c
		}
	}
	s.rows = best
	for _, row := range s.rows {
		for p, b := range row {
			s.pos[b] = p
		}
	}
}

// isFixed reports whether the graph says how a row is ordered.
func (s *state) isFixed(row []int) bool {
	return slices.Contains(s.g.Top, row[0]) || slices.Contains(s.g.Bottom, row[0])
}

func (s *state) snapshot() [][]int {
	out := make([][]int, len(s.rows))
	for i, row := range s.rows {
		out[i] = slices.Clone(row)
	}
	return out
}

// crossings counts the pairs of edges that cross between rows: inversions,
// counted with a tree of partial sums (Barth, Jünger, Mutzel 2002).
func (s *state) crossings() int {
	total := 0
	for i, row := range s.rows[:len(s.rows)-1] {
		sums := make([]int, len(s.rows[i+1])+1)
		seen := 0
		for _, b := range row {
			ends := make([]int, 0, len(s.down[b]))
			for _, d := range s.down[b] {
				ends = append(ends, s.pos[d])
			}
			for _, p := range ends {
				upTo := 0
				for k := p + 1; k > 0; k -= k & -k {
					upTo += sums[k]
				}
				total += seen - upTo
			}
			for _, p := range ends {
				for k := p + 1; k < len(sums); k += k & -k {
					sums[k]++
				}
			}
			seen += len(ends)
		}
	}
	return total
}
