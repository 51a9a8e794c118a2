// Package weights has what the engines of one executable share: its plan, constants as
// their kernels want them, and the weights. An engine opens a shared executable and
// gets a lease on it, with which it claims a version of each weight set before it sets
// the values, adopts one that another engine has set, and releases it. The store knows
// of no engine: kernels, streams' memory and thread pool are given to it. What is shared
// is counted once on each budget.
package weights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// Shared is a shared executable: what all engines of one executable with equal options
// have in common, counted by their number (a reference count), for as long as one of
// them is open. Kernels are not part of it, since they keep the state of a run.
type Shared struct {
	key   sharedKey
	users int           // engines; guarded by executables
	made  chan struct{} // closed when what follows up to packing is there, or failure

	failure error
	ended   bool // who made it failed for its context's or its budget's sake
	Exe     *graph.Executable
	Plan    *plan.Plan
	Bound   map[plan.NodeKey]int // index into nodes and into each engine's kernels
	nodes   []plan.NodeKey       // that have kernels
	Sets    []Set                // of weights

	packing   sync.Mutex     // guards what follows
	packed    bool           // constants are where their kernels want them
	packs     [][]byte       // constants, in the order of Plan.Packed; nil for what changes
	constants map[int][]byte // constants whose data in the executable is not aligned
	free      func()         // gives back the memory of packs

	weights sync.Mutex // guards the versions of all sets and who holds them

	shares shares // of the budgets that engines count on
}

// sharedKey tells shared executables apart. It keeps the executable's memory from
// being used for anything else. The head is for callers who break their word and put
// other bytes there.
type sharedKey struct {
	at   *byte
	size int
	head [64]byte // with the checksum
	opts any      // of the engine; comparable
}

// compileFunc plans a decoded executable.
type compileFunc func(context.Context, *graph.Executable, *budget.Budget) (*plan.Compiled, error)

// executables are those that engines use.
var executables = struct {
	sync.Mutex
	all map[sharedKey]*Shared
}{all: map[sharedKey]*Shared{}}

// Open returns the shared executable of exe and the engine's options, which tell
// it from others, for one more engine, and kernels for it, whose tables room counts. The
// first to ask makes it with compile, the others wait; if its context or its budget
// ends that, another makes it. The engine takes part until its lease ends.
func Open(ctx context.Context, exe []byte, opts any, compile compileFunc, room *budget.Budget) (*Lease, []tensor.Kernel, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	for {
		m, kernels, err := joinShared(ctx, exe, opts, compile, room)
		switch {
		case err != nil:
			return nil, nil, err
		case m != nil:
			return &Lease{Shared: m, held: make([]held, len(m.Sets)), room: room}, kernels, nil
		}
	}
}

