package cpu

import "github.com/popefgen/popefgen/ipu/graph"

// Estimates are in nanoseconds of one thread.
const (
	nodeTime    = 300  // of one more node
	convertTime = 0.2  // of an element that is moved to or from blocks
	edgeTime    = 0.1  // of an element that a convolution gathers from, or scatters to, rows
	elementTime = 0.05 // of an element that is computed or moved
	productTime = 0.013
	depthTime   = 0.03
)

// conversions estimates what it takes to convert a tensor of a group in blocks
// where other operators write or read it.
func (r *region) conversions(t graph.TensorID) (ns float64) {
	size := nodeTime + convertTime*float64(r.typ(t).Elements())
	def, here := r.def[t]
	made := here && r.at[def] != nil
	if !made {
		ns += size
	}
	if made && r.readPlanar(t) {
		ns += size
	}
	return ns
}

// readPlanar reports whether something reads a tensor otherwise than in blocks.
func (r *region) readPlanar(t graph.TensorID) bool {
	if r.outside[t] {
		return true
	}
	for _, n := range r.uses[t] {
		u := r.at[n]
		if u == nil {
			return true
		}
		for i, in := range u.in {
			if in != t {
				continue
			}
			if u.conv != nil && i != 0 && i != 3 {
				return true
			}
		}
	}
	return false
}

// unitCost estimates a unit with its operand x and its result in blocks or
// not.
func (r *region) unitCost(u *unit, in, out bool) (ns float64) {
	x, y := r.typ(u.in[0]), r.typ(u.out)
	full := func(c int64) float64 { return float64((c+r.lanes-1)/r.lanes*r.lanes) / float64(c) }
	if u.conv == nil {
		ns = elementTime * float64(x.Elements()+y.Elements())
		if out {
			ns *= full(y.Shape[1])
		}
		return ns
	}
	w := r.typ(u.in[1])
	products := float64(y.Elements()) * float64(w.Elements()/w.Shape[0])
	if u.conv.Group > 1 {
		ns = depthTime * products
		if in && out {
			ns *= full(y.Shape[1]) / 2
		}
	} else {
		ns = productTime * products
		if out {
			ns *= full(y.Shape[1])
		}
	}
	if !in {
		ns += edgeTime * float64(x.Elements())
	}
	if !out {
		ns += edgeTime * float64(y.Elements())
	}
	if len(u.nodes) > 1 && !in && !out {
		ns += nodeTime + 2*elementTime*float64(y.Elements())
	}
	return ns
}
