// Package contract holds what a program and a model agree on. A [Contract] is
// everything that a run depends on: the anchors with their types, shapes,
// directions and stream handles, the program flow, the device iterations, and
// which anchors the files carry data for. [Callers] is the part of it that
// callers of a generated package see, and all that such a package insists on:
// it opens every model whose part for callers [Judge] finds no fault with,
// whatever its weights are called.
//
// A model of several sizes ([family.Family]) has each tensor once in the part for
// callers, with the names of its open dimensions, and the sizes of its members
// behind the fields. One of which several models were made ([family.Branch]) has the names of its branches.
//
// The part for callers has one canonical text ([Callers.Text]), and its hash
// identifies it. The package also decides the [Role] of every anchor, once for
// the generator and the runtime alike.
package contract

import (
	"cmp"
	"slices"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// Contract is what a program and a model agree on. Its anchors are sorted by
// name, direction and handle, their program lists ascending and without
// repetition.
type Contract struct {
	Replicas   uint32 // replication factor of the executable
	IPUs       uint32 // IPUs of the device, over all replicas
	Iterations uint32 // device iterations; 0 = not recorded, see [Contract.DeviceIterations]
	SeedHandle string // stream handle of the random seed; empty if there is none
	Flow       popef.ProgramFlow
	Inference  bool     // it was compiled for inference: its weights stay as they are
	Evaluate   uint32   // program that computes what a step does without changing weights; 0 if there is none. Of a family it is that of the first member
	Evaluates  []uint32 // by member of a family, if each has one; else nil
	Anchors    []Anchor
	Family     *family.Family  // what its main programs have in common; nil for a model of one size without counts
	Branches   []family.Branch // models of their own that its main programs are; nil if it is not fused
	Refused    error           // why the files hold no family, branches or transfers, although they claim so: wraps [family.ErrFamily], [family.ErrBranches] or [ErrTransfers]. Nobody may run such a model
}

// Anchor is one anchor of a contract.
type Anchor struct {
	Name         string           // not unique: PopART's weights are an input and an output of one name
	Handle       string           // stream handle; empty if the anchor has no stream
	Type         popef.TensorType // direction
	Info         popef.TensorInfo // element type and shape of one transfer
	Programs     []uint32         // programs that move it, ascending; empty = not recorded
	PerReplica   bool             // every replica has a value of its own
	RemoteBuffer bool             // lives in memory outside the device that the device can reach
	Repeats      uint32           // equal blocks in the remote buffer, at least 1
	HasData      bool             // the files carry tensor or feed data for it
	Role         Role             // what it is to a program; follows from everything else
	Index        int              // its place among the anchors in the file
	// Member is the index of the member of the family whose run moves it; 0 if
	// there is no family, and for anchors that no run moves.
	Member int
	// Counts says that it is a run output that says how much of another is
	// filled ([family.Axis.Count]). Callers see it as the length of that.
	Counts bool
	// Transfers is how many transfers of it a run makes, of a run input or output that has a number of its
	// own, else 0: see [Contract.Transfers].
	Transfers int
}

// Of returns the contract of a model.
func Of(m *popef.Model) Contract {
	c := of(&m.Metadata, func(name string) bool { return carries(m, name) })
	if c.Family, c.Refused = family.Of(m); c.Refused == nil {
		c.Branches, c.Refused = family.BranchesOf(m)
	}
	if c.Refused == nil {
		c.Refused = c.readTransfers(m)
	}
	if c.Family != nil {
		c.members()
		c.evaluatesMembers(&m.Metadata)
	}
	return c
}

// members says of every anchor of a family whose it is.
func (c *Contract) members() {
	type place struct {
		member int
		counts bool
	}
	counters := map[string]bool{"": false}
	for i := range c.Family.Tensors {
		for _, a := range c.Family.Tensors[i].Axes {
			counters[a.Count] = a.Count != ""
		}
	}
	at := map[int]place{}
	for i := range c.Family.Tensors {
		t := &c.Family.Tensors[i]
		counts := t.Type == popef.Output && counters[t.Name]
		for m, index := range t.Anchors {
			at[index] = place{m, counts}
		}
	}
	for i := range c.Anchors {
		a := &c.Anchors[i]
		a.Member, a.Counts = at[a.Index].member, at[a.Index].counts
	}
}

// carries reports whether the model's files carry data of that name.
func carries(m *popef.Model, name string) bool {
	_, ok := m.Data(name)
	return ok
}

func of(meta *popef.Metadata, carries func(name string) bool) Contract {
	c := Contract{
		Replicas:   meta.ReplicationFactor,
		IPUs:       meta.NumIPUs,
		Iterations: meta.DeviceIterations,
		SeedHandle: meta.SeedHandle,
		Inference:  meta.IsInference,
		Evaluate:   evaluates(meta),
		Flow: popef.ProgramFlow{
			Load: slices.Clone(meta.ProgramFlow.Load),
			Main: slices.Clone(meta.ProgramFlow.Main),
			Save: slices.Clone(meta.ProgramFlow.Save),
		},
	}
	for i, a := range meta.Anchors {
		c.Anchors = append(c.Anchors, Anchor{
			Name:         a.Name,
			Handle:       a.Handle,
			Type:         a.Type,
			Info:         popef.TensorInfo{Shape: slices.Clone(a.Info.Shape), DataType: a.Info.DataType},
			Programs:     slices.Clone(a.Programs),
			PerReplica:   a.PerReplica,
			RemoteBuffer: a.RemoteBuffer,
			Repeats:      a.Repeats,
			HasData:      a.Type.TakesData() && carries(a.Name),
			Index:        i,
		})
	}
	c.settle(meta.Programs)
	return c
}

// settle puts everything whose order means nothing in order, and decides the
// anchors' roles; programs are the names of programs that are known.
func (c *Contract) settle(programs []popef.ProgramInfo) {
	for i := range c.Anchors {
		a := &c.Anchors[i]
		slices.Sort(a.Programs)
		a.Programs = slices.Compact(a.Programs)
		a.Repeats = max(1, a.Repeats)
	}
	slices.SortStableFunc(c.Anchors, func(a, b Anchor) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Handle, b.Handle))
	})
	for i, r := range c.roles(programs) {
		c.Anchors[i].Role = r
	}
}

// DeviceIterations returns how many transfers of every run input and output
// one run makes that has no number of its own, at least 1: frameworks that do not record the number (it is
// 0 then) make one.
func (c Contract) DeviceIterations() int { return int(max(1, c.Iterations)) }

// Anchor returns the first anchor with that stream handle, nil if there is
// none or handle is empty.
func (c Contract) Anchor(handle string) *Anchor {
	i := slices.IndexFunc(c.Anchors, func(a Anchor) bool { return a.Handle == handle })
	if i < 0 || handle == "" {
		return nil
	}
	return &c.Anchors[i]
}
