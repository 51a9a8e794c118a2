package main

// writeRows writes the loops of what normalises rows.
func writeRows(a *asm) {
	x := []string{"x"}
	for _, l := range []loop{
		// exp(x-shift), and the sum of these
		{name: "expShift", slices: x, scalars: []string{"shift"}, sum: true, body: func(a *asm, x, s []vec) vec { return a.exp(a.sub(x[0], s[0])) }},
		{name: "expShiftSum", slices: x, scalars: []string{"shift"}, sum: true, noStore: true, body: func(a *asm, x, s []vec) vec {
			return a.exp(a.sub(x[0], s[0]))
		}},
		{name: "expDifference", slices: []string{"x", "y"}, body: func(a *asm, x, _ []vec) vec { return a.exp(a.sub(x[0], x[1])) }},
		{name: "scale", slices: x, scalars: []string{"factor"}, body: func(a *asm, x, s []vec) vec { return a.mul(x[0], s[0]) }},
		// (x-shift) - more
		{name: "lower", slices: x, scalars: []string{"shift", "more"}, body: func(a *asm, x, s []vec) vec { return a.sub(a.sub(x[0], s[0]), s[1]) }},
		// (x-mean)·factor·scale, with or without a bias
		{name: "normaliseScale", slices: []string{"x", "scale"}, scalars: []string{"mean", "factor"}, body: func(a *asm, x, s []vec) vec {
			return a.mul(a.mul(a.sub(x[0], s[0]), s[1]), x[1])
		}},
		{name: "normaliseScaleBias", slices: []string{"x", "scale", "bias"}, scalars: []string{"mean", "factor"}, body: func(a *asm, x, s []vec) vec {
			return a.fma(a.mul(a.sub(x[0], s[0]), s[1]), x[1], x[2])
		}},
	} {
		l.write(a)
	}
}
