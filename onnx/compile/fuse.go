package compile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile/internal/merge"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// Part is a model that becomes a branch of a fused one.
type Part struct {
	Name    string // of the branch, see [family.CheckBranchName]
	Model   *onnx.Model
	Options Options // for one size of the model
}

// FuseError says why models can't be fused, and what to do about it.
type FuseError struct {
	Branch string // that is in the way; "" if it is no single one
	Err    error
}

// Error returns what is in the way.
func (e *FuseError) Error() string {
	if e.Branch == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("branch %q: %v", e.Branch, e.Err)
}

// Unwrap returns what is in the way.
func (e *FuseError) Unwrap() error { return e.Err }

// Fuse compiles several models into one executable: a main program for each, [Result.Branches], that
// gives the bits of the model compiled alone. Weights and constants that are equal are there once,
// whatever models they are of. progress is called whenever a model is compiled; it may be nil.
//
// A run input or output has the name that it has in its model, with that of its branch and a slash in
// front; a weight keeps its name unless another model before has another one of that name, or
// there is an input or output that is called so. Every model has one size, and none of which data decides.
func Fuse(ctx context.Context, parts []Part, progress func(Progress)) (*Result, error) {
	names := make([]string, len(parts))
	for i := range parts {
		names[i] = parts[i].Name
	}
	if err := family.CheckBranchNames(names); err != nil {
		return nil, &FuseError{Err: err}
	}
	for i := range parts {
		if err := parts[i].check(); err != nil {
			return nil, &FuseError{parts[i].Name, err}
		}
	}
	room := budget.From(ctx).Part(0)
	defer room.Release()
	pool, results := merge.NewPool(), make([]*Result, len(parts))
	for i := range parts {
		own := room.Part(0)
		r, err := compileOne(budget.Into(ctx, own), parts[i].Model, parts[i].Options)
		own.Release()
		if err == nil && r.Family != nil {
			err = fmt.Errorf("data decides how much of its outputs is filled (%q counts it), which no branch can say: leave it out, and compile it as a model of its own", r.Counts[0].Name)
		}
		if err == nil {
			err = room.Take(pool.Share(r.Executable), "constants of a fused model's branches")
		}
		if err != nil {
			return nil, &FuseError{parts[i].Name, err}
		}
		if results[i] = r; progress != nil {
			progress(Progress{i + 1, len(parts), names[i]})
		}
	}
	r, err := fuse(names, results)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r, r.encode()
}

// check refuses options that no branch can have.
func (p *Part) check() error {
	switch {
	case p.Options.Members != nil || len(p.Options.Pads) > 0:
		return errors.New("it has several sizes, and a branch has one: want one number for each dimension, or a branch of its own, under another name, for each size")
	case p.Options.JoinInputs != 0:
		return errors.New("its inputs are to be joined, which a branch's can't be: want each by itself")
	case p.Options.Iterations > 1:
		return fmt.Errorf("%d device iterations: a request of a branch is one run, want 1", p.Options.Iterations)
	}
	return nil
}

