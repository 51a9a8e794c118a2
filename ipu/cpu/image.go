package cpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/bind"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
)

// image is a shared executable: what all engines of one executable with equal
// options have in common, counted by their number (a reference count): the plan, constants in their
// kernels' layouts, and the weights (see group). Kernels are not part of it,
// since they keep the state of a run.
type image struct {
	key   imageKey
	users int           // engines; guarded by images
	made  chan struct{} // closed when what follows up to packing is there, or failure

	failure error
	ended   bool // who made it failed for its context's or its budget's sake
	exe     *graph.Executable
	plan    *plan.Plan
	bound   map[plan.NodeKey]int // index into nodes
	nodes   []plan.NodeKey       // that have kernels
	groups  []group              // of weights

	packing   sync.Mutex     // guards what follows
	packed    bool           // constants are where their kernels want them
	packs     [][]byte       // constants, in the order of Plan.Packed; nil for what changes
	constants map[int][]byte // constants whose data in the executable is not aligned
	release   func()         // gives back the memory of packs

	weights sync.Mutex // guards the versions of all groups and who holds them

	shares shares // of the budgets that engines count on
}

// imageKey tells images apart. It keeps the executable's memory from being used
// for anything else. The head is for callers who break their word and put other
// bytes there.
type imageKey struct {
	at   *byte
	size int
	head [64]byte // with the checksum
	opts options
}

// images are those that engines use.
var images = struct {
	sync.Mutex
	all map[imageKey]*image
}{all: map[imageKey]*image{}}

// openImage returns the image of an executable for one more engine, and kernels
// for it, whose tables room counts. The first to ask makes it, the others wait; if
// its context or its budget ends that, another makes it.
func openImage(ctx context.Context, exe []byte, opts options, room *budget.Budget) (*image, []tensor.Kernel, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	for {
		m, kernels, err := shareImage(ctx, exe, opts, room)
		if m == nil && err == nil {
			continue
		}
		return m, kernels, err
	}
}

