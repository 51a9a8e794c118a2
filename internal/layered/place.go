package layered

// place gives every row its coordinates, again and again: each box and bend
// is drawn to the mean of its neighbours, as far as the row has room.
func (s *state) place() {
	s.x = make([]float64, len(s.rank))
	for _, row := range s.rows {
		at := 0.0
		for i, b := range row {
			if i > 0 {
				at += s.apart(row[i-1], b)
			}
			s.x[b] = at
		}
		for _, b := range row {
			s.x[b] -= at / 2
		}
	}
	const rounds, straight = 40, 24
	for k := range rounds {
		both := k >= rounds-straight
		if both {
			s.straighten()
		}
		for _, row := range s.rows {
			s.pull(row, true, both)
		}
		for i := range s.rows {
			s.pull(s.rows[len(s.rows)-1-i], both, true)
		}
	}
}

// straighten gives the bends of every box's edges the same aim.
func (s *state) straighten() {
	n := len(s.g.Widths)
	sum, count := make([]float64, n), make([]float64, n)
	for b := n; b < len(s.rank); b++ {
		sum[s.source[b-n]] += s.x[b]
		count[s.source[b-n]]++
	}
	s.aim = make([]float64, len(s.rank)-n)
	for i, from := range s.source {
		s.aim[i] = sum[from] / count[from]
	}
}

// apart is the least distance of two neighbours' centres.
func (s *state) apart(a, b int) float64 {
	gap := boxGap
	if s.isBend(a) || s.isBend(b) || s.width(a) == 0 || s.width(b) == 0 {
		gap = bendGap
	}
	return (s.width(a)+s.width(b))/2 + gap
}

// pull moves a row's boxes to where the sum of the squares of their distances
// from the means of their neighbours is least. With the least distances taken
// off, that is a regression on ascending values, which pooling neighbours
// that are out of order solves exactly.
func (s *state) pull(row []int, up, down bool) {
	type pool struct {
		mean, weight float64
		n            int
	}
	pools := make([]pool, 0, len(row))
	offset := 0.0
	offsets := make([]float64, len(row))
	for i, b := range row {
		if i > 0 {
			offset += s.apart(row[i-1], b)
		}
		offsets[i] = offset
		want, weight := s.wish(b, up, down)
		p := pool{want - offset, weight, 1}
		for len(pools) > 0 && pools[len(pools)-1].mean > p.mean {
			q := pools[len(pools)-1]
			pools = pools[:len(pools)-1]
			p.mean = (q.mean*q.weight + p.mean*p.weight) / (q.weight + p.weight)
			p.weight += q.weight
			p.n += q.n
		}
		pools = append(pools, p)
	}
	i := 0
	for _, p := range pools {
		for range p.n {
			s.x[row[i]] = p.mean + offsets[i]
			i++
		}
	}
}

// wish is where a box or bend would stand if it were alone in its row, and how
// much that matters. Long edges want to be straight most of all.
func (s *state) wish(b int, up, down bool) (x, weight float64) {
	for _, side := range []struct {
		on   bool
		list []int
	}{{up, s.up[b]}, {down, s.down[b]}} {
		if !side.on {
			continue
		}
		for _, o := range side.list {
			w := 1.0
			switch {
			case s.isBend(b) && s.isBend(o):
				w = 8
			case s.isBend(b) || s.isBend(o):
				w = 2
			}
			x += w * (s.x[o] + s.shift[[2]int{o, b}])
			weight += w
		}
	}
	if s.isBend(b) && s.aim != nil {
		const stiff = 60
		x += stiff * s.aim[b-len(s.g.Widths)]
		weight += stiff
	}
	if weight == 0 {
		return s.x[b], 0.1
	}
	return x / weight, weight
}
