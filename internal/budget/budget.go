// Package budget bounds the memory that files from strangers can make this
// process allocate. Whoever reads a length, a shape or a count from a file asks
// a [Budget] for the bytes first and allocates afterwards, so that what does
// not fit is refused with a message instead of ending the process.
//
// The rooms that read files and plan models share this package, not one
// variable: a reader of files, the lowering of a model and an engine each have a
// Budget, and whoever calls several in turn gives the next one what the last has
// left.
package budget

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
)

// ErrExceeded is wrapped by every refusal of a [Budget].
var ErrExceeded = errors.New("more memory than allowed")

// Error says what did not fit into a budget.
type Error struct {
	What              string // what wanted the memory
	Need, Used, Limit int64  // bytes: wanted now, taken before, allowed in all
}

// Error names what wanted the memory, how much, the limit and what to do.
func (e *Error) Error() string {
	used := ""
	if e.Used > 0 {
		used = fmt.Sprintf(" beside the %s in use", Text(e.Used))
	}
	return fmt.Sprintf("%s: it needs %s%s, more than the limit of %s; %s", e.What, Text(e.Need), used, Text(e.Limit), Advice)
}

// Unwrap returns [ErrExceeded].
func (e *Error) Unwrap() error { return ErrExceeded }

// Advice says how the limit is raised.
const Advice = `if the file is to be trusted, raise the limit: --memory SIZE, or the engine option "memory"`

// Budget counts bytes against a limit. Its methods may be called from several
// goroutines. The zero value allows nothing: see [New].
type Budget struct {
	limit int64
	used  atomic.Int64
}

// New returns a budget of limit bytes; 0 or less stands for [Default].
func New(limit int64) *Budget {
	if limit <= 0 {
		limit = Default()
	}
	return &Budget{limit: limit}
}

// Take counts n bytes that what is about to allocate. If they do not fit, it
// counts nothing and returns an [*Error].
func (b *Budget) Take(n int64, what string, args ...any) error {
	if n < 0 {
		n = math.MaxInt64
	}
	for {
		used := b.used.Load()
		if n > b.limit-used {
			if len(args) > 0 {
				what = fmt.Sprintf(what, args...)
			}
			return &Error{what, n, used, b.limit}
		}
		if b.used.CompareAndSwap(used, used+n) {
			return nil
		}
	}
}

// Give takes n bytes off the count, which nothing holds any more.
func (b *Budget) Give(n int64) { b.used.Add(-n) }

// Used returns the bytes that have been taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit returns the bytes that may be taken in all.
func (b *Budget) Limit() int64 { return b.limit }

// Left returns the bytes that may still be taken, at least 1: the limit of
// whoever comes next, which 0 would leave open.
func (b *Budget) Left() int64 { return max(1, b.limit-b.used.Load()) }

// Mul multiplies sizes that are not negative; what does not fit 63 bits gives
// the greatest number, which no budget holds.
func Mul(factors ...int64) int64 {
	n := int64(1)
	for _, f := range factors {
		if f < 0 {
			return math.MaxInt64
		}
		if f == 0 {
			return 0
		}
	}
	for _, f := range factors {
		if n > math.MaxInt64/f {
			return math.MaxInt64
		}
		n *= f
	}
	return n
}

// Add adds sizes that are not negative, as [Mul] multiplies them.
func Add(terms ...int64) int64 {
	n := int64(0)
	for _, t := range terms {
		if t < 0 || n > math.MaxInt64-t {
			return math.MaxInt64
		}
		n += t
	}
	return n
}

// units are what sizes are written in, the greatest first.
var units = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// Text returns a number of bytes for people, such as "1.5 GiB".
func Text(n int64) string {
	if n == math.MaxInt64 {
		return "more than 8 EiB"
	}
	for _, u := range units {
		if n >= u.size {
			return strings.TrimSuffix(strconv.FormatFloat(float64(n)/float64(u.size), 'f', 1, 64), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", n)
}

// Parse returns the bytes of a size as people write it: "536870912", "512MiB",
// "512M", "1.5 GiB" (powers of 1024), "2GB" (powers of 1000).
func Parse(s string) (int64, error) {
	text := strings.TrimSpace(s)
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(text)
	}
	factor := int64(1)
	switch unit := strings.ToUpper(strings.TrimSpace(text[end:])); unit {
	case "", "B":
	case "K", "KIB":
		factor = 1 << 10
	case "M", "MIB":
		factor = 1 << 20
	case "G", "GIB":
		factor = 1 << 30
	case "T", "TIB":
		factor = 1 << 40
	case "KB":
		factor = 1e3
	case "MB":
		factor = 1e6
	case "GB":
		factor = 1e9
	case "TB":
		factor = 1e12
	default:
		return 0, fmt.Errorf("size %q: the unit %q is unknown, want none (bytes), KiB, MiB, GiB or TiB", s, text[end:])
	}
	n, err := strconv.ParseFloat(text[:end], 64)
	if err != nil || n < 0 || n*float64(factor) >= math.MaxInt64/2 {
		return 0, fmt.Errorf("size %q: want a number of bytes, such as 536870912 or 512MiB", s)
	}
	return int64(n * float64(factor)), nil
}
