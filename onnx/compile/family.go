package compile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile/internal/merge"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// MaxMembers is how many members a family may have.
const MaxMembers = 256

// nextProgram is the program of a family's second member: PopART's own programs end at 9.
const nextProgram = 10

// Sizes are what one member of a family has in place of the fields of [onnx.Options] of
// these names; what stands in those is the same for all members.
type Sizes struct {
	Dims   map[string]int64
	Batch  int64 // 0: that of the options
	Shapes map[string][]int64
}

// On returns o with the sizes of a member.
func (s Sizes) On(o onnx.Options) onnx.Options {
	o.Dims = union(o.Dims, s.Dims)
	o.Shapes = union(o.Shapes, s.Shapes)
	o.Batch = cmp.Or(s.Batch, o.Batch)
	return o
}

func union[V any](a, b map[string]V) map[string]V {
	all := map[string]V{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// Progress says how far the compilation of a family is.
type Progress struct {
	Done, Members int
	Sizes         string // of the member that was compiled last, as in "batch=4 seq=16"; or what the branch is called
}

// FamilyError says why a model can't be compiled as a family of the members that were asked
// for, and what to do about it.
type FamilyError struct{ Err error }

// Error returns what is in the way.
func (e *FamilyError) Error() string { return e.Err.Error() }

// Unwrap returns what is in the way.
func (e *FamilyError) Unwrap() error { return e.Err }

func noFamily(format string, args ...any) error {
	return &FamilyError{fmt.Errorf(format, args...)}
}

// member is one size of a family while it is compiled.
type member struct {
	options onnx.Options     // with its sizes
	ins     []onnx.ValueInfo // likewise
	sizes   []int64          // of the open dimensions
	text    string           // sizes, for people
	low     *onnx.Lowered
	result  *Result
	cost    float64 // operations of a run
	err     error
}

// compileFamily compiles m for several sizes, up to the encoding.
func compileFamily(ctx context.Context, m *onnx.Model, o Options) (*Result, error) {
	dims, members, err := o.members(m)
	if err != nil {
		return nil, err
	}
	if err := checkPads(o.Pads, dims, members[0].ins); err != nil {
		return nil, err
	}
	if len(members) == 1 {
		o.Options, o.Members = o.Members[0].On(o.Options), nil
		return compileOne(ctx, m, o)
	}
	room := budget.From(ctx).Part(0)
	defer room.Release()
	if err := compileMembers(budget.Into(ctx, room), m, o, members); err != nil {
		return nil, o.why(ctx, m, dims, members, err)
	}
	if members[0].result.draws() {
		return nil, noFamily("the model draws random numbers, and those of several sizes would count their runs together: compile these sizes as models of their own")
	}
	if err := alike(members); err != nil {
		return nil, err
	}
	sortMembers(members)
	r, err := joinMembers(members)
	if err != nil {
		return nil, err
	}
	r.Family = describe(ctx, m, &o, dims, members, r)
	o.Progress = nil
	proveRows(budget.Into(ctx, room), m, o, dims, members, r)
	return r, ctx.Err()
}

// checkNames refuses names that the family's blob, JSON, can't hold as they are.
func checkNames(f *family.Family) error {
	check := func(what, name string) error {
		if utf8.ValidString(name) {
			return nil
		}
		return noFamily("%s %q: its name is not UTF-8, and in a model of several sizes, or of sizes that data decides, it has to be: rename it in the ONNX model", what, name)
	}
	for _, d := range f.Dims {
		if err := check("dimension", d.Name); err != nil {
			return err
		}
	}
	for _, t := range f.Tensors {
		what := "input"
		if t.Type == popef.Output {
			what = "output"
		}
		if err := check(what, t.Name); err != nil {
			return err
		}
	}
	return nil
}

// members finds the open dimensions of the sizes that are asked for.
func (o *Options) members(m *onnx.Model) ([]openDim, []*member, error) {
	if len(o.Members) == 0 {
		return nil, nil, noFamily("the family has no members: want sizes for at least one (--size, or --dim and --batch with several)")
	}
	if n := len(o.Members); n > MaxMembers {
		return nil, nil, noFamily("the family has %d members, want at most %d: name fewer sizes, such as every power of two, and let requests be padded between them", n, MaxMembers)
	}
	members := make([]*member, len(o.Members))
	for i, s := range o.Members {
		own := s.On(o.Options)
		ins, err := onnx.StaticInputs(m, own)
		if err != nil {
			if m.Path != "" {
				err = fmt.Errorf("%s: %w", m.Path, err)
			}
			return nil, nil, err
		}
		members[i] = &member{options: own, ins: ins}
	}
	for i := range members {
		for k := range members[i].ins {
			if a, b := &members[0].ins[k], &members[i].ins[k]; len(a.Dims) != len(b.Dims) {
				return nil, nil, noFamily("input %q is %s in one member and %s in another: members differ in sizes, not in the number of axes", a.Name, a, b)
			}
		}
	}
	dims, err := openDims(m, o, members)
	if err != nil {
		return nil, nil, err
	}
	first := map[string]bool{}
	for i, mem := range members {
		var words []string
		for d := range dims {
			n := dims[d].of(mem)
			mem.sizes = append(mem.sizes, n)
			words = append(words, fmt.Sprintf("%s=%d", dims[d].name, n))
		}
		mem.text = strings.Join(words, " ")
		if i > 0 && len(dims) == 0 || first[mem.text] {
			return nil, nil, noFamily("two members have the same sizes (%s): want each once", cmp.Or(mem.text, "no dimension differs"))
		}
		first[mem.text] = true
	}
	return dims, members, nil
}

// compileMembers lowers and optimises members, as many at a time as there are cores. The
// error is that of the first member that has one.
func compileMembers(ctx context.Context, m *onnx.Model, o Options, members []*member) error {
	pool, room := merge.NewPool(), budget.From(ctx)
	var mu sync.Mutex
	// A member's constants count while it is computed, and afterwards those that no other has.
	alone := func(mem *member, step func(ctx context.Context) (*graph.Executable, error)) {
		own := room.Part(0)
		defer own.Release()
		var e *graph.Executable
		if e, mem.err = step(budget.Into(ctx, own)); mem.err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if n := pool.Share(e); n > 0 {
			own.Release()
			mem.err = room.Take(n, "constants of a family's members")
		}
	}
	each(members, func(mem *member) {
		alone(mem, func(ctx context.Context) (*graph.Executable, error) {
			var err error
			if mem.low, err = LowerContext(ctx, m, mem.options); err != nil {
				return nil, err
			}
			return mem.low.Executable, nil
		})
	})
	if err := firstError(members); err != nil {
		return err
	}
	done := 0
	each(members, func(mem *member) {
		alone(mem, func(ctx context.Context) (*graph.Executable, error) {
			var err error
			if mem.result, err = finish(ctx, m, mem.low, o); err != nil {
				return nil, err
			}
			mem.low = nil
			mem.cost = operations(mem.result.Executable, MainProgram)
			return mem.result.Executable, nil
		})
		if o.Progress != nil && mem.err == nil {
			mu.Lock()
			defer mu.Unlock()
			done++
			o.Progress(Progress{done, len(members), mem.text})
		}
	})
	return firstError(members)
}

// each calls do for all members, on as many at a time as there are cores.
func each(members []*member, do func(*member)) {
	var all sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, mem := range members {
		free <- struct{}{}
		all.Add(1)
		go func() {
			defer func() { <-free; all.Done() }()
			do(mem)
		}()
	}
	all.Wait()
}

func firstError(members []*member) error {
	for _, mem := range members {
		if mem.err != nil {
			return mem.err
		}
	}
	return nil
}

// alike checks that members differ in sizes alone.
func alike(members []*member) error {
	first := members[0]
	for _, mem := range members[1:] {
		for _, side := range []struct {
			what string
			a, b []Port
		}{{"input", first.result.Inputs, mem.result.Inputs}, {"output", first.result.Outputs, mem.result.Outputs}, {"count", first.result.Counts, mem.result.Counts}} {
			if len(side.a) != len(side.b) {
				return noFamily("the member %s has %d %ss and the member %s has %d: members differ in sizes alone; compile these sizes as models of their own", first.text, len(side.a), side.what, mem.text, len(side.b))
			}
			for i, a := range side.a {
				b := side.b[i]
				if a.Name != b.Name || a.Elem != b.Elem || !slices.Equal(a.Counts, b.Counts) || len(a.Type.Shape) != len(b.Type.Shape) {
					return noFamily("%s %d is %q, %v, in the member %s and %q, %v, in the member %s: members differ in sizes alone; compile these sizes as models of their own",
						side.what, i, a.Name, a.Type, first.text, b.Name, b.Type, mem.text)
				}
			}
		}
	}
	return nil
}

// sortMembers puts every member before all that it fits into, and apart from that those
// of fewer operations and of smaller inputs first.
func sortMembers(members []*member) {
	volume := func(m *member) (n int64) {
		for _, p := range m.result.Inputs {
			n = budget.Add(n, p.Type.Bytes())
		}
		return n
	}
	slices.SortStableFunc(members, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(volume(a), volume(b)), slices.Compare(a.sizes, b.sizes))
	})
	// Fewer operations are no proof: a size may let more be computed beforehand. Each takes the
	// place before the first that it fits into.
	for i := range members {
		for k := range i {
			if fits(members[i].sizes, members[k].sizes) {
				mem := members[i]
				copy(members[k+1:i+1], members[k:i])
				members[k] = mem
				break
			}
		}
	}
}

