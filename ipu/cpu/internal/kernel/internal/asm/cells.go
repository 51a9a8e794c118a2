package main

// writeCells writes what a step of a recurrent operator does with the sums of
// its gates.
func writeCells(a *asm) {
	for _, l := range []loop{
		// c = sigmoid(f)·c + sigmoid(i)·tanh(u), h = sigmoid(o)·tanh(c)
		{name: "lstmCell", outs: []string{"h", "c"}, slices: []string{"i", "o", "f", "u", "c"}, bodies: func(a *asm, x, _ []vec) []vec {
			c := a.mul(a.sigmoid(x[2]), x[4])
			in := a.sigmoid(x[0])
			c = a.fma(in, a.tanh(x[3]), c)
			return []vec{a.mul(a.sigmoid(x[1]), a.tanh(c)), c}
		}},
		// sigmoid(r)·x
		{name: "gated", slices: []string{"r", "x"}, body: func(a *asm, x, _ []vec) vec { return a.mul(a.sigmoid(x[0]), x[1]) }},
		{name: "gruCell", slices: []string{"z", "u", "h"}, body: func(a *asm, x, _ []vec) vec {
			return a.mix(a.sigmoid(x[0]), a.tanh(x[1]), x[2])
		}},
		{name: "gruLinearCell", slices: []string{"z", "r", "u", "p", "h"}, body: func(a *asm, x, _ []vec) vec {
			r := a.sigmoid(x[1])
			g := a.tanh(a.fma(r, x[3], x[2]))
			return a.mix(a.sigmoid(x[0]), g, x[4])
		}},
		// What follows goes back through time: gates become the gradients of their sums.
		{name: "lstmBack", outs: []string{"i", "o", "f", "u", "dc"}, slices: []string{"c", "dh", "dc", "i", "o", "f", "u", "b"}, bodies: func(a *asm, x, _ []vec) []vec {
			y := a.tanh(x[0])
			do := a.mul(x[1], y)
			dc := a.fma(a.mul(x[1], x[4]), a.rest(y), x[2])
			do = a.mul(do, a.slope(x[4]))
			di := a.mul(a.mul(dc, x[6]), a.slope(x[3]))
			df := a.mul(a.mul(dc, x[7]), a.slope(x[5]))
			du := a.mul(a.mul(dc, x[3]), a.rest(x[6]))
			return []vec{di, do, df, du, a.mul(dc, x[5])}
		}},
		{name: "gruBack", outs: []string{"z", "u", "dh"}, slices: []string{"z", "u", "dh", "h"}, bodies: func(a *asm, x, _ []vec) []vec {
			through := a.mul(x[2], x[0])
			du := a.mul(a.sub(x[2], through), a.rest(x[1]))
			dz := a.mul(a.mul(x[2], a.sub(x[3], x[1])), a.slope(x[0]))
			return []vec{dz, du, through}
		}},
		{name: "resetBack", outs: []string{"r", "dh"}, slices: []string{"r", "dh", "h", "d"}, bodies: func(a *asm, x, _ []vec) []vec {
			return []vec{a.mul(a.mul(x[3], x[2]), a.slope(x[0])), a.fma(x[3], x[0], x[1])}
		}},
		{name: "linearBack", outs: []string{"r", "q"}, slices: []string{"r", "q", "du"}, bodies: func(a *asm, x, _ []vec) []vec {
			return []vec{a.mul(a.mul(x[2], x[1]), a.slope(x[0])), a.mul(x[2], x[0])}
		}},
		{name: "tanhBack", outs: []string{"d"}, slices: []string{"y", "dy"}, bodies: func(a *asm, x, _ []vec) []vec {
			return []vec{a.mul(x[1], a.rest(x[0]))}
		}},
	} {
		l.write(a)
	}
}

// mix returns (1-z)·g + z·h.
func (a *asm) mix(z, g, h vec) vec { return a.fma(z, a.sub(h, g), g) }

// slope returns s·(1-s), the slope of the sigmoid where it is s.
func (a *asm) slope(s vec) vec { return a.sub(s, a.mul(s, s)) }

// rest returns 1-y², the slope of tanh where it is y.
func (a *asm) rest(y vec) vec { return a.sub(a.load(a.constant(1)), a.mul(y, y)) }
