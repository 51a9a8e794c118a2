package family

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/popef"
)

// key tells the tensors of one program apart.
type key struct {
	name string
	typ  popef.TensorType
}

// Of returns the family that a model is, nil if it has one size and no counts. If the
// blob [BlobName] claims a family that the file does not hold the error wraps [ErrFamily].
//
// Without such a blob a model is a family if it has several main programs, of which each
// moves run inputs and outputs of the same names, types and ranks, all with names of their
// own, and no two have the same sizes. Axes of one size in each member are one dimension then. Its
// name is "batch" if that is the first axis of every input
// that is open, else that of the first input with it and the axis, as in "tokens1".
func Of(m *popef.Model) (*Family, error) {
	carries := func(name string) bool { _, ok := m.Data(name); return ok }
	data, err := opaque(m, BlobName, func(size int64) error { return refuse("it has %d bytes, want at most %d", size, maxBytes) })
	switch {
	case err != nil:
		return nil, err
	case data != nil:
		return decode(&m.Metadata, carries, data)
	case slices.ContainsFunc(m.Opaques(), func(b *popef.Blob) bool { return b.Name == BranchesBlob }):
		return nil, nil // what its main programs are is said there
	}
	return find(&m.Metadata, carries), nil
}

// OfMetadata is [Of] for what stands in a file: its metadata, which names the files carry data
// for, and the payload of the blob, nil if there is none.
func OfMetadata(meta *popef.Metadata, carries func(name string) bool, blob []byte) (*Family, error) {
	if blob != nil {
		return decode(meta, carries, blob)
	}
	return find(meta, carries), nil
}

// runAnchors returns, by main program, the anchors that callers give to or take from each run, in
// the file's order: inputs before outputs.
func runAnchors(meta *popef.Metadata, carries func(string) bool) map[uint32][]int {
	all := map[uint32][]int{}
	for _, p := range meta.ProgramFlow.Main {
		all[p] = nil
	}
	before := map[uint32]bool{} // programs that are no requests: an input that one of them moves too is given once
	for _, list := range [][]uint32{meta.ProgramFlow.Load, meta.ProgramFlow.Save} {
		for _, p := range list {
			before[p] = true
		}
	}
	for _, typ := range []popef.TensorType{popef.Input, popef.Output} {
		for i := range meta.Anchors {
			a := &meta.Anchors[i]
			if a.Type != typ || typ == popef.Input && given(meta, carries, before, a) {
				continue
			}
			for _, p := range a.Programs {
				if of, ok := all[p]; ok && (len(of) == 0 || of[len(of)-1] != i) {
					all[p] = append(of, i)
				}
			}
		}
	}
	return all
}

// given reports whether an input has its value from elsewhere than the caller of a run.
func given(meta *popef.Metadata, carries func(string) bool, before map[uint32]bool, a *popef.Anchor) bool {
	return a.RemoteBuffer || a.Handle != "" && a.Handle == meta.SeedHandle || carries(a.Name) ||
		slices.ContainsFunc(a.Programs, func(p uint32) bool { return before[p] })
}

// find looks for a family in the metadata alone.
func find(meta *popef.Metadata, carries func(string) bool) *Family {
	mains := meta.ProgramFlow.Main
	if len(mains) < 2 || len(mains) > maxMembers {
		return nil
	}
	f := &Family{}
	anchors := make([]map[key]int, len(mains))
	var order []key
	run := runAnchors(meta, carries)
	if len(run) != len(mains) { // one runs twice
		return nil
	}
	for i, p := range mains {
		anchors[i] = map[key]int{}
		for _, k := range run[p] {
			id := key{meta.Anchors[k].Name, meta.Anchors[k].Type}
			if _, ok := anchors[i][id]; ok {
				return nil
			}
			anchors[i][id] = k
			if i == 0 {
				order = append(order, id)
			}
		}
		if len(anchors[i]) != len(order) || len(order) == 0 || len(order) > maxTensors {
			return nil
		}
		f.Members = append(f.Members, Member{Program: p})
	}
	// Members by the bytes that they move, which keeps one before all that it fits into.
	volume := make([]float64, len(mains))
	by := make([]int, len(mains))
	for i := range mains {
		by[i] = i
		for _, k := range anchors[i] {
			n, err := meta.Anchors[k].Info.SizeInBytes()
			if err != nil {
				return nil
			}
			volume[i] += float64(n)
		}
	}
	slices.SortStableFunc(by, func(a, b int) int { return cmp.Compare(volume[a], volume[b]) })
	f.Members = f.Members[:0]
	places := 0
	for _, i := range by {
		f.Members = append(f.Members, Member{Program: mains[i]})
	}
	for _, id := range order {
		t := Tensor{Name: id.name, Type: id.typ}
		for _, i := range by {
			k, ok := anchors[i][id]
			if !ok {
				return nil
			}
			t.Anchors = append(t.Anchors, k)
		}
		if places += len(mains) * len(meta.Anchors[t.Anchors[0]].Info.Shape); places > maxPlaces || f.axes(&t, meta) != nil {
			return nil
		}
		f.Tensors = append(f.Tensors, t)
	}
	if !f.name() || len(f.Dims) == 0 || f.checkDims() != nil || f.ordered() != nil {
		return nil
	}
	sizes := map[string]bool{}
	for i := range f.Members {
		sizes[fmt.Sprint(f.Members[i].Sizes)] = true
	}
	if len(sizes) != len(f.Members) {
		return nil
	}
	return f
}

// name makes axes of inputs that have the same sizes in every member one dimension, and axes of
// outputs with these sizes follow from it. It reports whether they
// are not too many.
func (f *Family) name() bool {
	batch := true // every open input has an open first axis, of the same sizes
	var first []int64
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Type != popef.Input || !t.Open() {
			continue
		}
		if first == nil {
			first = t.Axes[0].Sizes
		}
		batch = batch && first != nil && slices.Equal(first, t.Axes[0].Sizes)
	}
	names := map[string]bool{}
	for _, typ := range []popef.TensorType{popef.Input, popef.Output} {
		for i := range f.Tensors {
			t := &f.Tensors[i]
			if t.Type != typ {
				continue
			}
			for axis := range t.Axes {
				a := &t.Axes[axis]
				if a.Sizes == nil {
					continue
				}
				d := slices.IndexFunc(f.Dims, func(d Dim) bool { return slices.Equal(f.sizes(d.Name), a.Sizes) })
				if d < 0 && typ == popef.Input {
					if len(f.Dims) == maxDims {
						return false
					}
					name := fmt.Sprintf("%s%d", t.Name, axis)
					if axis == 0 && batch {
						name = "batch"
					}
					for names[name] {
						name += "_"
					}
					names[name] = true
					d = len(f.Dims)
					f.Dims = append(f.Dims, Dim{Name: name})
					for m := range f.Members {
						f.Members[m].Sizes = append(f.Members[m].Sizes, a.Sizes[m])
					}
				}
				if d >= 0 {
					a.Dim, a.Mul, a.Div = d, 1, 1
				}
			}
		}
	}
	return true
}

// sizes returns the sizes of a dimension by member.
func (f *Family) sizes(name string) []int64 {
	d := slices.IndexFunc(f.Dims, func(d Dim) bool { return d.Name == name })
	out := make([]int64, len(f.Members))
	for i := range f.Members {
		out[i] = f.Members[i].Sizes[d]
	}
	return out
}
