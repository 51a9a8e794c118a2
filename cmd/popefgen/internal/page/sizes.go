package page

import (
	"cmp"
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
	name    string
	exe     *graph.Executable
	at      int // in the family
	program int // by which it is run
}

// sizeRow is a member of a family in the table of all of them.
type sizeRow struct {
	Name, Operations, Arena string
	Operators               int
	Bar                     float64 // its arena, of the largest one's, in hundredths
	Tab                     string  // that shows it; "" if none does
}

// maxSizes of a family are rows of the table.
const maxSizes = 256

// membersOf returns the sizes of a family that are drawn, the first one first; of
// more than maxTabs every few one, and without all the first alone. others are the
// programs of those that are not.
func membersOf(f *family.Family, exe *graph.Executable, all bool) (drawn []member, others map[int]bool) {
	others = map[int]bool{}
	for _, m := range f.Members {
		others[int(m.Program)] = true
	}
	n := len(f.Members)
	for i := range min(n, maxTabs) {
		if i > 0 && !all {
			break
		}
		at := i
		if n > maxTabs {
			at = i * (n - 1) / (maxTabs - 1)
		}
		drawn = append(drawn, member{memberName(f, at), onlyMember(f, exe, at), at, int(f.Members[at].Program)})
		delete(others, int(f.Members[at].Program))
	}
	return drawn, others
}

func memberName(f *family.Family, at int) string {
	return printable(clip(cmp.Or(f.Named(f.Members[at].Sizes), "the graph")))
}

// sizes fills the table of the members of a family.
func (s *sheet) sizes(exe *graph.Executable) {
	f := s.family
	if len(f.Members) < 2 {
		return
	}
	arenas, most := arenasOf(s.plan), int64(1)
	for _, m := range f.Members {
		most = max(most, arenas[int(m.Program)])
	}
	for i, m := range f.Members[:min(len(f.Members), maxSizes)] {
		arena := arenas[int(m.Program)]
		s.Sizes = append(s.Sizes, sizeRow{Name: memberName(f, i), Operations: amount(m.Cost), Arena: bytesText(arena),
			Operators: running(onlyMember(f, exe, i)), Bar: 100 * float64(arena) / float64(most)})
	}
}

// MoreSizes says how many members the table leaves out.
func (s *sheet) MoreSizes() int { return len(s.family.Members) - len(s.Sizes) }

func arenasOf(plan *cpu.Plan) map[int]int64 {
	arenas := map[int]int64{}
	for i := range plan.Programs {
		arenas[plan.Programs[i].Index] = plan.Programs[i].ArenaBytes
	}
	return arenas
}

// chartLargest chooses the charts of memory: of the members that share a
// drawing that of the largest arena. drawn are the members in the order of the
// drawings' own.
func (s *sheet) chartLargest(drawn []member) {
	arenas, left := arenasOf(s.plan), map[int]bool{}
	byName := map[*graph.Executable]int{}
	for _, m := range drawn {
		byName[m.exe], left[m.program] = m.program, true
	}
	for i, v := range s.Views {
		best := v.drawings[0]
		for _, d := range v.drawings[1:] {
			if arenas[byName[d.exe]] > arenas[byName[best.exe]] {
				best = d
			}
		}
		delete(left, byName[best.exe])
		if i == 0 {
			s.charts = nodesOf(best) // of the same numbers as those of the drawing that is shown
		}
	}
	s.charted = withoutPrograms(s.plan, left)
}

// viewID names a view on the page.
func viewID(sheet, view int) string { return fmt.Sprintf("view%d%c", sheet, 'a'+rune(view)) }

// tabs makes the tabs of the views, members in the order of their sizes.
func (s *sheet) tabs(sheet int) {
	if len(s.Views) == 1 && len(s.Views[0].drawings) == 1 {
		return
	}
	member := map[*tab]int{}
	for _, v := range s.Views {
		for k, title := range v.titles {
			t := &tab{ID: fmt.Sprintf("tab-%s-%d", v.ID, k), View: v.ID, Title: title, Member: k, Chosen: !v.Hidden && k == 0}
			s.Tabs = append(s.Tabs, t)
			at := v.members[k]
			if member[t] = at; at < 0 {
				member[t] = len(s.Sizes) // before the passes, last
			} else if at < len(s.Sizes) {
				s.Sizes[at].Tab = t.ID
			}
		}
	}
	slices.SortStableFunc(s.Tabs, func(a, b *tab) int { return member[a] - member[b] })
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
