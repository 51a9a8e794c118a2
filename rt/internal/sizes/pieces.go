package sizes

import (
	"math"

	"github.com/popefgen/popefgen/popef/family"
)

// Pieces says by which members samples are computed in the least time. What members
// take is measured while they run; until then it follows from their estimated costs. It
// is not safe for concurrent use.
type Pieces struct {
	size   []int     // by member: samples
	cost   []float64 // by member: estimated
	took   []float64 // by member: measured, in ns; 0 if nobody knows
	runs   []int     // by member
	idle   []int     // by member: measurements of others since its last one
	first  []int32   // by number of samples: the member that begins
	tight  []int32   // the same where nothing may be padded; -1 if that can't be
	over   []int32   // by number of samples: by how many the last member pads
	total  []float64 // by number of samples
	sparse []float64 // the same where nothing may be padded
	solved []float64 // what members took when the tables were made
}

// NewPieces returns the pieces of a family whose only dimension counts samples.
func NewPieces(f *family.Family) *Pieces {
	p := &Pieces{}
	most := 0
	for i := range f.Members {
		n := int(f.Members[i].Sizes[0])
		c := f.Members[i].Cost
		if c <= 0 {
			c = float64(n)
		}
		p.size, p.cost = append(p.size, n), append(p.cost, c)
		most = max(most, n)
	}
	members, n := len(p.size), most+1
	numbers, tables := make([]float64, 2*members+2*n), make([]int32, 3*n)
	p.took, p.solved = numbers[:members], numbers[members:2*members]
	p.total, p.sparse = numbers[2*members:2*members+n], numbers[2*members+n:]
	p.first, p.tight, p.over = tables[:n], tables[n:2*n], tables[2*n:]
	p.runs, p.idle = make([]int, members), make([]int, members)
	p.solve()
	return p
}

// Most returns the samples of the largest member.
func (p *Pieces) Most() int { return len(p.first) - 1 }

// Size returns the samples of a member.
func (p *Pieces) Size(member int) int { return p.size[member] }

// First returns the member that computes the first of n samples. Those that it leaves
// are computed by the first of that number.
func (p *Pieces) First(n int) int { return int(p.first[n]) }

// Tight is First where nothing may be padded, -1 if that can't be.
func (p *Pieces) Tight(n int) int { return int(p.tight[n]) }

// Over returns by how many samples the last member pads, of those that compute n samples.
func (p *Pieces) Over(n int) int { return int(p.over[n]) }

// Due reports whether the next run of a member is one to measure: the first ones, and
// some of those that follow, since reading the clock takes time too.
func (p *Pieces) Due(member int) bool {
	p.runs[member]++
	return p.runs[member] <= 4 || p.runs[member]%16 == 0
}

// Took notes that a member ran for so many nanoseconds. The first of its runs that are due does not count, which
// finds nothing in the processor's caches. What a member took is forgotten once others were measured for long: one that was
// slow while the machine was busy is tried again.
func (p *Pieces) Took(member int, ns float64) {
	changed := false
	for m := range p.idle {
		if p.idle[m]++; p.idle[m] >= forgotten && p.took[m] > 0 && m != member {
			p.took[m], p.runs[m], changed = 0, 0, true
		}
	}
	p.idle[member] = 0
	was := p.took[member]
	switch {
	case p.runs[member] == 1:
		was = 0
	case was == 0:
		was = ns
	case ns < was:
		was += (ns - was) / 2 // somebody else had the processor before
	default:
		was += (min(ns, 4*was) - was) / 16
	}
	p.took[member] = was
	if changed || math.Abs(was-p.solved[member]) > 0.03*p.solved[member] {
		p.solve()
	}
}

// forgotten is after how many measurements of others what a member took is forgotten.
const forgotten = 512

// estimate returns what a member takes: what was measured, or at least in proportion to the
// member whose operations take the least time, so that it is tried.
func (p *Pieces) estimate(member int) float64 {
	if t := p.took[member]; t > 0 {
		return t
	}
	rate := math.Inf(1)
	for m, t := range p.took {
		if t > 0 {
			rate = min(rate, t/p.cost[m])
		}
	}
	if math.IsInf(rate, 1) {
		rate = 1
	}
	return p.cost[member] * rate
}

// solve makes the tables, from none to all samples.
func (p *Pieces) solve() {
	copy(p.solved, p.took)
	for n := 1; n < len(p.first); n++ {
		p.first[n], p.tight[n], p.over[n] = -1, -1, 0
		p.total[n], p.sparse[n] = math.Inf(1), math.Inf(1)
		for m, size := range p.size {
			if size == 0 {
				continue
			}
			rest, one := max(0, n-size), p.estimate(m)
			// Of two that take the same the larger one is better: it is one run less.
			if t := one + p.total[rest]; t < p.total[n] || t == p.total[n] && size <= n {
				p.total[n], p.first[n], p.over[n] = t, int32(m), p.over[rest]
				if size > n {
					p.over[n] = int32(size - n)
				}
			}
			if t := one + p.sparse[rest]; size <= n && (t < p.sparse[n] || t == p.sparse[n] && p.tight[n] >= 0) {
				p.sparse[n], p.tight[n] = t, int32(m)
			}
		}
	}
}
