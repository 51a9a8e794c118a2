package wire

import (
	"math"
	"strconv"
)

// number is a number of JSON: m·10^exp, negative if neg says so. It is that exactly unless long says that m lacks
// digits.
type number struct {
	m         uint64
	exp       int
	end       int // after the number; -1-n: what stands n bytes after its begin is wrong
	neg, long bool
	whole     bool // it was written without fraction and exponent
}

// scanNumber reads the number at b[p]. A byte that no number has must follow in b.
func scanNumber(b []byte, p int) (n number) {
	from := p
	if b[p] == '-' {
		n.neg = true
		p++
	}
	first := p
	m := uint64(0)
	for ; ; p++ {
		c := b[p] - '0'
		if c > 9 {
			break
		}
		if m >= math.MaxUint64/10 {
			n.long = true
			n.exp++
			continue
		}
		m = m*10 + uint64(c)
	}
	if p == first || (b[first] == '0' && p > first+1) {
		n.end = from - p - 1
		if p > first {
			n.end = from - first - 2
		}
		return n
	}
	n.whole = true
	if b[p] == '.' {
		p++
		n.whole = false
		first = p
		for ; ; p++ {
			c := b[p] - '0'
			if c > 9 {
				break
			}
			if m >= math.MaxUint64/10 {
				n.long = n.long || c != 0
				continue
			}
			m = m*10 + uint64(c)
			n.exp--
		}
		if p == first {
			n.end = from - p - 1
			return n
		}
	}
	if b[p]|0x20 == 'e' {
		p++
		n.whole = false
		minus := b[p] == '-'
		if minus || b[p] == '+' {
			p++
		}
		first = p
		e := 0
		for ; ; p++ {
			c := b[p] - '0'
			if c > 9 {
				break
			}
			e = min(e*10+int(c), 1<<20)
		}
		if p == first {
			n.end = from - p - 1
			return n
		}
		if minus {
			e = -e
		}
		n.exp += e
	}
	n.m, n.end = m, p
	return n
}

// tens are the powers of ten that float64 has exactly.
var tens = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// float32 returns the nearest float32, which text is; false if that is infinite.
//
// Float64s m and m·10^exp are off by half of their last bit each at most. Rounded to float32 the result is off only
// if the boundary between two float32s lies within that: then the slow way decides.
func (n *number) float32(text []byte) (float32, bool) {
	if !n.long && n.exp >= -22 && n.exp <= 22 {
		f := float64(n.m)
		if n.exp < 0 {
			f /= tens[-n.exp]
		} else {
			f *= tens[n.exp]
		}
		const low, half, near = 1<<29 - 1, 1 << 28, 4
		off := int64(math.Float64bits(f)&low) - half
		if (off > near || off < -near) && f >= 0x1p-126 && f <= math.MaxFloat32 || n.m == 0 {
			if n.neg {
				f = -f
			}
			return float32(f), true
		}
	}
	f, err := strconv.ParseFloat(string(text), 32)
	return float32(f), err == nil
}

// float64 returns the nearest float64, which text is; false if that is infinite.
func (n *number) float64(text []byte) (float64, bool) {
	if !n.long && n.m < 1<<53 && n.exp >= -22 && n.exp <= 22 {
		f := float64(n.m)
		if n.exp < 0 {
			f /= tens[-n.exp]
		} else {
			f *= tens[n.exp]
		}
		if n.neg {
			f = -f
		}
		return f, true
	}
	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}
