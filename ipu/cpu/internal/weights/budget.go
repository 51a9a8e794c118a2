package weights

import (
	"fmt"
	"sync"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/graph"
)

// shares are the budgets on which the engines of a shared executable count what they have in
// common: packed constants and one version of the weights. On each it is counted
// once, however many engines count on that one.
type shares struct {
	sync.Mutex
	of map[*budget.Budget]*share
}

// share is what a shared executable takes of one budget.
type share struct {
	room  *budget.Budget
	users int // engines
}

// leave ends the part of an engine, whose own budget room is, in what it shares.
func (s *shares) leave(room *budget.Budget) {
	s.Lock()
	defer s.Unlock()
	u := s.of[room.Whole()]
	if u.users--; u.users == 0 {
		u.room.Release()
		delete(s.of, room.Whole())
	}
}

// Charge counts the memory that an engine is about to allocate: arena, persistent
// tensors and packed weights; tables of kernels have been counted. What engines
// share is counted by the first on each budget. It returns why the engine may not
// be loaded if that does not fit, and then nothing more is counted than before.
func (l *Lease) Charge() error {
	p, s := l.Shared.Plan, &l.Shared.shares
	all, common := budget.Add(p.ArenaBytes, p.PersistentBytes, p.PackedBytes), l.Shared.Common()
	own := all - common
	s.Lock()
	defer s.Unlock()
	u := s.of[l.room.Whole()]
	if u == nil {
		u = &share{room: l.room.Part(l.room.Limit())}
	} else {
		common = 0
	}
	tables, used := l.room.Used(), l.room.Whole().Used()
	err := l.room.Take(own, "an engine")
	if err == nil {
		if err = u.room.Take(common, "weights"); err != nil {
			l.room.Give(own)
		}
	}
	if err != nil {
		return l.refusal(tables, budget.Add(own, common, tables), used-tables)
	}
	if u.users++; u.users == 1 {
		if s.of == nil {
			s.of = map[*budget.Budget]*share{}
		}
		s.of[l.room.Whole()] = u
	}
	l.pays = true
	return nil
}

// Common returns the bytes that all engines of a shared executable have together.
func (m *Shared) Common() (n int64) {
	for i := range m.Plan.Packed {
		if k := &m.Plan.Packed[i]; m.Exe.Tensors[k.Tensor].Const {
			n = budget.Add(n, align.Up(k.Bytes))
		}
	}
	grouped := map[graph.TensorID]bool{}
	for i := range m.Sets {
		n = budget.Add(n, m.Sets[i].bytes)
		for _, member := range m.Sets[i].Tensors {
			grouped[member.Tensor] = true
		}
	}
	for i := range m.Plan.Persistent {
		if p := &m.Plan.Persistent[i]; p.Stored && grouped[p.Tensor] {
			n = budget.Add(n, align.Up(p.Bytes))
		}
	}
	return n
}

// refused is why an engine does not fit into its budget.
type refused string

// Error implements error.
func (r refused) Error() string { return string(r) }

// Unwrap returns [budget.ErrExceeded].
func (r refused) Unwrap() error { return budget.ErrExceeded }

// refusal says why an engine may not be loaded that needs so many bytes, tables of
// its kernels among them, beside what others have taken.
func (l *Lease) refusal(tables, need, others int64) error {
	p := l.Shared.Plan
	what := fmt.Sprintf("%s for local tensors, %s for persistent ones, %s for packed weights, %s for tables of kernels",
		budget.Text(p.ArenaBytes), budget.Text(p.PersistentBytes), budget.Text(p.PackedBytes), budget.Text(tables))
	if most := p.Greatest(); most != "" {
		what += "; most of all " + most
	}
	if of := p.Largest(); of != "" {
		what += "; " + of
	}
	beside := ""
	if others > 0 {
		beside = fmt.Sprintf(" beside the %s that the model's files and other engines have taken", budget.Text(others))
	}
	return bind.TooMuch(refused(fmt.Sprintf("it needs %s (%s)%s, more than the limit of %s; %s",
		budget.Text(need), what, beside, budget.Text(l.room.Limit()), budget.Advice)))
}
