// Package budget bounds the memory that files from strangers can make this
// process allocate. Whoever reads a length, a shape or a count from a file asks
// a [Budget] for the bytes first and allocates afterwards, so that what does
// not fit is refused with a message instead of ending the process.
//
// A model has one Budget: what its file needs decompressed or copied, the messages
// of an ONNX file and what is computed from them, generated text, the tables of
// kernels and the memory of engines all count on it, and what has been given back
// does no more. It comes with the context ([Into], [From]) through the rooms that read, lower,
// plan and run a model; where no caller has put one, each job makes its own.
package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
)

// ErrExceeded is wrapped by every refusal of a [Budget].
var ErrExceeded = errors.New("more memory than allowed")

// Error is an allocation that did not fit into a budget.
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
	whole *Budget      // whose bytes the limit bounds; nil: this one's
	used  atomic.Int64 // bytes that it and its parts have taken
}

// New returns a budget of limit bytes; 0 or less stands for [Default].
func New(limit int64) *Budget {
	if limit <= 0 {
		limit = Default()
	}
	return &Budget{limit: limit}
}

// Part returns a budget that counts on b too, so that it can be given back at once
// ([Budget.Release]). Limit is the most that all may have taken when the part takes more: that of
// somebody who was given a limit of its own, greater or less; 0 or less stands for b's. A part of a
// part is one of the whole.
func (b *Budget) Part(limit int64) *Budget {
	if limit <= 0 {
		limit = b.limit
	}
	return &Budget{limit: limit, whole: b.Whole()}
}

// Whole returns the budget that b is a part of: b itself if it is none.
func (b *Budget) Whole() *Budget {
	if b.whole != nil {
		return b.whole
	}
	return b
}

// Take counts n bytes that what is about to allocate. If they do not fit, it
// counts nothing and returns an [*Error].
func (b *Budget) Take(n int64, what string, args ...any) error {
	if n < 0 {
		n = math.MaxInt64
	}
	for count := &b.Whole().used; ; {
		used := count.Load()
		if n > b.limit-used {
			if len(args) > 0 {
				what = fmt.Sprintf(what, args...)
			}
			return &Error{what, n, used, b.limit}
		}
		if count.CompareAndSwap(used, used+n) {
			if b.whole != nil {
				b.used.Add(n)
			}
			return nil
		}
	}
}

// Give returns n bytes, which nothing holds any more, to the budget.
func (b *Budget) Give(n int64) {
	b.used.Add(-n)
	if b.whole != nil {
		b.whole.used.Add(-n)
	}
}

// Release returns all that a part has taken. It may be called again.
func (b *Budget) Release() {
	n := b.used.Swap(0)
	if b.whole != nil {
		b.whole.used.Add(-n)
	}
}

// Used returns the bytes that b has taken, those of its parts included.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit returns the bytes that may be taken in all.
func (b *Budget) Limit() int64 { return b.limit }

// Left returns the bytes that may still be taken, at least 1: the limit of
// whoever comes next, which 0 would leave open.
func (b *Budget) Left() int64 { return max(1, b.limit-b.Whole().used.Load()) }

// key is the context's key of a Budget.
type key struct{}

// Into returns a context with a budget, on which all work for one model counts
// that is done with it.
func Into(ctx context.Context, b *Budget) context.Context { return context.WithValue(ctx, key{}, b) }

// From returns the budget of a context, which may be nil: a new one with the
// usual limit where there is none.
func From(ctx context.Context) *Budget {
	if ctx != nil {
		if b, ok := ctx.Value(key{}).(*Budget); ok {
			return b
		}
	}
	return New(0)
}

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
		return 0, fmt.Errorf("size %q: its unit is unknown, want none (bytes), KiB, MiB, GiB or TiB", s)
	}
	n, err := strconv.ParseFloat(text[:end], 64)
	if err != nil || n < 0 || n*float64(factor) >= math.MaxInt64/2 {
		return 0, fmt.Errorf("size %q: want a number of bytes, such as 536870912 or 512MiB", s)
	}
	return int64(n * float64(factor)), nil
}
