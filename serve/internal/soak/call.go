package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

// Caller asks over one protocol, from one goroutine.
type Caller interface {
	Protocol() core.Protocol
	// Most is how many requests it makes at a time.
	Most() int
	// Ask makes requests to a model and returns the answers, in the order of the requests: as many as came, and why the others did not.
	Ask(ctx context.Context, model string, all []Request) ([]Answer, error)
	Close() error
}

// Request asks for the sums and differences of so many samples.
type Request struct {
	ID       string
	Samples  int
	A, B     []int32
	Timeout  time.Duration // the parameter, a multiple of a microsecond; 0: none
	Priority uint64        // the parameter, 0: none
	Text     bool          // in JSON, or as contents, rather than as bytes
}

// Answer is what a request got.
type Answer struct {
	ID              string // "" of errors that have none
	Sum, Difference []int32
	Err             *oip.Error // the server's, nil: it answered
}

// CodeOf returns the code of a text, for protocols whose errors are nothing else.
func CodeOf(text string) oip.Code {
	for _, known := range []struct {
		text string
		code oip.Code
	}{
		{"Exceeds maximum queue size", oip.Exhausted}, {"the time of the request", oip.Deadline}, {"was cancelled", oip.Canceled},
		{"the device of model", oip.Internal}, {"is closed", oip.Unavailable},
	} {
		if strings.Contains(text, known.text) {
			return known.code
		}
	}
	return oip.InvalidArgument // which no request of these callers gets
}

// number is of what callers ask for: no two numbers are the same for some billions.
var number atomic.Int32

// call makes requests until it is over, with one caller after the other.
func (s *Soak) call(of func() Caller, r *rand.Rand) {
	for !s.over.Load() {
		c := of()
		for n := 1 + r.IntN(200); n > 0 && !s.over.Load(); n-- {
			s.ask(c, r)
		}
		if err := c.Close(); err != nil {
			s.t.Errorf("close a caller: %v", err)
		}
	}
}

func (s *Soak) ask(c Caller, r *rand.Rand) {
	s.pause.RLock()
	defer s.pause.RUnlock()
	all := make([]Request, 1+r.IntN(c.Most()))
	for i := range all {
		all[i] = draw(r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	model, leaves, limited := []string{Shared, Exact}[r.IntN(2)], false, false
	if r.IntN(6) == 0 {
		model, leaves = Shared, true
		after := time.Duration(r.IntN(2000)) * time.Microsecond
		if limited = r.IntN(2) == 0; limited { // the transport knows how long it waits, and so may the server
			var end context.CancelFunc
			ctx, end = context.WithTimeout(ctx, after)
			defer end()
		} else {
			time.AfterFunc(after, cancel)
		}
	}
	answers, why := c.Ask(ctx, model, all)
	t := s.tallies[model]
	refused := false
	for i := range all {
		var err error
		switch {
		case i >= len(answers) && leaves:
			t.left[c.Protocol()].Add(1)
			s.left.Add(1)
		case i >= len(answers):
			err = fmt.Errorf("no answer: %w", why)
		case answers[i].Err == nil:
			err = all[i].check(&answers[i])
			t.ok[c.Protocol()].Add(1)
			t.batches[all[i].Samples].Add(1)
		default:
			err = all[i].excuse(answers[i].Err, limited)
			t.failed[c.Protocol()][answers[i].Err.Code].Add(1)
			refused = refused || answers[i].Err.Code == oip.Exhausted
		}
		if err != nil {
			s.t.Errorf("%v, request %d of %d to %s: %v", c.Protocol(), i+1, len(all), model, err)
		}
	}
	if refused {
		time.Sleep(time.Millisecond)
	}
}

// draw returns a request of numbers of its own.
func draw(r *rand.Rand) Request {
	n := (1 + r.IntN(testmodel.Samples)) * testmodel.Elements
	first := number.Add(int32(n)) * 2
	q := Request{ID: fmt.Sprint(first), Samples: n / testmodel.Elements, A: make([]int32, n), B: make([]int32, n), Priority: uint64(r.IntN(3)), Text: r.IntN(2) == 0}
	for i := range n {
		q.A[i], q.B[i] = first+int32(i), int32(r.IntN(1000))
	}
	if r.IntN(8) == 0 {
		q.Timeout = time.Duration(1+r.IntN(300)) * time.Microsecond
	}
	return q
}

// check returns why an answer is not that to the request, nil if it is.
func (q *Request) check(a *Answer) error {
	if a.ID != q.ID {
		return fmt.Errorf("the answer to request %s, expected that to %s", a.ID, q.ID)
	}
	sum, difference := make([]int32, len(q.A)), make([]int32, len(q.A))
	for i := range q.A {
		sum[i], difference[i] = q.A[i]+q.B[i], q.A[i]-q.B[i]
	}
	if !slices.Equal(sum, a.Sum) || !slices.Equal(difference, a.Difference) {
		return fmt.Errorf("request %s: found the sums %v and differences %v, expected %v and %v", q.ID, a.Sum, a.Difference, sum, difference)
	}
	return nil
}

// excuse returns nil for an error that the request may get, whose transport may have limited its time too, and an error for any other.
func (q *Request) excuse(e *oip.Error, limited bool) error {
	device := (e.Code == oip.Internal || e.Code == oip.Unavailable) && strings.Contains(e.Text, "device")
	if e.Code == oip.Exhausted || e.Code == oip.Deadline && (limited || q.Timeout > 0) || device {
		return nil
	}
	return fmt.Errorf("an error without a reason: %v: %w", e.Code, e)
}