// joinShared is one attempt of [Open]. It returns neither an executable nor an
// error if another's context or budget ended it.
func joinShared(ctx context.Context, exe []byte, opts any, compile compileFunc, room *budget.Budget) (*Shared, []tensor.Kernel, error) {
	key := sharedKey{at: unsafe.SliceData(exe), size: len(exe), opts: opts}
	copy(key.head[:], exe)
	executables.Lock()
	m, found := executables.all[key]
	if !found {
		m = &Shared{key: key, made: make(chan struct{})}
		executables.all[key] = m
	}
	m.users++
	executables.Unlock()
	var kernels []tensor.Kernel
	var err error
	if !found {
		kernels = m.make(ctx, exe, compile, room)
	}
	select {
	case <-m.made:
		if err = m.failure; err == nil && found {
			kernels, err = m.bind(ctx, room)
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		m.leave()
		if found && ctx.Err() == nil && m.ended {
			err = nil
		}
		return nil, nil, err
	}
	return m, kernels, nil
}

// make fills in what engines have in common, and returns the kernels that it
// was planned with.
func (m *Shared) make(ctx context.Context, exe []byte, compile compileFunc, room *budget.Budget) []tensor.Kernel {
	m.failure = fmt.Errorf("plan the executable: %w", ErrNotFinished)
	defer func() {
		if m.failure != nil { // whoever comes now tries again
			m.ended = ctx.Err() != nil || errors.Is(m.failure, budget.ErrExceeded)
			executables.Lock()
			m.forget()
			executables.Unlock()
		}
		close(m.made)
	}()
	decoded, err := encoding.Decode(exe)
	if err != nil {
		m.failure = err
		return nil
	}
	c, err := compile(ctx, decoded, room)
	if m.failure = err; err != nil {
		return nil
	}
	m.Exe, m.Plan, m.Bound = c.Exe, c.Plan, c.Bound
	m.nodes = make([]plan.NodeKey, len(c.Kernels))
	for node, i := range c.Bound {
		m.nodes[i] = node
	}
	m.Sets = setsOf(c.Plan)
	return c.Kernels
}

// bind makes the kernels of one more engine, whose tables room counts.
func (m *Shared) bind(ctx context.Context, room *budget.Budget) ([]tensor.Kernel, error) {
	kernels := make([]tensor.Kernel, len(m.nodes))
	for i, key := range m.nodes {
		err := ctx.Err()
		if err != nil {
			return nil, err
		}
		if kernels[i], _, err = bind.Node(m.Exe, &m.Exe.Graphs[key.Graph].Nodes[key.Node], bind.Made{}, room); err != nil {
			n := &m.Exe.Graphs[key.Graph]
			return nil, fmt.Errorf("node %d %q of graph %q: %w", key.Node, n.Nodes[key.Node].Name, n.Name, err) // of memory: it could be bound before
		}
	}
	for i := range m.Plan.Packed {
		for _, r := range m.Plan.Packed[i].Readers {
			r.Use(kernels[m.Bound[plan.NodeKey{Graph: r.Graph, Node: r.Node}]])
		}
	}
	return kernels, nil
}

// leave ends the part of one engine.
func (m *Shared) leave() {
	executables.Lock()
	m.users--
	last := m.users == 0
	if last {
		m.forget()
	}
	executables.Unlock()
	if last && m.packed {
		m.free()
	}
}

// forget sees to it that nobody else gets the executable. executables must be locked.
func (m *Shared) forget() {
	if executables.all[m.key] == m {
		delete(executables.all, m.key)
	}
}

// engines returns how many take part.
func (m *Shared) engines() int {
	executables.Lock()
	defer executables.Unlock()
	return m.users
}

// PackConstants sees to it that constants are in the layouts of their kernels: the
// kernels of one engine pack them on its thread pool, unless another's have done so
// before. unused, if it is not nil, is called for the parts of the executable that
// nobody looks at from then on.
func (m *Shared) PackConstants(kernels []tensor.Kernel, pool *workers.Pool, unused func([]byte)) (err error) {
	m.packing.Lock()
	defer m.packing.Unlock()
	if m.packed {
		return nil
	}
	var size int64
	for i := range m.Plan.Packed {
		if k := &m.Plan.Packed[i]; m.Exe.Tensors[k.Tensor].Const {
			size += align.Up(k.Bytes)
		}
	}
	mem, release := align.Block(size, size)
	defer func() {
		if v := recover(); v != nil {
			m.packs, err = nil, ipu.NewPanicError(v)
			release()
		}
	}()
	m.packs, m.constants = make([][]byte, len(m.Plan.Packed)), map[int][]byte{}
	only := m.packedOnly()
	var task packTask
	for i := range m.Plan.Packed {
		k := &m.Plan.Packed[i]
		if !m.Exe.Tensors[k.Tensor].Const {
			continue
		}
		m.packs[i] = mem[:k.Bytes:k.Bytes]
		mem = mem[align.Up(k.Bytes):]
		j := packJob{packer: m.Packer(kernels, i), dst: m.packs[i], src: m.aligned(int(k.Tensor))}
		if unused != nil && only[k.Tensor] == 1 {
			data := m.Exe.Tensors[k.Tensor].Data
			j.after = func() { unused(data) }
		}
		task.packs = append(task.packs, j)
	}
	pool.Run(&task, len(task.packs))
	if unused != nil { // again: to read one constant brings in some of its neighbours; and those that are packed twice
		for _, data := range m.spans(only) {
			unused(data)
		}
	}
	m.free, m.packed = release, true
	return nil
}

// packedOnly returns the constants that only kernels' own layouts are made from,
// with the number of these.
func (m *Shared) packedOnly() map[graph.TensorID]int {
	only := map[graph.TensorID]int{}
	for _, k := range m.Plan.Packed {
		if m.Exe.Tensors[k.Tensor].Const {
			only[k.Tensor]++
		}
	}
	for i := range m.Plan.Programs {
		for _, s := range m.Plan.Programs[i].Steps {
			for _, o := range slices.Concat(s.In, s.Out) {
				if o.Place == plan.InConstant {
					delete(only, graph.TensorID(o.Index))
				}
			}
		}
	}
	return only
}

// spans returns the memory of constants, in one piece where they follow each
// other: neighbours share pages.
func (m *Shared) spans(of map[graph.TensorID]int) [][]byte {
	var all [][]byte
	for i := range m.Exe.Tensors {
		data := m.Exe.Tensors[i].Data
		if of[graph.TensorID(i)] == 0 || len(data) == 0 {
			continue
		}
		if n := len(all); n > 0 {
			last := all[n-1]
			gap := uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(unsafe.SliceData(last))) - uintptr(len(last))
			if gap < align.Line {
				all[n-1] = unsafe.Slice(unsafe.SliceData(last), len(last)+int(gap)+len(data))
				continue
			}
		}
		all = append(all, data)
	}
	return all
}

