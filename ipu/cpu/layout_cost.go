package cpu

import "github.com/popefgen/popefgen/ipu/graph"

// Estimates are nanoseconds of one thread with AVX-512 at some 2.8 GHz, as
// kernels alone were measured; only their ratios matter.
const (
	nodeTime    = 200  // of one more node
	convertTime = 0.2  // of an element that is moved to or from blocks, by a node or by a convolution
	elementTime = 0.06 // of an element that is read and computed or moved
	poolTime    = 0.13 // of an element that is pooled
	poolBlocks  = 0.75 // of that, in blocks
	meanTime    = 0.1  // of an element that is reduced; in blocks it takes meanBlocks more
	meanBlocks  = 0.2
	resizeTime  = 2   // of an element of a resized tensor's operand
	resizeGain  = 0.5 // of that, in blocks
	halfTime    = 0.3 // of an element of half precision that a convolution reads or writes
	planesTime  = 1.5 // of an element of a convolution in blocks that goes through planes

	// Of a product: in blocks, in blocks where there are so few channels that
	// a tile is one block wide, and in rows for windows of one element and of
	// several.
	blockProduct  = 0.0121
	narrowProduct = 0.016
	pointProduct  = 0.0146
	rowProduct    = 0.0127
	shortProduct  = 2 // times as long in blocks for windows of several elements, where rows are shorter than shortRow
	shortRow      = 4
	// Of a product of a single channel, in blocks and in rows, which are as
	// long as vectors at best; strides cost extra.
	depthBlock  = 0.034
	depthRow    = 0.05
	depthStride = 2.2
)

// The same of bytes, with VNNI: of a product of channels, in planes and in
// pixels, of which a vector holds pixelMaps output channels, whether there are
// so many or not; of a product of a single channel; and of a byte that is
// converted.
const (
	bytesProduct      = 0.0066
	pixelsProduct     = 0.0054
	bytesDepth        = 0.11
	pixelsDepth       = 0.045
	pixelsConvertTime = 0.05
	pixelMaps         = 16
)

// decidePixels reports whether a convolution of bytes takes and gives pixels. It
// is a variable for the tests, in which any may.
var decidePixels = (*pixels).pay

// pay estimates whether a convolution of x with w to y takes less time on pixels
// than on planes, where x is converted either way if it is not there already.
// Whatever reads y may be on pixels too, so that its conversion does not count.
func (p *pixels) pay(op *graph.IntegerConv, x, w, y graph.TensorID) bool {
	maps := p.typ(y).Shape[1]
	filled := float64((maps+pixelMaps-1)/pixelMaps*pixelMaps) / float64(maps)
	products := float64(p.typ(y).Elements()) * float64(p.typ(w).Elements()/p.typ(w).Shape[0])
	planes, pixels := bytesProduct*products, pixelsProduct*products*filled
	if op.Group > 1 {
		planes, pixels = bytesDepth*products, pixelsDepth*products*filled
	}
	convert := pixelsConvertTime * float64(p.typ(x).Elements())
	if p.have(x) {
		planes += convert
	} else {
		pixels += convert
	}
	return pixels < planes
}

// conversions estimates what it takes to convert a tensor of a group in blocks
// where other operators write or read it.
func (r *region) conversions(t graph.TensorID) (ns float64) {
	def, here := r.def[t]
	if made := here && r.at[def] != nil; made && !r.readPlanar(t) {
		return 0
	}
	return nodeTime + convertTime*float64(r.typ(t).Elements())*r.filled(r.typ(t))
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

// unitCost estimates a unit whose first operand and whose result are in blocks
// or not.
func (r *region) unitCost(u *unit, in, out bool) (ns float64) {
	if u.conv != nil {
		return r.convolutionCost(u, in, out)
	}
	x, y := r.typ(u.in[0]), r.typ(u.out)
	read := float64(x.Elements())
	switch u.op.Kind() {
	case "Reduce":
		ns = meanTime * read
		if out {
			ns += meanBlocks * read
		}
	case "BlockedPool":
		ns = poolTime * read
		if out && !u.slow {
			ns *= poolBlocks
		}
	case "BlockedResize":
		ns = resizeTime * read
		if out {
			ns *= resizeGain
		}
	default:
		ns = elementTime * float64(y.Elements()) * float64(max(1, len(u.tied)))
	}
	if out {
		if u.slow {
			ns += convertTime * float64(x.Elements()+y.Elements())
		}
		ns *= r.filled(y)
		ns += nodeTime * float64(len(u.spread))
	}
	return ns
}

// convolutionCost is unitCost of a convolution.
func (r *region) convolutionCost(u *unit, in, out bool) (ns float64) {
	x, y, w := r.typ(u.in[0]), r.typ(u.out), r.typ(u.in[1])
	products := float64(y.Elements()) * float64(w.Elements()/w.Shape[0])
	planar := !in && !out
	if u.slow && !planar {
		return r.convolutionCost(u, false, false) + 4*nodeTime + planesTime*float64(x.Elements()+y.Elements())*r.filled(y)
	}
	strided := false
	for _, s := range u.conv.Strides {
		strided = strided || s > 1
	}
	switch {
	case u.conv.Group > 1 && planar:
		row := y.Shape[y.Rank()-1]
		ns = depthRow * products * float64((row+r.lanes-1)/r.lanes*r.lanes) / float64(row)
		if strided {
			ns *= depthStride
		}
	case u.conv.Group > 1:
		ns = depthBlock * products * r.filled(y)
		if strided {
			ns *= depthStride
		}
	case planar && positions(w.Shape) == 1:
		ns = pointProduct * products
	case planar:
		ns = rowProduct * products
	case y.Shape[1] <= r.lanes:
		ns = narrowProduct * products * r.filled(y)
	default:
		ns = blockProduct * products * r.filled(y)
	}
	if row := y.Shape[y.Rank()-1]; row < shortRow && u.conv.Group == 1 && !planar && positions(w.Shape) > 1 {
		ns *= shortProduct
	}
	// A few channels are gathered in no time.
	const few = 4
	if !planar && !in && x.Shape[1] > few {
		ns += convertTime * float64(x.Elements())
	}
	if !planar && !out {
		ns += convertTime * float64(y.Elements())
	}
	if u.conv.Half && !in {
		ns += halfTime * float64(x.Elements())
	}
	if u.conv.Half && !out {
		ns += halfTime * float64(y.Elements())
	}
	if planar && len(u.nodes) > 1 {
		ns += nodeTime + 2*elementTime*float64(y.Elements())
	}
	return ns
}
