package wire

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// maxFloat32 is how many bytes appendFloat32 writes to at most: a sign, "0.000000" and eight digits more.
const maxFloat32 = 32

// scale is what numbers of one binary exponent e are multiplied with, so that their decimal digits stand before the point: tens is the least power of ten for
// which tens·2^e is 1 or more.
type scale struct {
	tens uint64
	k    int // tens is 10^k
}

// leastExp is the least e of scales: with it ten whole units of 2^(1-e) still fit into 64 bits.
const leastExp = -59

// scales has the scale of e at -e.
var scales = func() (s [-leastExp + 1]scale) {
	tens, k := uint64(1), 0
	for e := range s {
		for tens < 1<<e {
			tens, k = tens*10, k+1
		}
		s[e] = scale{tens, k}
	}
	return s
}()

// appendFloat32 writes the shortest text that is f and no other float32, as appendFloat does; false if f is not finite.
//
// Numbers of networks are seldom larger than 2^24 or nearer to 0 than 2^-36. Those are m·2^e with m below 2^24 and e from -59 to 0, so that all of this is
// exact in integers. Others are for strconv, powers of two among them, whose lower neighbour is nearer than the upper one.
func appendFloat32(b []byte, f float32) ([]byte, bool) {
	word := math.Float32bits(f)
	e := int(word>>23&0xff) - 150
	m := word & (1<<23 - 1)
	if e < leastExp || e > 0 || m == 0 {
		switch {
		case e == 0xff-150:
			return b, false
		case word == 0:
			return append(b, '0'), true
		}
		return appendFloat(b, float64(f), 32), true
	}
	b = slices.Grow(b, maxFloat32)
	to := b[len(b) : len(b)+maxFloat32]
	n := int(word >> 31)
	to[0] = '-'
	digits, k := shortest(m|1<<23, e)
	return b[:len(b)+n+putDecimal(to[n:], digits, k)], true
}

// shortest returns the number of fewest decimal digits, and of those the nearest one, that is m·2^e and no other float32: digits·10^-k. m is above 2^23 and below
// 2^24; digits, with the zeros that it ends with, is from 2^23 to 1.7·10^8.
func shortest(m uint32, e int) (digits uint32, k int) {
	s := &scales[-e]
	// In units of 2^(e-1)/tens the number is 2m·tens, the boundaries to its neighbours lie tens below and tens above, and 1<<one is 10^-k. So the boundaries are 1
	// to 10 of 10^-k apart: the nearest multiple of that always lies between them, and at most one of ten times that.
	one := uint(1-e) & 63
	hi, lo := bits.Mul64(uint64(2*m), s.tens)
	digits = uint32(hi<<(64-one) | lo>>one)
	part := lo & (1<<one - 1)
	ten := digits / 10 * 10
	below := uint64(digits-ten)<<one | part
	above := 10<<one - below
	digits += uint32((part + 1<<(one-1) - 1 + uint64(digits&1)) >> one) // halves round to even numbers
	// No boundary is a multiple of ten times 10^-k itself: it is odd in units of 2^(e-1), which takes 1-e decimals.
	if below < s.tens {
		digits = ten
	}
	if above < s.tens {
		digits = ten + 10
	}
	return digits, s.k
}

// putDecimal writes digits·10^-k and returns how many bytes that took. digits is from 10^6 to 10^9, and what it says from 10^-11 to 10^8.
func putDecimal(to []byte, digits uint32, k int) int {
	for digits < 1e8 {
		digits, k = digits*10, k+1
	}
	first := digits / 1e8
	rest := eight(digits - first*1e8)
	n := 9 - bits.LeadingZeros64(rest)/8 // digits but for the zeros at the end
	rest |= 0x3030303030303030
	to = to[:maxFloat32-1]
	le := binary.LittleEndian
	switch whole := 9 - k; { // digits before the point
	case whole > 0:
		to[0] = byte('0' + first)
		le.PutUint64(to[1:], rest)
		if n <= whole {
			return whole
		}
		to[whole] = '.'
		le.PutUint64(to[whole+1:], rest>>(8*(whole-1)))
		return n + 1
	case whole > -6: // not below 0.000001
		le.PutUint64(to, 0x3030303030302e30)
		to[2-whole] = byte('0' + first)
		le.PutUint64(to[3-whole:], rest)
		return 2 - whole + n
	default:
		to[0], to[1] = byte('0'+first), '.'
		le.PutUint64(to[2:], rest)
		if n > 1 {
			n++
		}
		x := byte(1 - whole)
		to[n], to[n+1], to[n+2], to[n+3] = 'e', '-', '0'+x/10, '0'+x%10
		return n + 4
	}
}

// eight returns the eight digits of a number below 10^8, a byte each, the first one the lowest. It cuts into halves, of all parts at once: what divides multiplies by
// the inverse, which is exact for numbers so small.
func eight(v uint32) uint64 {
	x := uint64(v/1e4) | uint64(v%1e4)<<32
	q := x * 10486 >> 20 & 0x0000007f0000007f // / 100
	x = q | (x-100*q)<<16
	q = x * 103 >> 10 & 0x000f000f000f000f // / 10
	return q | (x-10*q)<<8
}

// appendFloat writes the shortest text that is that number and no other of the width.
func appendFloat(b []byte, f float64, width int) []byte {
	least := 1e-6
	if width == 32 {
		least = float64(float32(1e-6)) // which is below, and 0.000001 nevertheless
	}
	if abs := math.Abs(f); abs != 0 && (abs < least || abs >= 1e21) {
		return strconv.AppendFloat(b, f, 'e', -1, width)
	}
	return strconv.AppendFloat(b, f, 'f', -1, width)
}
