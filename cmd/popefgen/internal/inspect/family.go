package inspect

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"
)

// familyInfo is a model of several sizes at a glance.
type familyInfo struct {
	Dimensions []dimInfo    `json:"dimensions"`
	Tensors    []sizedInfo  `json:"tensors"`
	Members    []memberInfo `json:"members"`

	family *family.Family
	one    bool // --size chose a member
}

// dimInfo is an open dimension.
type dimInfo struct {
	Name string            `json:"name"`
	Rows bool              `json:"rows"`           // proven independent of each other
	Pads map[string]string `json:"pads,omitempty"` // values by input
}

// sizedInfo is a run input or output of all members.
type sizedInfo struct {
	Role  string `json:"role"`
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape string `json:"shape"` // with the names of open dimensions
}

// memberInfo is one size.
type memberInfo struct {
	Program    uint32  `json:"program"`
	Sizes      []int64 `json:"sizes"`
	Operations float64 `json:"operations"`      // estimated, of a run
	Nodes      int     `json:"nodes,omitempty"` // of portable executables: of what the program calls
	Alone      int     `json:"nodes_alone,omitempty"`
	Arena      int64   `json:"arena_bytes,omitempty"`
}

// familyOfContract gathers what there is to say of a family, nil if the model has
// one size.
func familyOfContract(c contract.Contract, e *graph.Executable, plan *cpu.Plan) *familyInfo {
	f := c.Family
	if f == nil {
		return nil
	}
	callers := c.Callers()
	out := &familyInfo{family: f, Dimensions: []dimInfo{}, Tensors: []sizedInfo{}, Members: []memberInfo{}}
	for _, d := range f.Dims {
		info := dimInfo{Name: d.Name, Rows: d.Rows}
		for _, p := range d.Pads {
			if info.Pads == nil {
				info.Pads = map[string]string{}
			}
			info.Pads[p.Input] = p.Value
		}
		out.Dimensions = append(out.Dimensions, info)
	}
	for i := range callers.Fields {
		if g := callers.Fields[i].Group; g == contract.Inputs || g == contract.Outputs {
			role, shape := contract.RunInput, callers.ShapeText(i)
			if g == contract.Outputs {
				role = contract.RunOutput
			}
			out.Tensors = append(out.Tensors, sizedInfo{role.String(), callers.Fields[i].Name, callers.Fields[i].Info.DataType.String(), shape})
		}
	}
	calls := map[uint32]map[int]bool{}
	users := map[int]int{} // programs of members that call a graph
	for _, m := range f.Members {
		if e != nil {
			calls[m.Program] = calledGraphs(e, int(m.Program))
			for g := range calls[m.Program] {
				users[g]++
			}
		}
	}
	for _, m := range f.Members {
		info := memberInfo{Program: m.Program, Sizes: list(m.Sizes), Operations: m.Cost}
		for g := range calls[m.Program] {
			n := len(e.Graphs[g].Nodes)
			info.Nodes += n
			if users[g] == 1 {
				info.Alone += n
			}
		}
		if plan != nil {
			for i := range plan.Programs {
				if plan.Programs[i].Index == int(m.Program) {
					info.Arena = plan.Programs[i].ArenaBytes
				}
			}
		}
		out.Members = append(out.Members, info)
	}
	return out
}

// calledGraphs returns the graphs that a program calls.
func calledGraphs(e *graph.Executable, program int) map[int]bool {
	called := map[int]bool{}
	for i := range e.Programs {
		if int(e.Programs[i].Index) == program {
			graph.Walk(e.Programs[i].Steps, func(s *graph.Step) {
				if s.Kind == graph.Call {
					called[int(s.Graph)] = true
				}
			})
		}
	}
	return called
}