// fits reports whether no size of a is larger than that of b.
func fits(a, b []int64) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// joinMembers makes one model of those of the members, which are in order.
func joinMembers(members []*member) (*Result, error) {
	r := *members[0].result
	load := r.Executable.Programs[0].Name
	to := merge.New(r.Executable.Name, r.Executable.Producer, LoadProgram, load)
	r.Weights, r.Warnings = nil, nil
	r.Metadata.Anchors, r.Metadata.ProgramFlow.Main = nil, nil
	r.Metadata.Programs = []popef.ProgramInfo{{Index: LoadProgram, Name: load}}
	shared := newWeightSet(r.Inputs)
	renames := make([]map[string]string, len(members))
	for i, mem := range members {
		renames[i] = shared.add(mem.result.Weights)
	}
	used := map[string]bool{}
	for _, w := range shared.all {
		used["h2d_"+w.Name] = true
	}
	for i, mem := range members {
		program := graph.Program{Index: MainProgram, Name: fmt.Sprintf("Program %s", mem.text)}
		if i > 0 {
			program.Index = nextProgram + i - 1
		}
		handles := renames[i]
		for _, a := range mem.result.Metadata.Anchors {
			if a.Programs[0] != MainProgram {
				continue
			}
			handle := a.Handle
			if i > 0 {
				handle = fmt.Sprintf("%s#%d", handle, program.Index)
			}
			for used[handle] {
				handle += "#"
			}
			used[handle] = true
			handles[a.Handle], a.Handle, a.Programs = handle, handle, []uint32{uint32(program.Index)}
			r.Metadata.Anchors = append(r.Metadata.Anchors, a)
		}
		if err := to.Add(mem.result.Executable, LoadProgram, []merge.Program{{From: MainProgram, As: program}}, func(h string) string { return handles[h] }); err != nil {
			return nil, err
		}
		r.Metadata.ProgramFlow.Main = append(r.Metadata.ProgramFlow.Main, uint32(program.Index))
		r.Metadata.Programs = append(r.Metadata.Programs, popef.ProgramInfo{Index: uint32(program.Index), Name: program.Name})
		for _, w := range mem.result.Warnings {
			if !slices.Contains(r.Warnings, w) {
				r.Warnings = append(r.Warnings, w)
			}
		}
	}
	r.Weights = shared.all
	for _, w := range r.Weights {
		r.Metadata.Anchors = append(r.Metadata.Anchors, popef.Anchor{
			Name: w.Name, Handle: "h2d_" + w.Name, Programs: []uint32{LoadProgram}, Info: w.Info, Type: popef.Input,
		})
	}
	r.Executable = to.Executable()
	return &r, nil
}