// fuse makes one model of those of the branches.
func fuse(names []string, results []*Result) (*Result, error) {
	first := results[0]
	load := first.Executable.Programs[0].Name
	r := &Result{Metadata: first.Metadata}
	to := merge.New(strings.Join(names, "+"), first.Executable.Producer, LoadProgram, load)
	r.Metadata.Anchors, r.Metadata.ProgramFlow.Main = nil, nil
	r.Metadata.Programs = []popef.ProgramInfo{{Index: LoadProgram, Name: load}}
	weights := newFusedWeights(names, results)
	for i, one := range results {
		if one.draws() {
			return nil, fmt.Errorf("branch %q: it draws random numbers, whose seed and state branches can't share: compile it as a model of its own", names[i])
		}
		index := MainProgram
		if i > 0 {
			index = nextProgram + i - 1
		}
		branch := family.Branch{Name: names[i], Program: uint32(index)}
		program := graph.Program{Index: index, Name: "Program " + names[i]}
		handles := weights.add(names[i], one)
		for _, a := range one.Metadata.Anchors {
			if a.Programs[0] != MainProgram {
				continue
			}
			handle := strings.TrimSuffix(a.Handle, a.Name) + branch.Prefix() + a.Name
			handles[a.Handle], a.Handle = handle, handle
			a.Name, a.Programs = branch.Prefix()+a.Name, []uint32{branch.Program}
			branch.Anchors = append(branch.Anchors, len(r.Metadata.Anchors))
			r.Metadata.Anchors = append(r.Metadata.Anchors, a)
		}
		for g := range one.Executable.Graphs { // all of them have a "main"
			one.Executable.Graphs[g].Name = names[i] + "/" + one.Executable.Graphs[g].Name
		}
		if err := to.Add(one.Executable, LoadProgram, []merge.Program{{From: MainProgram, As: program}}, func(h string) string { return handles[h] }); err != nil {
			return nil, &FuseError{names[i], err}
		}
		r.Metadata.ProgramFlow.Main = append(r.Metadata.ProgramFlow.Main, branch.Program)
		r.Metadata.Programs = append(r.Metadata.Programs, popef.ProgramInfo{Index: branch.Program, Name: program.Name})
		r.Branches = append(r.Branches, branch)
		for _, p := range one.Inputs {
			p.Name = branch.Prefix() + p.Name
			r.Inputs = append(r.Inputs, p)
		}
		for _, p := range one.Outputs {
			p.Name = branch.Prefix() + p.Name
			r.Outputs = append(r.Outputs, p)
		}
		for _, w := range one.Warnings {
			r.Warnings = append(r.Warnings, fmt.Sprintf("branch %q: %s", names[i], w))
		}
		r.Source = r.Source.and(one.Source)
		r.Size = budget.Add(r.Size, one.Size)
	}
	r.Weights = weights.all
	for _, w := range r.Weights {
		r.Metadata.Anchors = append(r.Metadata.Anchors, popef.Anchor{
			Name: w.Name, Handle: "h2d_" + w.Name, Programs: []uint32{LoadProgram}, Info: w.Info, Type: popef.Input,
		})
	}
	r.Executable = to.Executable()
	return r, nil
}

// fusedWeights is the weights of several models, each once.
type fusedWeights struct {
	all  []Weight
	used map[string]bool
	by   map[weightKey][]int // places in all
	seed maphash.Seed
}

// weightKey finds weights that may be equal. PopEF's types are not enough: it has one for
// integers of 16 bits and for bfloat16.
type weightKey struct {
	typ  string
	hash uint64
}

func newFusedWeights(names []string, results []*Result) *fusedWeights {
	s := &fusedWeights{used: map[string]bool{}, by: map[weightKey][]int{}, seed: maphash.MakeSeed()}
	for i, r := range results { // a weight of such a name would be taken for the data of the input
		for _, a := range r.Metadata.Anchors {
			if a.Programs[0] == MainProgram {
				s.used[a.Name], s.used[names[i]+"/"+a.Name] = true, true
			}
		}
	}
	return s
}

// add adds the weights of a branch's model and returns their handles by those that the model gives them.
// Weights of one model are kept apart, so that callers may replace each.
func (s *fusedWeights) add(branch string, r *Result) map[string]string {
	types := map[string]graph.TensorType{}
	for _, st := range r.Executable.Streams {
		types[st.Handle] = st.Type
	}
	handles, own := map[string]string{}, map[int]bool{}
	for _, w := range r.Weights {
		from := "h2d_" + w.Name
		k := weightKey{types[from].String(), maphash.Bytes(s.seed, w.Data)}
		at := slices.IndexFunc(s.by[k], func(i int) bool { return !own[i] && bytes.Equal(s.all[i].Data, w.Data) })
		if at >= 0 {
			at = s.by[k][at]
		} else {
			at = len(s.all)
			s.by[k] = append(s.by[k], at)
			w.Name = s.free(branch, w.Name)
			s.all = append(s.all, w)
		}
		own[at] = true
		handles[from] = "h2d_" + s.all[at].Name
	}
	return handles
}

// free returns the name of a new weight, and takes it.
func (s *fusedWeights) free(branch, name string) string {
	as := name
	for n := 1; s.used[as]; n++ {
		as = branch + "/" + name
		if n > 1 {
			as = fmt.Sprintf("%s_%d", as, n)
		}
	}
	s.used[as] = true
	return as
}

// and returns of what a model was compiled that was compiled of both.
func (s Source) and(other Source) Source {
	switch {
	case s.Producer == "":
		s.Producer = other.Producer
	case other.Producer != "" && !slices.Contains(strings.Split(s.Producer, ", "), other.Producer) && len(s.Producer)+len(other.Producer) < maxProducer:
		s.Producer += ", " + other.Producer
	}
	s.IR = max(s.IR, other.IR)
	for _, o := range other.Opsets {
		if !slices.Contains(s.Opsets, o) && len(s.Opsets) < maxOpsets {
			s.Opsets = append(s.Opsets, o)
		}
	}
	slices.SortFunc(s.Opsets, func(a, b SourceOpset) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Version, b.Version))
	})
	return s
}