// shareImage is one attempt of [openImage]. It returns neither an image nor an
// error if another's context or budget ended it.
func shareImage(ctx context.Context, exe []byte, opts options, room *budget.Budget) (*image, []tensor.Kernel, error) {
	key := imageKey{at: unsafe.SliceData(exe), size: len(exe), opts: opts}
	copy(key.head[:], exe)
	images.Lock()
	m, found := images.all[key]
	if !found {
		m = &image{key: key, made: make(chan struct{})}
		images.all[key] = m
	}
	m.users++
	images.Unlock()
	var kernels []tensor.Kernel
	var err error
	if !found {
		kernels = m.make(ctx, exe, room)
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
func (m *image) make(ctx context.Context, exe []byte, room *budget.Budget) []tensor.Kernel {
	m.failure = fmt.Errorf("plan the executable: %w", errNotFinished)
	defer func() {
		if m.failure != nil { // whoever comes now tries again
			m.ended = ctx.Err() != nil || errors.Is(m.failure, budget.ErrExceeded)
			images.Lock()
			m.forget()
			images.Unlock()
		}
		close(m.made)
	}()
	decoded, err := graph.Decode(exe)
	if err != nil {
		m.failure = err
		return nil
	}
	c, err := plan.Compile(ctx, decoded, m.key.opts.Options, room)
	if m.failure = err; err != nil {
		return nil
	}
	m.exe, m.plan, m.bound = c.Exe, c.Plan, c.Bound
	m.nodes = make([]plan.NodeKey, len(c.Kernels))
	for node, i := range c.Bound {
		m.nodes[i] = node
	}
	m.groups = groupsOf(c.Plan)
	return c.Kernels
}

// bind makes the kernels of one more engine, whose tables room counts.
func (m *image) bind(ctx context.Context, room *budget.Budget) ([]tensor.Kernel, error) {
	kernels := make([]tensor.Kernel, len(m.nodes))
	for i, key := range m.nodes {
		err := ctx.Err()
		if err != nil {
			return nil, err
		}
		if kernels[i], _, err = bind.Node(m.exe, &m.exe.Graphs[key.Graph].Nodes[key.Node], room); err != nil {
			n := &m.exe.Graphs[key.Graph]
			return nil, fmt.Errorf("node %d %q of graph %q: %w", key.Node, n.Nodes[key.Node].Name, n.Name, err) // of memory: it could be bound before
		}
	}
	for i := range m.plan.Packed {
		k := &m.plan.Packed[i]
		kernels[m.bound[plan.NodeKey{Graph: k.Graph, Node: k.Node}]].(tensor.Packer).UsePacked(k.Operand)
	}
	return kernels, nil
}

// leave tells that an engine needs the image no more.
func (m *image) leave() {
	images.Lock()
	m.users--
	last := m.users == 0
	if last {
		m.forget()
	}
	images.Unlock()
	if last && m.packed {
		m.release()
	}
}

// forget sees to it that nobody else gets the image. images must be locked.
func (m *image) forget() {
	if images.all[m.key] == m {
		delete(images.all, m.key)
	}
}

// engines returns how many use the image.
func (m *image) engines() int {
	images.Lock()
	defer images.Unlock()
	return m.users
}

// packConstants sees to it that constants are in the layouts of their kernels:
// e packs them unless an engine has done so before. What nobody looks at from
// then on is released.
func (m *image) packConstants(e *Engine) (err error) {
	m.packing.Lock()
	defer m.packing.Unlock()
	if m.packed {
		return nil
	}
	var size int64
	for i := range m.plan.Packed {
		if k := &m.plan.Packed[i]; m.exe.Tensors[k.Tensor].Const {
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
	m.packs, m.constants = make([][]byte, len(m.plan.Packed)), map[int][]byte{}
	unused := m.packedOnly()
	var task packTask
	for i := range m.plan.Packed {
		k := &m.plan.Packed[i]
		if !m.exe.Tensors[k.Tensor].Const {
			continue
		}
		m.packs[i] = mem[:k.Bytes:k.Bytes]
		mem = mem[align.Up(k.Bytes):]
		j := packJob{packer: e.packer(i), dst: m.packs[i], src: m.constant(int(k.Tensor))}
		if e.unused != nil && unused[k.Tensor] {
			data := m.exe.Tensors[k.Tensor].Data
			j.after = func() { e.unused(data) }
		}
		task.packs = append(task.packs, j)
	}
	e.pool.Run(&task, len(task.packs))
	if e.unused != nil { // again: to read one constant brings in some of its neighbours
		for _, data := range m.spans(unused) {
			e.unused(data)
		}
	}
	m.release, m.packed = release, true
	return nil
}

// packedOnly returns the constants that only kernels' own layouts are made from.
func (m *image) packedOnly() map[graph.TensorID]bool {
	only := map[graph.TensorID]bool{}
	for _, k := range m.plan.Packed {
		only[k.Tensor] = m.exe.Tensors[k.Tensor].Const
	}
	for i := range m.plan.Programs {
		for _, s := range m.plan.Programs[i].Steps {
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
func (m *image) spans(of map[graph.TensorID]bool) [][]byte {
	var all [][]byte
	for i := range m.exe.Tensors {
		data := m.exe.Tensors[i].Data
		if !of[graph.TensorID(i)] || len(data) == 0 {
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

// constant returns the data of a constant, aligned to its elements.
func (m *image) constant(i int) []byte {
	t := &m.exe.Tensors[i]
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
	packer   packer
	dst, src []byte
	after    func() // may be nil
}

// packer is a kernel and one of its operands.
type packer struct {
	kernel  tensor.Packer
	operand int
}

func (p packer) pack(dst, src []byte) { p.kernel.Pack(p.operand, dst, src) }

// Do packs one operand.
func (t *packTask) Do(i int) {
	j := &t.packs[i]
	j.packer.pack(j.dst, j.src)
	if j.after != nil {
		j.after()
	}
}

// tenancy is an engine's part in its image. It knows nothing of the engine, so
// that it can be ended after the engine was forgotten without being closed.
type tenancy struct {
	image *image
	held  []held         // by group
	room  *budget.Budget // of the engine alone
	pays  bool           // for a part of what engines share
	ended sync.Once
}

// enter makes e a user of its image until it is closed or collected.
func (e *Engine) enterImage(m *image, room *budget.Budget) {
	e.tenancy = &tenancy{image: m, held: make([]held, len(m.groups)), room: room}
	c := runtime.AddCleanup(e, (*tenancy).end, e.tenancy)
	e.release = append(e.release, func() { c.Stop(); e.tenancy.end() })
}

// end gives back what the engine had of the image.
func (t *tenancy) end() {
	t.ended.Do(func() {
		t.image.weights.Lock()
		for i := range t.held {
			t.image.groups[i].drop(&t.held[i])
		}
		t.image.weights.Unlock()
		t.image.leave()
		if t.pays {
			t.image.shares.leave(t.room)
		}
		t.room.Release()
	})
}