// weightSet is the weights of several members, each once.
type weightSet struct {
	all  []Weight
	used map[string]bool
	by   map[string][]int // by the name that members give it
}

func newWeightSet(inputs []Port) *weightSet {
	s := &weightSet{used: map[string]bool{}, by: map[string][]int{}}
	for _, p := range inputs {
		s.used[p.Name] = true // no weight may have the name of an input
	}
	return s
}

// add adds a member's weights and returns their handles by those that the member gives them.
// A name is another weight's where an initializer of one branch has the name of one of
// another, and members take different ones.
func (s *weightSet) add(ws []Weight) map[string]string {
	handles := map[string]string{}
	for _, w := range ws {
		i := slices.IndexFunc(s.by[w.Name], func(i int) bool {
			return s.all[i].Info.Equal(w.Info) && bytes.Equal(s.all[i].Data, w.Data)
		})
		if i >= 0 {
			i = s.by[w.Name][i]
		} else {
			i = len(s.all)
			s.by[w.Name] = append(s.by[w.Name], i)
			as := w
			for n := 2; s.used[as.Name]; n++ {
				as.Name = fmt.Sprintf("%s_%d", w.Name, n)
			}
			s.used[as.Name] = true
			s.all = append(s.all, as)
			if as.Name != w.Name {
				s.by[as.Name] = append(s.by[as.Name], i) // where a member has both, it may be called so there
			}
		}
		handles["h2d_"+w.Name] = "h2d_" + s.all[i].Name
	}
	return handles
}

