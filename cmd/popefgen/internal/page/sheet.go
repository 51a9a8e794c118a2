package page

import (
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// facts lists what the metadata say of the whole model.
func facts(md *popef.Metadata) [][2]string {
	out := [][2]string{{"executable", printable(md.Executable)}, {"IPUs", fmt.Sprint(md.NumIPUs)}, {"replication factor", fmt.Sprint(md.ReplicationFactor)},
		{"device iterations", fmt.Sprint(md.DeviceIterations)}}
	if md.SeedHandle != "" {
		out = append(out, [2]string{"seed handle", printable(md.SeedHandle)})
	}
	for _, list := range []struct {
		what    string
		options []popef.Option
	}{{"engine option", md.EngineOptions}, {"device option", md.DeviceOptions}} {
		for _, o := range list.options {
			out = append(out, [2]string{list.what, printable(o.Name + " = " + o.Value)})
		}
	}
	return out
}

// The program flow names maxPrograms programs of each phase, and maxMoved anchors
// of each program.
const (
	maxPrograms = 1000
	maxMoved    = 8
)

// flow lists the programs that load, run and save the model. exe is nil if it
// is not portable.
func (s *sheet) flow(m *popef.Model, exe *graph.Executable) {
	md := &m.Metadata
	names := map[uint32]string{}
	for _, p := range md.Programs {
		names[p.Index] = p.Name
	}
	of := map[int]*graph.Program{} // files may list very many, as they may anchors of each
	if exe != nil {
		for i := range exe.Programs {
			of[exe.Programs[i].Index] = &exe.Programs[i]
		}
	}
	moved := map[uint32][]int{} // anchors by program
	for i, a := range md.Anchors {
		for _, p := range a.Programs {
			if to := moved[p]; len(to) == 0 || to[len(to)-1] != i {
				moved[p] = append(to, i)
			}
		}
	}
	for _, f := range []struct {
		name string
		list []uint32
	}{{"load", md.ProgramFlow.Load}, {"main", md.ProgramFlow.Main}, {"save", md.ProgramFlow.Save}} {
		ph := phase{Name: f.name, More: max(0, len(f.list)-maxPrograms)}
		for _, index := range f.list[:len(f.list)-ph.More] {
			p := program{Index: index, Name: printable(clip(names[index]))}
			for _, i := range moved[index] {
				a := &md.Anchors[i]
				if len(p.In)+len(p.Out) == maxMoved {
					p.More++
					continue
				}
				if a.Type == popef.Output {
					p.Out = append(p.Out, printable(clip(a.Name)))
				} else {
					p.In = append(p.In, printable(clip(a.Name)))
				}
			}
			if x := of[int(index)]; x != nil {
				p.Graphs = called(exe, x.Steps)
			}
			ph.Programs = append(ph.Programs, p)
		}
		s.Flow = append(s.Flow, ph)
	}
}

// called says which graphs steps call.
func called(exe *graph.Executable, steps []graph.Step) (all []string) {
	for i := range steps {
		switch s := &steps[i]; s.Kind {
		case graph.Call:
			all = append(all, fmt.Sprintf("graph %d %s: %s", s.Graph, printable(clip(exe.Graphs[s.Graph].Name)), plural(len(exe.Graphs[s.Graph].Nodes), "operator", "operators")))
		case graph.Repeat:
			for _, c := range called(exe, s.Body) {
				all = append(all, fmt.Sprintf("%d times %s", s.Count, c))
			}
		}
	}
	return all
}

func (s *sheet) anchors(m *popef.Model) {
	roles := contract.Roles(m)
	c := contract.Of(m)
	other := map[int]bool{} // of other members than the first, by index
	shapes := map[int]string{}
	if c.Family != nil {
		for _, a := range c.Anchors {
			other[a.Index] = a.Member > 0
		}
		for i, a := range c.Visible() {
			if s.callers.Fields[i].Open() {
				shapes[a.Index] = strings.ReplaceAll(s.callers.ShapeText(i), " ", ",")
			}
		}
	}
	transfers := make([]int, len(m.Metadata.Anchors))
	for _, a := range c.Anchors {
		transfers[a.Index] = a.Transfers
	}
	for i, a := range m.Metadata.Anchors {
		if other[i] {
			continue
		}
		out := anchor{Role: roles[i].String(), Name: a.Name, Type: a.Info.DataType.String(), Handle: printable(clip(a.Handle)), Shape: strings.ReplaceAll(fmt.Sprint(a.Info.Shape), " ", ","),
			Programs: clip(strings.Trim(fmt.Sprint(a.Programs), "[]"))}
		if shape, ok := shapes[i]; ok {
			out.Shape = printable(shape)
		}
		if n, err := a.Info.SizeInBytes(); err == nil {
			out.Bytes = bytesText(n)
		}
		var notes []string
		if _, ok := m.Data(a.Name); ok && a.Type.TakesData() {
			notes = append(notes, "data in file")
		}
		if a.PerReplica {
			notes = append(notes, "per replica")
		}
		if a.RemoteBuffer {
			notes = append(notes, "remote buffer")
		}
		if transfers[i] > 0 {
			notes = append(notes, fmt.Sprintf("%d × a run", transfers[i]))
		}
		out.Notes = strings.Join(notes, ", ")
		s.Anchors = append(s.Anchors, out)
	}
}

// viewData is what the page's script knows of a graph.
type viewData struct {
	ID    string      `json:"id"`
	Boxes []boxData   `json:"boxes"`
	Sizes [13]float64 `json:"sizes"` // frame's pad and header, gap of rows, width left of an empty strip, where shapes stand
	Vary  []*varied   `json:"vary,omitempty"`
}

type boxData struct {
	Title  string     `json:"t"`
	Family string     `json:"c"`
	Shown  []string   `json:"l"`           // title and lines
	Short  string     `json:"e,omitempty"` // of the name, below
	Name   string     `json:"n,omitempty"`
	Type   string     `json:"y,omitempty"`
	Parent int        `json:"p"`
	Size   [2]float64 `json:"s"`
	Mark   string     `json:"m,omitempty"`
	Peer   *int       `json:"peer,omitempty"`
	Heat   float64    `json:"h,omitempty"`
	Detail detail     `json:"d"`
	Frame  *frameData `json:"f,omitempty"`
	Folded bool       `json:"folded,omitempty"`
	Count  float64    `json:"o,omitempty"` // of a group: where how many operators it has stands, behind its title
}

type frameData struct {
	Items []int     `json:"items"`
	Rows  [][]int   `json:"rows"`
	X     []float64 `json:"x"`
	Width float64   `json:"w"`
	Links [][]int   `json:"links"` // from, its port, to, its port, bends
	Exits [][4]any  `json:"exits"` // from, its port, the shape, its width
}

// countAt is how far behind the start of its title the number of a group's
// operators stands.
func countAt(title string) float64 { return 8 + float64(columns(title))*titleColumn }

// data returns a box for the page's script, without its place among others.
func (b *box) data() boxData {
	x := boxData{Title: printable(b.Title), Name: printable(clip(b.Name)), Type: b.Type, Parent: -1, Mark: b.mark, Heat: b.heat, Detail: b.Detail, Folded: b.folded}
	x.Size[0], x.Size[1] = b.shut()
	x.Family = b.Family
	title, lines, name := b.shows()
	x.Shown, x.Short = append([]string{title}, lines...), name
	return x
}

// data returns a drawing for the page's script.
func (d *drawing) data(id string) *viewData {
	v := &viewData{ID: id, Sizes: [13]float64{framePad, frameHeader, rowGap, emptyStrip, tagGap, tagDrop, tagOver, portGap, edgeStub, leaveGap, leafPad + 2, titleHeight, lineHeight}}
	for _, b := range d.boxes {
		x := b.data()
		if b.parent != nil {
			x.Parent = b.parent.ID
		}
		if b.peer != nil {
			x.Peer = &b.peer.ID
		}
		if f := b.frame; f != nil {
			x.Count = countAt(x.Shown[0])
			x.Frame = &frameData{Rows: f.rows, X: f.x, Width: f.width, Items: []int{}, Links: [][]int{}, Exits: [][4]any{}}
			for _, k := range f.items {
				x.Frame.Items = append(x.Frame.Items, k.ID)
			}
			for _, l := range f.links {
				x.Frame.Links = append(x.Frame.Links, append([]int{l.from, l.fromPort, l.to, l.toPort}, l.bends...))
			}
			for i := range f.exits {
				e := &f.exits[i]
				x.Frame.Exits = append(x.Frame.Exits, [4]any{e.from, e.port, e.text, e.width})
			}
		}
		v.Boxes = append(v.Boxes, x)
	}
	return v
}
