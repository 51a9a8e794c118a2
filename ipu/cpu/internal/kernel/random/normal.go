package random

import "math"

// A machine may join a product and a sum into one operation, which rounds once where two round twice.
// Every product in this file is therefore converted to its own type, which the language says is rounded before it is
// used: results are the same to the bit wherever float64 is IEEE's.

// pair returns two independent numbers of the normal distribution of mean 0 and deviation 1 made of two
// words, by the method of Box and Muller. Their error is less than half a unit in the last place of float32, rounding aside.
func pair(a, b uint32) (float64, float64) {
	r := math.Sqrt(float64(-2 * ln(a>>8+1)))
	sin, cos := turn(b >> 8)
	return float64(r * cos), float64(r * sin)
}

// ln returns the logarithm of m·2⁻²⁴, m from 1 to 2²⁴, with an error of less than 10⁻¹³: that of an odd
// power series in (f-1)/(f+1), f being m but for a power of 2.
func ln(m uint32) float64 {
	f, e := math.Frexp(float64(m)) // exact; f is from 1/2 to 1
	if f < math.Sqrt2/2 {
		f, e = 2*f, e-1
	}
	s := (f - 1) / (f + 1)
	z := float64(s * s)
	sum := 0.0
	for k := 19; k >= 1; k -= 2 {
		sum = float64(sum*z) + 1/float64(k)
	}
	return float64(float64(e-24)*math.Ln2) + float64(2*s*sum)
}

// turn returns sine and cosine of m·2⁻²⁴ turns, m less than 2²⁴, with an error of less than 10⁻¹³.
func turn(m uint32) (sin, cos float64) {
	octant := m >> 21
	rest := m & (1<<21 - 1)
	if octant%2 == 1 {
		rest = 1<<21 - rest // measured back from the next multiple of a quarter turn
	}
	x := float64(float64(rest) * (2 * math.Pi / (1 << 24))) // up to π/4
	z := float64(x * x)
	s, c := 0.0, 0.0
	for k := 15; k >= 1; k -= 2 { // Taylor's series, each term in terms of the one before it
		s = 1 - float64(float64(z*s)/float64((k+1)*(k+2)))
		c = 1 - float64(float64(z*c)/float64(k*(k+1)))
	}
	s = float64(s * x)
	// What x is measured from, and in which direction, decides which of the two is which.
	switch octant {
	case 0:
		return s, c
	case 1:
		return c, s
	case 2:
		return c, -s
	case 3:
		return s, -c
	case 4:
		return -s, -c
	case 5:
		return -c, -s
	case 6:
		return -c, s
	}
	return -s, c
}