// choose leaves what the user asks for: the anchors of one member, else of the first,
// and what that computes.
func (m *modelInfo) choose(model *popef.Model, choose Chooser) error {
	if m.Family == nil {
		_, _, err := choose(model, nil)
		return err
	}
	member, asked, err := choose(model, m.Family.family)
	if err != nil {
		return err
	}
	if m.Family.one = asked; asked && m.Portable != nil {
		m.Portable.one(m.Load, m.Family.family.Members[member].Program)
	}
	for i := range m.Anchors {
		for _, t := range m.Family.family.Tensors {
			if at := slices.Index(t.Anchors, i); at >= 0 && t.Anchors[member] != i {
				m.Anchors[i].other = true
			}
		}
	}
	return nil
}

// one leaves of a portable executable what a member's run and the load programs take.
func (p *portableInfo) one(load []uint32, program uint32) {
	kept := map[int]bool{int(program): true}
	for _, l := range load {
		kept[int(l)] = true
	}
	exe, plan := *p.exe, *p.plan
	exe.Programs, plan.Programs = nil, nil
	called := map[int]bool{}
	for i := range p.exe.Programs {
		if at := int(p.exe.Programs[i].Index); kept[at] {
			exe.Programs = append(exe.Programs, p.exe.Programs[i])
			for g := range calledGraphs(p.exe, at) {
				called[g] = true
			}
		}
	}
	for i := range p.plan.Programs {
		if kept[p.plan.Programs[i].Index] {
			plan.Programs = append(plan.Programs, p.plan.Programs[i])
		}
	}
	p.hidden = map[int]bool{}
	for i := range exe.Graphs {
		p.hidden[i] = !called[i]
	}
	p.exe, p.plan = &exe, &plan
}

// dump prints the executable, without the graphs that are hidden.
func (p *portableInfo) dump(w io.Writer) error {
	if p.hidden == nil {
		return dump.Write(w, p.exe)
	}
	var b strings.Builder
	if err := dump.Write(&b, p.exe); err != nil {
		return err
	}
	hidden := false
	for line := range strings.Lines(b.String()) {
		var g int
		if n, _ := fmt.Sscanf(line, "  graph %d ", &g); n == 1 {
			hidden = p.hidden[g]
		} else if !strings.HasPrefix(line, " ") {
			hidden = false
		}
		if !hidden {
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// print shows the family: its dimensions and tensors, and a row for each member.
func (f *familyInfo) print(w io.Writer) error {
	fmt.Fprintf(w, "\nFAMILY of %s\n", table.Counted(len(f.Members), "size"))
	for _, d := range f.Dimensions {
		var may []string
		if d.Rows {
			may = append(may, "rows are independent: smaller sizes are filled up")
		}
		for _, t := range f.family.Tensors {
			if v, ok := d.Pads[t.Name]; ok {
				may = append(may, fmt.Sprintf("%s may be filled up with %s", printable.Line(t.Name), printable.Line(v)))
			}
		}
		if may == nil {
			may = append(may, "sizes that no member has are refused")
		}
		fmt.Fprintf(w, "%-17s  %s\n", printable.Line(d.Name), strings.Join(may, "; "))
	}
	t := table.New("TENSOR", "NAME", "TYPE", "SHAPE")
	for _, s := range f.Tensors {
		t.Row(s.Role, s.Name, s.Type, s.Shape)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	head := []string{"PROGRAM"}
	for _, d := range f.Dimensions {
		head = append(head, strings.ToUpper(printable.Line(d.Name)))
	}
	t = table.New(append(head, "OPERATIONS", "NODES", "ITS OWN", "ARENA")...)
	for _, m := range f.Members {
		row := []any{m.Program}
		for _, n := range m.Sizes {
			row = append(row, n)
		}
		row = append(row, orDashFloat(m.Operations), m.Nodes, m.Alone, humanize.IBytes(uint64(m.Arena)))
		t.Row(row...)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	if !f.one {
		fmt.Fprintln(w, "\nwhat one size computes: --size NAME=N,NAME=N; step by step: with --plan")
	}
	return nil
}

// orDashFloat shows how many operations there are, a dash if nobody knows.
func orDashFloat(n float64) string {
	if n <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g", n)
}
