package layout

import "github.com/popefgen/popefgen/ipu/graph"

// ShortRow is how many elements a row has at least for which a vector of outputs
// in NCHWc is worth its windows.
const ShortRow = 4

// nhwcMaps is how many output channels a vector of products of bytes holds.
const nhwcMaps = 16

// pay estimates whether a convolution of x with w to y takes less time on NHWC
// than on planes, where x is converted either way if it is not there already.
// Whatever reads y may be on NHWC too, so that its conversion does not count.
func (p *nhwcRegion) pay(op *graph.IntegerConv, x, w, y graph.TensorID) bool {
	maps := p.typ(y).Shape[1]
	filled := float64((maps+nhwcMaps-1)/nhwcMaps*nhwcMaps) / float64(maps)
	products := float64(p.typ(y).Elements()) * float64(p.typ(w).Elements()/p.typ(w).Shape[0])
	before, after := p.Costs.BytesProduct*products, p.Costs.PixelsProduct*products*filled
	if op.Group > 1 {
		before, after = p.Costs.BytesDepth*products, p.Costs.PixelsDepth*products*filled
	}
	convert := p.Costs.PixelsConvert * float64(p.typ(x).Elements())
	if p.have(x) {
		before += convert
	} else {
		after += convert
	}
	return after < before
}

// conversions estimates what it takes to convert a tensor of a group in NCHWc
// where other operators write or read it.
func (r *region) conversions(t graph.TensorID) (ns float64) {
	def, here := r.def[t]
	if made := here && r.at[def] != nil; made && !r.readPlanar(t) {
		return 0
	}
	return r.Costs.Node + r.Costs.Convert*float64(r.typ(t).Elements())*r.filled(r.typ(t))
}

// readPlanar reports whether something reads a tensor otherwise than in NCHWc.
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
			if in == t && u.conv != nil && i != 0 && i != 3 {
				return true
			}
		}
	}
	return false
}

// filled returns how many times the channels of a tensor its blocks hold.
func (r *region) filled(t graph.TensorType) float64 {
	c := t.Shape[1]
	return float64((c+r.lanes-1)/r.lanes*r.lanes) / float64(c)
}

// unitCost estimates a unit whose first operand and whose result are in NCHWc
// or not.
func (r *region) unitCost(u *unit, in, out bool) (ns float64) {
	if u.conv != nil {
		return r.convolutionCost(u, in, out)
	}
	x, y := r.typ(u.in[0]), r.typ(u.out)
	read := float64(x.Elements())
	switch u.op.Kind() {
	case "Reduce":
		ns = r.Costs.Mean * read
		if out {
			ns = r.Costs.MeanBlocks * read
		}
	case "NCHWcPool":
		ns = r.Costs.Element * read
	case "NCHWcResize":
		ns = r.Costs.Resize * read
		if out {
			ns = r.Costs.ResizeBlocks * read
		}
	default:
		ns = r.Costs.Element * float64(y.Elements()) * float64(max(1, len(u.tied)))
	}
	if out {
		if u.slow {
			ns += r.Costs.Convert * float64(x.Elements()+y.Elements())
		}
		ns *= r.filled(y)
		ns += r.Costs.Node * float64(len(u.spread))
	}
	return ns
}

// convolutionCost is unitCost of a convolution.
func (r *region) convolutionCost(u *unit, in, out bool) (ns float64) {
	x, y, w := r.typ(u.in[0]), r.typ(u.out), r.typ(u.in[1])
	products := float64(y.Elements()) * float64(w.Elements()/w.Shape[0])
	planar := !in && !out
	if u.slow && !planar {
		return r.convolutionCost(u, false, false) + r.Costs.Convert*float64(x.Elements()+y.Elements())*r.filled(y)
	}
	strided := false
	for _, s := range u.conv.Strides {
		strided = strided || s > 1
	}
	row := y.Shape[y.Rank()-1]
	switch {
	case u.conv.Group > 1 && planar:
		ns = r.Costs.Depth
		if strided {
			ns = r.Costs.DepthStrided
		}
		ns *= products * float64((row+r.lanes-1)/r.lanes*r.lanes) / float64(row)
	case u.conv.Group > 1:
		ns = r.Costs.BlockDepth
		if strided {
			ns = r.Costs.BlockDepthStrided
		}
		ns *= products * r.filled(y)
	case planar && positions(w.Shape) == 1:
		ns = r.Costs.PointProduct * products
	case planar:
		ns = r.Costs.Product * products
	case row < ShortRow && positions(w.Shape) > 1:
		ns = r.Costs.ShortProduct * products * r.filled(y)
	case y.Shape[1] <= r.lanes:
		ns = r.Costs.NarrowProduct * products * r.filled(y)
	default:
		ns = r.Costs.BlockProduct * products * r.filled(y)
	}
	// A few channels are gathered in no time.
	const few = 4
	if !planar && !in && x.Shape[1] > few {
		ns += r.Costs.Convert * float64(x.Elements())
	}
	if !planar && !out {
		ns += r.Costs.Convert * float64(y.Elements())
	}
	if u.conv.Half && !in {
		ns += r.Costs.Half * float64(x.Elements())
	}
	if u.conv.Half && !out {
		ns += r.Costs.Half * float64(y.Elements())
	}
	if planar && len(u.nodes) > 1 {
		ns += r.Costs.Node + 2*r.Costs.Element*float64(y.Elements())
	}
	return ns
}
