package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// ChangeKind says what about a contract changed.
type ChangeKind uint8

// The kinds of change, in the order in which [Diff] lists those of one anchor.
const (
	AnchorRemoved ChangeKind = iota
	AnchorAdded
	NameChanged
	HandleChanged
	DirectionChanged
	TypeChanged
	ShapeChanged
	RoleChanged
	DataChanged
	ProgramsChanged
	PerReplicaChanged
	RemoteBufferChanged
	RepeatsChanged
	ReplicasChanged
	IPUsChanged
	IterationsChanged
	SeedChanged
	LoadFlowChanged
	MainFlowChanged
	SaveFlowChanged
	numChangeKinds
)

var changeNames = [numChangeKinds]string{"anchor removed", "anchor added", "name", "handle", "direction", "type", "shape",
	"role", "data", "programs", "per replica", "remote buffer", "repeats", "replicas", "IPUs", "device iterations",
	"seed handle", "load flow", "main flow", "save flow"}

// String returns the kind in words, such as "shape" or "anchor removed".
func (k ChangeKind) String() string {
	if k < numChangeKinds {
		return changeNames[k]
	}
	return fmt.Sprintf("change(%d)", uint8(k))
}

// Change is one difference between two contracts.
type Change struct {
	Kind   ChangeKind
	Anchor string // name of the anchor, in the old contract if it is there; "" if the change is not one of an anchor
	Role   Role   // role of that anchor, likewise
	Old    string // what it was; "" if there was nothing
	New    string // what it is; "" if there is nothing
}

// String returns the change as one sentence, such as
// `run input "image": shape was [4 1 28 28], is [8 1 28 28]`.
func (c Change) String() string {
	switch c.Kind {
	case AnchorRemoved:
		return fmt.Sprintf("%v %q (%s) is gone", c.Role, c.Anchor, c.Old)
	case AnchorAdded:
		return fmt.Sprintf("%v %q (%s) is new", c.Role, c.Anchor, c.New)
	case NameChanged:
		return fmt.Sprintf("%v %s is now named %s", c.Role, c.Old, c.New)
	case ReplicasChanged, IPUsChanged, IterationsChanged, SeedChanged, LoadFlowChanged, MainFlowChanged, SaveFlowChanged:
		return fmt.Sprintf("%v: was %s, is %s", c.Kind, c.Old, c.New)
	}
	return fmt.Sprintf("%v %q: %v was %s, is %s", c.Role, c.Anchor, c.Kind, c.Old, c.New)
}

// Diff returns every difference between two contracts, first those of the
// model as a whole, then those of anchors in the old contract's order, then
// new anchors. It is empty if and only if the texts are equal.
//
// Anchors are paired by name, direction and handle where possible, then by
// name and direction, then by name, then by direction and handle, so that a
// renamed anchor is one change and not two.
func Diff(old, new Contract) []Change {
	var all []Change
	add := func(k ChangeKind, a *Anchor, was, is string) {
		if was == is {
			return
		}
		c := Change{Kind: k, Old: was, New: is}
		if a != nil {
			c.Anchor, c.Role = a.Name, a.Role
		}
		all = append(all, c)
	}
	number := func(n uint32) string { return fmt.Sprint(n) }
	add(ReplicasChanged, nil, number(old.Replicas), number(new.Replicas))
	add(IPUsChanged, nil, number(old.IPUs), number(new.IPUs))
	add(IterationsChanged, nil, number(old.Iterations), number(new.Iterations))
	add(SeedChanged, nil, quote(old.SeedHandle), quote(new.SeedHandle))
	add(LoadFlowChanged, nil, fmt.Sprint(old.Flow.Load), fmt.Sprint(new.Flow.Load))
	add(MainFlowChanged, nil, fmt.Sprint(old.Flow.Main), fmt.Sprint(new.Flow.Main))
	add(SaveFlowChanged, nil, fmt.Sprint(old.Flow.Save), fmt.Sprint(new.Flow.Save))

	pairs, added := pair(old.Anchors, new.Anchors)
	for i, j := range pairs {
		a := &old.Anchors[i]
		if j < 0 {
			add(AnchorRemoved, a, a.summary(), "")
			continue
		}
		b := &new.Anchors[j]
		add(NameChanged, a, quote(a.Name), quote(b.Name))
		add(HandleChanged, a, quote(a.Handle), quote(b.Handle))
		add(DirectionChanged, a, a.Type.String(), b.Type.String())
		add(TypeChanged, a, a.Info.DataType.String(), b.Info.DataType.String())
		add(ShapeChanged, a, fmt.Sprint(a.Info.Shape), fmt.Sprint(b.Info.Shape))
		add(RoleChanged, a, a.Role.String(), b.Role.String())
		add(DataChanged, a, inFile(a.HasData), inFile(b.HasData))
		add(ProgramsChanged, a, fmt.Sprint(a.Programs), fmt.Sprint(b.Programs))
		add(PerReplicaChanged, a, yesNo(a.PerReplica), yesNo(b.PerReplica))
		add(RemoteBufferChanged, a, yesNo(a.RemoteBuffer), yesNo(b.RemoteBuffer))
		add(RepeatsChanged, a, number(a.Repeats), number(b.Repeats))
	}
	for _, j := range added {
		add(AnchorAdded, &new.Anchors[j], "", new.Anchors[j].summary())
	}
	return all
}

// pair returns, for every old anchor, the index of the new one that it became
// or -1, and the new anchors that none became.
func pair(old, new []Anchor) (pairs, added []int) {
	pairs = make([]int, len(old))
	for i := range pairs {
		pairs[i] = -1
	}
	taken := make([]bool, len(new))
	type key struct {
		name, handle string
		typ          popef.TensorType
	}
	for _, by := range []func(a *Anchor) (key, bool){
		func(a *Anchor) (key, bool) { return key{a.Name, a.Handle, a.Type}, true },
		func(a *Anchor) (key, bool) { return key{a.Name, "", a.Type}, a.Name != "" },
		func(a *Anchor) (key, bool) { return key{a.Name, "", 0}, a.Name != "" },
		func(a *Anchor) (key, bool) { return key{"", a.Handle, a.Type}, a.Handle != "" },
	} {
		free := map[key][]int{}
		for j := range new {
			if k, ok := by(&new[j]); ok && !taken[j] {
				free[k] = append(free[k], j)
			}
		}
		for i := range old {
			k, ok := by(&old[i])
			if list := free[k]; ok && pairs[i] < 0 && len(list) > 0 {
				pairs[i], free[k] = list[0], list[1:]
				taken[list[0]] = true
			}
		}
	}
	for j := range new {
		if !taken[j] {
			added = append(added, j)
		}
	}
	return pairs, added
}

// summary returns the likes of `F32 [4 10], handle "h2d_w", with data`.
func (a *Anchor) summary() string {
	s := []string{a.Info.String()}
	if a.Handle != "" {
		s = append(s, "handle "+quote(a.Handle))
	}
	if a.HasData {
		s = append(s, "with data")
	}
	return strings.Join(s, ", ")
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

func inFile(has bool) string {
	if has {
		return "in the file"
	}
	return "not in the file"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Anchor returns the first anchor with that stream handle, nil if there is
// none or handle is empty.
func (c Contract) Anchor(handle string) *Anchor {
	i := slices.IndexFunc(c.Anchors, func(a Anchor) bool { return a.Handle == handle })
	if i < 0 || handle == "" {
		return nil
	}
	return &c.Anchors[i]
}
