package rest

import (
	"strconv"
	"sync/atomic"
)

// Values of headers, which net/http reads until the answer is sent: nobody may change them.
var (
	typeJSON   = []string{"application/json"}
	typeBinary = []string{"application/octet-stream"}
	noSniff    = []string{"nosniff"}
)

// lengths are values of headers that are numbers. A server's answers have few sizes, so that most values are there already. Their number is a prime: sizes of tensors are
// multiples of powers of two.
type lengths [251]atomic.Pointer[length]

type length struct {
	n     int
	value []string
}

func (l *lengths) of(n int) []string {
	p := &l[n%len(l)]
	if v := p.Load(); v != nil && v.n == n {
		return v.value
	}
	v := &length{n, []string{strconv.Itoa(n)}}
	p.Store(v)
	return v.value
}
