package page

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef/family"
)

// maxTabs is how many sizes of a family have a tab of their own.
const maxTabs = 12

// member is a size of a family that is drawn.
type member struct {
	name string
	exe  *graph.Executable
}

// membersOf returns the sizes of a family that are drawn, the first one first; of
// more than maxTabs every few one. others are the programs of those that are not.
func membersOf(f *family.Family, exe *graph.Executable) (drawn []member, others map[int]bool) {
	others = map[int]bool{}
	for _, m := range f.Members {
		others[int(m.Program)] = true
	}
	n := len(f.Members)
	for i := range min(n, maxTabs) {
		at := i
		if n > maxTabs {
			at = i * (n - 1) / (maxTabs - 1)
		}
		name := f.Named(f.Members[at].Sizes)
		if name == "" {
			name = "the graph"
		}
		drawn = append(drawn, member{printable(clip(name)), onlyMember(f, exe, at)})
		delete(others, int(f.Members[at].Program))
	}
	return drawn, others
}

// onlyMember returns an executable without the programs of other members, and
// without the graphs that only these call.
func onlyMember(f *family.Family, exe *graph.Executable, at int) *graph.Executable {
	one := *exe
	one.Programs = slices.DeleteFunc(slices.Clone(exe.Programs), func(p graph.Program) bool {
		m := f.Program(uint32(p.Index))
		return m >= 0 && m != at
	})
	kept := map[graph.GraphID]bool{}
	for i := range one.Programs {
		visit(exe, one.Programs[i].Steps, kept, func(graph.TensorID) {})
	}
	one.Graphs = slices.Clone(exe.Graphs)
	for i := range one.Graphs {
		if !kept[graph.GraphID(i)] {
			one.Graphs[i] = graph.Graph{}
		}
	}
	return &one
}

// withoutPrograms returns a plan whose charts leave programs out.
func withoutPrograms(plan *cpu.Plan, others map[int]bool) *cpu.Plan {
	one := *plan
	one.Programs = slices.DeleteFunc(slices.Clone(plan.Programs), func(p cpu.Program) bool { return others[p.Index] })
	return &one
}

// sizesText says how many sizes there are, and which.
func sizesText(f *family.Family) (number, list string) {
	const most = 8
	for i, m := range f.Members {
		if i == most {
			list += fmt.Sprintf(", and %d more", len(f.Members)-most)
			break
		}
		if i > 0 {
			list += ", "
		}
		list += f.Named(m.Sizes)
	}
	return fmt.Sprint(len(f.Members)), printable(clip(list))
}
