package vec

import "math"

// The functions of float32 below compute in float64, which costs a scalar
// loop nothing, and round once. Their own relative error stays below 3e-9, a
// twentieth of a float32's unit in the last place, so a result is off by at
// most 0.55 units. They take no branches that depend on the data, except to
// sort out special values. After its conversion to float64 an element isn't
// used again: else the compiler would convert into a register of its own,
// and x86's conversion waits for what that held before.

const (
	log2e = math.Log2E
	ln2   = math.Ln2

	// shifter, added to a float64 below 2^51 and subtracted again, rounds it
	// to an integer, which meanwhile stands in the sum's low bits.
	shifter = 0x1.8p52

	// expLimit bounds the arguments of expSplit: exp of it is far beyond what
	// float32 holds and well within float64.
	expLimit = 150
)

// ExpSplit returns p and s with exp(y) = s·(1+p), |p| below 0.42 and s a power
// of 2. It is Taylor's series after reducing y to |r| ≤ ln2/2; p keeps its
// relative precision down to the smallest y. The terms are grouped so that few
// have to wait for others. y must lie within ±expLimit or be NaN.
func ExpSplit(y float64) (p, s float64) {
	k := y*log2e + shifter
	r := y - (k-shifter)*ln2
	q := r * r
	p = r + q*(1./2+r*(1./6)+q*(1./24+r*(1./120))+q*q*(1./720+r*(1./5040)+q*(1./40320)))
	return p, math.Float64frombits((math.Float64bits(k) + 1023) << 52)
}

// Limit returns y limited to ±expLimit; NaN stays NaN.
func Limit(y float64) float64 {
	if y > -expLimit && y < expLimit {
		return y
	}
	return min(max(y, -expLimit), expLimit)
}

// ExpF32 sets dst to the exponentials of x, in plain Go.
func ExpF32(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		p, s := ExpSplit(Limit(float64(v)))
		dst[i] = float32(s + s*p)
	}
}

func sigmoidF32(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		p, s := ExpSplit(Limit(-float64(v)))
		dst[i] = float32(1 / (1 + s + s*p))
	}
}

// TanhF32 computes tanh x = e/(e+2) with e = exp(2x)-1.
func TanhF32(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		y := float64(v)
		p, s := ExpSplit(Limit(2 * y))
		e := s*p + (s - 1)
		dst[i] = float32(math.Copysign(e/(e+2), y))
	}
}

// atanhSeries returns the series of 2·atanh(t) for |t| ≤ 1/3, which is
// log((1+t)/(1-t)).
func atanhSeries(t float64) float64 {
	u := t * t
	v := u * u
	return 2 * t * (1 + u*(1./3) + v*(1./5+u*(1./7)) + v*v*(1./9+u*(1./11)+v*(1./13+u*(1./15)+v*(1./17))))
}

// logF32 splits x = m·2^k with m between √½ and √2, so that log x =
// k·ln2 + 2·atanh((m-1)/(m+1)).
func logF32(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		if !(v > 0 && v <= math.MaxFloat32) {
			dst[i] = float32(math.Log(float64(v)))
			continue
		}
		const half = 0x3fe6a09e667f3bcd // bits of √½
		b := math.Float64bits(float64(v)) - half
		k := int64(b) >> 52
		m := math.Float64frombits(b&(1<<52-1) + half)
		dst[i] = float32(float64(k)*ln2 + atanhSeries((m-1)/(m+1)))
	}
}

// softplusF32 computes log(1+exp(x)) = max(x,0) + log(1+e), e = exp(-|x|).
func softplusF32(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		y := float64(v)
		p, s := ExpSplit(Limit(-math.Abs(y)))
		e := s + s*p
		dst[i] = float32(max(y, 0) + atanhSeries(e/(2+e)))
	}
}

const (
	erfTop   = 4 // erf of it rounds to 1
	erfCells = 32
	erfTerms = 8
)

// erfTable holds, for each of 32 cells of width 1/8, Taylor's series of
// erf(x)/x around the middle of the cell. Divided by x the function does not
// vanish, so that its absolute precision is a relative one.
var erfTable = func() (t [erfCells][erfTerms]float64) {
	for cell := range t {
		c := (float64(cell) + 0.5) * erfTop / erfCells
		// w is the series of exp(-x²): its derivative is -2x times itself.
		var w, e [erfTerms]float64
		w[0] = math.Exp(-c * c)
		w[1] = -2 * c * w[0]
		for n := 1; n+1 < erfTerms; n++ {
			w[n+1] = -2 * (c*w[n] + w[n-1]) / float64(n+1)
		}
		// e is the series of erf, whose derivative is 2/√π·exp(-x²).
		e[0] = math.Erf(c)
		for n := 1; n < erfTerms; n++ {
			e[n] = 2 / math.SqrtPi * w[n-1] / float64(n)
		}
		// g is the series of erf(x)/x: erf = (c + (x-c))·g.
		g := &t[cell]
		g[0] = e[0] / c
		for n := 1; n < erfTerms; n++ {
			g[n] = (e[n] - g[n-1]) / c
		}
	}
	return t
}()

func erfF32(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		x := float64(v)
		y := math.Abs(x)
		if y >= erfTop {
			y = erfTop - 1./(1<<40)
		}
		cell := int(y * (erfCells / erfTop))
		t := &erfTable[cell&(erfCells-1)]
		d := y - (float64(cell)+0.5)*(erfTop/float64(erfCells))
		e := d * d
		g := t[0] + d*t[1] + e*(t[2]+d*t[3]) + e*e*(t[4]+d*t[5]+e*(t[6]+d*t[7]))
		dst[i] = float32(math.Copysign(y*g, x))
	}
}

// Sigmoid64 computes 1/(1+exp(-x)) without losing small results.
func Sigmoid64(x float64) float64 {
	if x < 0 {
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

// Softplus64 computes log(1+exp(x)).
func Softplus64(x float64) float64 {
	return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))
}
