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
	} {
		l.write(a)
	}
}

// mix returns (1-z)·g + z·h.
func (a *asm) mix(z, g, h vec) vec { return a.fma(z, a.sub(h, g), g) }
