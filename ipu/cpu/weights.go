package cpu

import (
	"errors"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
)

// version is one set of values of a weight set. Engines hold it until they get
// another, and only a single holder changes it.
type version struct {
	sources []*byte // memory of the set's streams; nil if some stream lends none
	users   int     // engines that hold it or wait for it; guarded, like current, by shared.weights
	current int     // of them, those whose streams have lent the same memory ever since

	filling bool          // a program is setting the values; guarded, like what follows, by shared.weights
	filled  chan struct{} // for those who wait: closed when it has set all values, or failed to
	failure *failure      // of that

	packed []byte
	packs  [][]byte   // parts of packed, by set.packs
	free   func()     // gives back packed
	values []rowMajor // by set.tensors
}

// pack returns the memory of the set's packed operand i.
func (v *version) pack(i int) []byte { return v.packs[i] }

// value returns the row-major value of the set's tensor i.
func (v *version) value(i int) *rowMajor { return &v.values[i] }

// failed returns why the values could not be set, nil if they were. It is for those
// who waited until the version was filled.
func (v *version) failed() *failure { return v.failure }

// rowMajor is a tensor's row-major value.
type rowMajor struct {
	own  []byte // nil if it needed none
	lent bool   // a stream's memory stands in for it
}

// failure is why a program could not set the values.
type failure struct {
	at  int // index into the program's code
	err error
	// passing says that it had to do with who ran the program, so that
	// another may succeed.
	passing bool
}

// held is the version of a set that an engine holds.
type held struct {
	version *version
	current bool // counted in version.current
	// forgotten says that the engine was loaded since: what it holds are no
	// values before a program sets them again.
	forgotten bool
}

// errNotFinished is what waiters get from work that ended without a result.
var errNotFinished = errors.New("it was given up")

// newVersion allocates a version for one engine.
func (g *set) newVersion(p *plan.Plan) *version {
	v := &version{users: 1, values: make([]rowMajor, len(g.tensors)), packs: make([][]byte, len(g.packs))}
	v.packed, v.free = align.Block(g.bytes, g.bytes)
	mem := v.packed
	for i, k := range g.packs {
		n := p.Packed[k].Bytes
		v.packs[i] = mem[:n:n]
		mem = mem[align.Up(n):]
	}
	return v
}

// find returns the version of what these streams lend, nil if there is none.
func (g *set) find(sources []*byte) *version {
	for _, v := range g.versions {
		if slices.Equal(v.sources, sources) {
			return v
		}
	}
	return nil
}

// withdraw keeps further engines from joining a version.
func (g *set) withdraw(v *version) {
	g.versions = slices.DeleteFunc(g.versions, func(o *version) bool { return o == v })
}

// outdate notes that the memory that h was made from is not lent any more.
func (g *set) outdate(h *held) {
	if h.current {
		h.current = false
		if h.version.current--; h.version.current == 0 {
			g.withdraw(h.version)
		}
	}
}

// drop ends the use of a version.
func (g *set) drop(h *held) {
	if h.version != nil {
		g.outdate(h)
		g.abandon(h.version)
		h.version = nil
	}
}

// abandon ends the use of a version that an engine has but waited for.
func (g *set) abandon(v *version) {
	if v.users--; v.users == 0 {
		g.withdraw(v)
		v.free()
	}
}

// take gives h another version, for which it was counted as a user.
func (g *set) take(h *held, v *version) {
	if h.version != v {
		g.drop(h)
	}
	h.version, h.forgotten = v, false
	if !h.current && v.sources != nil {
		h.current = true
		v.current++
	}
}

// version returns the version of set i that the engine holds, nil if it holds none.
func (l *lease) version(i int) *version { return l.held[i].version }

// users returns how many engines compute with the engine's version of set i, this one
// included, or wait for it. Without a version it is 0.
func (l *lease) users(i int) int {
	l.shared.weights.Lock()
	defer l.shared.weights.Unlock()
	if l.held[i].version == nil {
		return 0
	}
	return l.held[i].version.users
}

// waiting returns how many engines wait for versions of set i to be filled.
func (l *lease) waiting(i int) (n int) {
	l.shared.weights.Lock()
	defer l.shared.weights.Unlock()
	for _, v := range l.shared.sets[i].versions {
		if v.filled != nil {
			n += v.users - 1
		}
	}
	return n
}

// claim finds the version of set i for an engine whose streams lend the memory
// sources, nil if some lend none, and whose program is about to set the values. If
// mine is true then the version is the engine's to fill, until [lease.finish]; one
// that is fresh has no values yet. If not then another engine fills it or has filled
// it, and the engine, which was added to its users, waits ([lease.filled]) and then
// calls adopt or release.
func (l *lease) claim(i int, sources []*byte) (v *version, mine, fresh bool) {
	g, h := &l.shared.sets[i], &l.held[i]
	l.shared.weights.Lock()
	defer l.shared.weights.Unlock()
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
func (l *lease) single(i int) (v *version, fresh bool) {
	g, h := &l.shared.sets[i], &l.held[i]
	if v := h.version; v != nil && v.users == 1 {
		g.outdate(h)
		g.withdraw(v)
		return v, false
	}
	v = g.newVersion(l.shared.plan)
	g.take(h, v)
	return v, true
}

// filled returns what is closed once a version that was claimed is filled, or filling
// it has failed; nil if it was before anybody had to wait.
func (l *lease) filled(v *version) <-chan struct{} {
	l.shared.weights.Lock()
	defer l.shared.weights.Unlock()
	return v.filled
}

// adopt makes a filled version of set i, which the engine was counted as a user of
// by claim, the one that it holds.
func (l *lease) adopt(i int, v *version) {
	l.shared.weights.Lock()
	defer l.shared.weights.Unlock()
	if l.held[i].version == v {
		v.users-- // it is counted already
	}
	l.shared.sets[i].take(&l.held[i], v)
}

// release ends waiting for a version of set i.
func (l *lease) release(i int, v *version) {
	l.shared.weights.Lock()
	defer l.shared.weights.Unlock()
	l.shared.sets[i].abandon(v)
}

// alone makes the engine's version of set i one that no other engine has and none can
// join, for values that its streams do not decide.
func (l *lease) alone(i int) (v *version, fresh bool) {
	l.shared.weights.Lock()
	defer l.shared.weights.Unlock()
	v, fresh = l.single(i)
	v.sources = nil
	return v, fresh
}

// finish ends the filling of the engine's version of set i. Others may use it if f is
// nil, or get f, and the next to ask fills another.
func (l *lease) finish(i int, f *failure) {
	v := l.held[i].version
	l.shared.weights.Lock()
	defer l.shared.weights.Unlock()
	if f != nil {
		v.failure, v.sources = f, nil
		l.shared.sets[i].outdate(&l.held[i])
		l.shared.sets[i].withdraw(v)
	}
	v.filling = false
	if v.filled != nil {
		close(v.filled)
		v.filled = nil
	}
}

// outdate notes that the memory that the engine's values of set i were made from is not
// lent any more.
func (l *lease) outdate(i int) {
	l.shared.weights.Lock()
	defer l.shared.weights.Unlock()
	l.shared.sets[i].outdate(&l.held[i])
}

// forget notes that the engine was loaded: what it holds are no values before a
// program sets them again.
func (l *lease) forget() {
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

// sharing returns what the engine has in common with others now.
func (l *lease) sharing() Sharing {
	m := l.shared
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
	for i := range m.sets {
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
