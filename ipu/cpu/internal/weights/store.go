package weights

import (
	"errors"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
)

// Version is a weight version: one state of the values of a weight set. Engines hold
// it until they get
// another, and only a single holder changes it.
type Version struct {
	sources []*byte // memory of the set's streams; nil if some stream lends none
	users   int     // engines that hold it or wait for it; guarded, like current, by Shared.weights
	current int     // of them, those whose streams have lent the same memory ever since

	filling bool          // a program is setting the values; guarded, like what follows, by Shared.weights
	filled  chan struct{} // for those who wait: closed when it has set all values, or failed to
	failure *Failure      // of that

	packed []byte
	packs  [][]byte   // parts of packed, by set.packs
	free   func()     // gives back packed
	values []RowMajor // by set.tensors
}

// Pack returns the memory of the set's packed operand i.
func (v *Version) Pack(i int) []byte { return v.packs[i] }

// Value returns the row-major value of the set's tensor i.
func (v *Version) Value(i int) *RowMajor { return &v.values[i] }

// Failed returns why the values could not be set, nil if they were. It is for those
// who waited until the version was filled.
func (v *Version) Failed() *Failure { return v.failure }

// RowMajor is a tensor's row-major value.
type RowMajor struct {
	Own  []byte // nil if it needed none
	Lent bool   // a stream's memory stands in for it
}

// Failure is why a program could not set the values.
type Failure struct {
	At  int // index into the program's code
	Err error
	// passing says that it had to do with who ran the program, so that
	// another may succeed.
	Passing bool
}

// held is the version of a set that an engine holds.
type held struct {
	version *Version
	current bool // counted in version.current
	// forgotten says that the engine was loaded since: what it holds are no
	// values before a program sets them again.
	forgotten bool
}

// ErrNotFinished is what waiters get from work that ended without a result.
var ErrNotFinished = errors.New("it was given up")

// newVersion allocates a version for one engine.
func (g *Set) newVersion(p *plan.Plan) *Version {
	v := &Version{users: 1, values: make([]RowMajor, len(g.Tensors)), packs: make([][]byte, len(g.Packs))}
	v.packed, v.free = align.Block(g.bytes, g.bytes)
	mem := v.packed
	for i, k := range g.Packs {
		n := p.Packed[k].Bytes
		v.packs[i] = mem[:n:n]
		mem = mem[align.Up(n):]
	}
	return v
}

// find returns the version of what these streams lend, nil if there is none.
func (g *Set) find(sources []*byte) *Version {
	for _, v := range g.versions {
		if slices.Equal(v.sources, sources) {
			return v
		}
	}
	return nil
}

// withdraw keeps further engines from joining a version.
func (g *Set) withdraw(v *Version) {
	g.versions = slices.DeleteFunc(g.versions, func(o *Version) bool { return o == v })
}

// outdate notes that the memory that h was made from is not lent any more.
func (g *Set) outdate(h *held) {
	if h.current {
		h.current = false
		if h.version.current--; h.version.current == 0 {
			g.withdraw(h.version)
		}
	}
}

// drop ends the use of a version.
func (g *Set) drop(h *held) {
	if h.version != nil {
		g.outdate(h)
		g.abandon(h.version)
		h.version = nil
	}
}

// abandon ends the use of a version that an engine has but waited for.
func (g *Set) abandon(v *Version) {
	if v.users--; v.users == 0 {
		g.withdraw(v)
		v.free()
	}
}

// take gives h another version, for which it was counted as a user.
func (g *Set) take(h *held, v *Version) {
	if h.version != v {
		g.drop(h)
	}
	h.version, h.forgotten = v, false
	if !h.current && v.sources != nil {
		h.current = true
		v.current++
	}
}

// Version returns the version of set i that the engine holds, nil if it holds none.
func (l *Lease) Version(i int) *Version { return l.held[i].version }

// Users returns how many engines compute with a version or wait for it.
func (l *Lease) Users(v *Version) int {
	l.Shared.weights.Lock()
	defer l.Shared.weights.Unlock()
	return v.users
}

// Waiting returns how many engines wait for versions of set i to be filled.
func (l *Lease) Waiting(i int) (n int) {
	l.Shared.weights.Lock()
	defer l.Shared.weights.Unlock()
	for _, v := range l.Shared.Sets[i].versions {
		if v.filled != nil {
			n += v.users - 1
		}
	}
	return n
}