// Constant returns the data of a constant, aligned to its elements.
func (m *Shared) Constant(i int) []byte {
	m.packing.Lock()
	defer m.packing.Unlock()
	return m.aligned(i)
}

// PackedConstant returns copy i of Plan.Packed, of a constant.
func (m *Shared) PackedConstant(i int) []byte {
	m.packing.Lock()
	defer m.packing.Unlock()
	return m.packs[i]
}

// Packer returns, of an engine's kernels, the first that wants copy i of Plan.Packed.
func (m *Shared) Packer(kernels []tensor.Kernel, i int) Packer {
	r := &m.Plan.Packed[i].Readers[0]
	return Packer{kernels[m.Bound[plan.NodeKey{Graph: r.Graph, Node: r.Node}]].(tensor.Packer), r.Operand}
}

// aligned is constant with the lock held.
func (m *Shared) aligned(i int) []byte {
	t := &m.Exe.Tensors[i]
	data := t.Data
	if data != nil && align.To(data, t.Type.DType.Size()) {
		return data
	}
	if c, ok := m.constants[i]; ok {
		return c
	}
	c := align.Bytes(int64(len(data)))
	copy(c, data)
	m.constants[i] = c
	return c
}

// packTask packs operands concurrently.
type packTask struct{ packs []packJob }

// packJob is one operand to pack.
type packJob struct {
	packer   Packer
	dst, src []byte
	after    func() // may be nil
}

// Packer is a kernel and one of its operands.
type Packer struct {
	kernel  tensor.Packer
	operand int
}

func (p Packer) Pack(dst, src []byte) { p.kernel.Pack(p.operand, dst, src) }

// Do packs one operand.
func (t *packTask) Do(i int) {
	j := &t.packs[i]
	j.packer.Pack(j.dst, j.src)
	if j.after != nil {
		j.after()
	}
}

// Lease is an engine's part in a shared executable, and in what it computes with. It
// knows nothing of the engine, so that it can be ended after the engine was forgotten
// without being closed.
type Lease struct {
	Shared *Shared
	held   []held         // by weight set
	room   *budget.Budget // of the engine alone
	pays   bool           // for a part of what engines share
	ended  sync.Once
}

// End gives back what the engine had of the shared executable.
func (l *Lease) End() {
	l.ended.Do(func() {
		l.Shared.weights.Lock()
		for i := range l.held {
			l.Shared.Sets[i].drop(&l.held[i])
		}
		l.Shared.weights.Unlock()
		l.Shared.leave()
		if l.pays {
			l.Shared.shares.leave(l.room)
		}
		l.room.Release()
	})
}

// Engines returns how many engines of the executable at exe are open or being made,
// whatever their options.
func Engines(exe []byte) (n int) {
	executables.Lock()
	defer executables.Unlock()
	for key, m := range executables.all {
		if key.at == unsafe.SliceData(exe) {
			n += m.users
		}
	}
	return n
}