// why adds to an error of a member which one it is, and whether it is that dimensions have to
// be equal.
func (o *Options) why(ctx context.Context, m *onnx.Model, dims []openDim, members []*member, err error) error {
	var (
		unsupported *onnx.UnsupportedError
		need        *onnx.NeedValueError
	)
	if ctx.Err() != nil || errors.As(err, &unsupported) || errors.As(err, &need) || errors.Is(err, budget.ErrExceeded) {
		return err
	}
	var bad, good []string
	failed := -1
	for i, mem := range members {
		if mem.err != nil {
			bad = append(bad, mem.text)
			if failed < 0 {
				failed = i
			}
		} else {
			good = append(good, mem.text)
		}
	}
	err = fmt.Errorf("the member %s: %w", bad[0], err)
	if name, rule, ok := ruleOf(dims, members); ok {
		return noFamily("%w\nhint: the dimension %q is %s in each member that compiles; if it always is, say so with --dim %s=%s", err, name, rule, name, rule)
	}
	if a, b, ok := o.meet(ctx, m, dims, members, failed); ok {
		return noFamily("%w\nhint: the dimensions %q and %q have to be equal; say so with --dim %s=%s, or name the members one by one: --size %s=%d,%s=%d and so on",
			err, a.name, b.name, b.name, a.name, a.name, a.of(members[failed]), b.name, a.of(members[failed]))
	}
	if len(good) > 0 {
		return noFamily("%w\nhint: %s and %s; leave out what does not fit the model, or name the members one by one with --size", err, some(bad, "fails", "fail"), some(good, "compiles", "compile"))
	}
	return noFamily("%w\nhint: no member compiles; the model may be made for other sizes", err)
}

// some names the first members of a list.
func some(list []string, one, many string) string {
	const most = 3
	if len(list) == 1 {
		return list[0] + " " + one
	}
	if len(list) <= most {
		return strings.Join(list, ", ") + " " + many
	}
	return fmt.Sprintf("%s and %d others %s", strings.Join(list[:most], ", "), len(list)-most, many)
}

// meet looks for two dimensions that a member can be compiled with once they are equal.
func (o *Options) meet(ctx context.Context, m *onnx.Model, dims []openDim, members []*member, failed int) (a, b openDim, ok bool) {
	const most = 12 // lowerings
	tried := 0
	for i := range dims {
		for k := range dims {
			x, y := dims[i].of(members[failed]), dims[k].of(members[failed])
			if i == k || x == y || tried == most {
				continue
			}
			tried++
			if _, err := LowerContext(ctx, m, resized(o.Options, members[failed], &dims[k], x)); err == nil {
				return dims[min(i, k)], dims[max(i, k)], true
			}
		}
	}
	return openDim{}, openDim{}, false
}