// Claim finds the version of set i for an engine whose streams lend the memory
// sources, nil if some lend none, and whose program is about to set the values. If
// mine is true then the version is the engine's to fill, until [Lease.Finish]; one
// that is fresh has no values yet. If not then another engine fills it or has filled
// it, and the engine, which was added to its users, waits ([Lease.Filled]) and then
// calls adopt or release.
func (l *Lease) Claim(i int, sources []*byte) (v *Version, mine, fresh bool) {
	g, h := &l.Shared.Sets[i], &l.held[i]
	l.Shared.weights.Lock()
	defer l.Shared.weights.Unlock()
	if sources != nil {
		w := g.find(sources)
		// Who runs the program again without a reason wants it run: values of
		// its own are computed anew. After a load they are as good as others'.
		if w != nil && (w != h.version || h.forgotten && w.users > 1) {
			w.users++
			if w.filling && w.filled == nil {
				w.filled = make(chan struct{})
			}
			return w, false, false
		}
	}
	v, fresh = l.single(i)
	v.filling, v.filled, v.failure = true, nil, nil
	if sources == nil || !slices.Equal(sources, v.sources) {
		v.sources = slices.Clone(sources)
	}
	if sources != nil {
		if w := g.find(sources); w != nil {
			g.withdraw(w)
		}
		g.versions = append(g.versions, v)
	}
	g.take(h, v)
	return v, true, fresh
}

// single returns a version of set i that no other engine has and none can join: the
// one that the engine holds if possible, else a fresh one. The lock must be held.
func (l *Lease) single(i int) (v *Version, fresh bool) {
	g, h := &l.Shared.Sets[i], &l.held[i]
	if v := h.version; v != nil && v.users == 1 {
		g.outdate(h)
		g.withdraw(v)
		return v, false
	}
	v = g.newVersion(l.Shared.Plan)
	g.take(h, v)
	return v, true
}

// Filled returns what is closed once a version that was claimed is filled, or filling
// it has failed; nil if it was before anybody had to wait.
func (l *Lease) Filled(v *Version) <-chan struct{} {
	l.Shared.weights.Lock()
	defer l.Shared.weights.Unlock()
	return v.filled
}

// Adopt makes a filled version of set i, which the engine was counted as a user of
// by claim, the one that it holds.
func (l *Lease) Adopt(i int, v *Version) {
	l.Shared.weights.Lock()
	defer l.Shared.weights.Unlock()
	if l.held[i].version == v {
		v.users-- // it is counted already
	}
	l.Shared.Sets[i].take(&l.held[i], v)
}

// Release ends waiting for a version of set i.
func (l *Lease) Release(i int, v *Version) {
	l.Shared.weights.Lock()
	defer l.Shared.weights.Unlock()
	l.Shared.Sets[i].abandon(v)
}

// Alone makes the engine's version of set i one that no other engine has and none can
// join, for values that its streams do not decide.
func (l *Lease) Alone(i int) (v *Version, fresh bool) {
	l.Shared.weights.Lock()
	defer l.Shared.weights.Unlock()
	v, fresh = l.single(i)
	v.sources = nil
	return v, fresh
}

// Finish ends the filling of the engine's version of set i. Others may use it if f is
// nil, or get f, and the next to ask fills another.
func (l *Lease) Finish(i int, f *Failure) {
	v := l.held[i].version
	l.Shared.weights.Lock()
	defer l.Shared.weights.Unlock()
	if f != nil {
		v.failure, v.sources = f, nil
		l.Shared.Sets[i].outdate(&l.held[i])
		l.Shared.Sets[i].withdraw(v)
	}
	v.filling = false
	if v.filled != nil {
		close(v.filled)
		v.filled = nil
	}
}

// Outdate notes that the memory that the engine's values of set i were made from is not
// lent any more.
func (l *Lease) Outdate(i int) {
	l.Shared.weights.Lock()
	defer l.Shared.weights.Unlock()
	l.Shared.Sets[i].outdate(&l.held[i])
}

// Forget notes that the engine was loaded: what it holds are no values before a
// program sets them again.
func (l *Lease) Forget() {
	for i := range l.held {
		l.held[i].forgotten = true
	}
}

// Sharing says what an engine has in common with others.
type Sharing struct {
	// Engines is how many engines of the same executable with equal options
	// are open, this one included.
	Engines int
	// PackedBytes is the memory of the constants and weights that the engine
	// keeps in its kernels' own layouts, as far as programs have set them, and
	// SharedBytes the part of it that other engines compute with too.
	PackedBytes, SharedBytes int64
}

// Sharing returns what the engine has in common with others now.
func (l *Lease) Sharing() Sharing {
	m := l.Shared
	s := Sharing{Engines: m.engines()}
	m.packing.Lock()
	for _, b := range m.packs {
		s.PackedBytes += int64(len(b))
	}
	m.packing.Unlock()
	if s.Engines > 1 {
		s.SharedBytes = s.PackedBytes
	}
	m.weights.Lock()
	defer m.weights.Unlock()
	for i := range m.Sets {
		v := l.held[i].version
		if v == nil {
			continue
		}
		for _, b := range v.packs {
			s.PackedBytes += int64(len(b))
			if v.users > 1 {
				s.SharedBytes += int64(len(b))
			}
		}
	}
	return s
}
