// Package page draws models: one self-contained HTML page with the graph, the
// program flow, the memory plan, times and weights of a model, or of two with
// their differences; the graph alone as SVG; or for Graphviz. The layout is
// computed here; the page's script only pans, zooms, searches and folds.
//
// Names in models are anybody's: all text is escaped for where it stands, and
// the page's own policy lets no script run but the one that belongs to it.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/popef/family"

	"github.com/popefgen/popefgen/internal/looks"
)

// Model is a model to be shown.
type Model struct {
	Name  string // the file's base name
	Bytes int64  // of its file, where that is no PopEF file; 0 for what its blobs take
	Model *popef.Model
	// Before is what the executable was before the graph passes, for a model
	// that was compiled just now; nil if that is not known.
	Before *graph.Executable
}

// Verdict is what a comparison of contracts says.
type Verdict struct {
	Verdict  contract.Verdict
	Count    string // how many findings of which kind
	Advice   string
	Findings []contract.Finding
}

// Options say what is on a page.
type Options struct {
	Model   Model
	Old     *Model   // to compare with; nil if Model is shown alone
	Verdict *Verdict // with Old
	Bench   *Bench   // times of Model; nil if there are none
}

// chart is a picture with its heading.
type chart struct {
	Title string
	SVG   template.HTML
}

// view is a graph as the page shows it.
type view struct {
	ID, Title string
	SVG       template.HTML
	Boxes     int
	Hidden    bool       // until its tab is chosen
	drawings  []*drawing // one, or those of members of a family that are alike, of which the first is drawn
	titles    []string   // of the drawings
	members   []int      // of the family that they are, -1 for none
}

// tab chooses a view, and which of its members it shows.
type tab struct {
	ID, View, Title string
	Member          int
	Chosen          bool
}

// sheet is all that a page shows of one model.
type sheet struct {
	Label, Name, Format, Contract, Kind string
	Properties                          []property
	Inputs, Outputs                     []interfaceEnd
	Facts                               [][2]string
	Flow                                []phase
	Anchors                             []anchor
	Views                               []*view
	Tabs                                []*tab
	Sizes                               []sizeRow // of a family of more than one member
	Passes                              []passReport
	Charts                              []chart
	Memory                              [][2]string
	Weights                             []weight
	WeightTotal                         string
	Left                                string   // weights that are not shown one by one
	shown                               *drawing // the one that is compared and measured
	plan                                *cpu.Plan
	charted                             *cpu.Plan      // the programs whose memory is drawn
	charts                              map[node]*box  // boxes of their nodes
	family                              *family.Family // nil if the model has one size
	callers                             contract.Callers
}

// passReport is what a pass did to the executable when it was compiled.
type passReport struct {
	Name, Words   string
	Before, After int64 // operators
	Changed       bool
}

// phase is a part of the program flow.
type phase struct {
	Name     string
	Programs []program
	More     int // programs that are not named
}

type program struct {
	Index   uint32
	Name    string
	In, Out []string
	More    int
	Graphs  []string
}

type anchor struct {
	Role, Name, Type, Shape, Bytes, Handle, Programs, Notes string
	Mark                                                    string
}

// document is what the template shows.
type document struct {
	Title    string
	Policy   template.HTMLAttr
	CSS      template.CSS
	Script   template.JS
	Defs     template.HTML
	Sheets   []*sheet
	Verdict  *Verdict
	Times    *times
	Families []struct{ ID, Name, kinds string }
	Data     any
	Changes  string
	Compare  bool
}

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// The page's script: the graph as it is drawn, what a person does to it, and
// what ties the page together.
var (
	//go:embed graph.js
	graphJS string
	//go:embed view.js
	viewJS string
	//go:embed page.js
	pageJS string
)

var script = "\n\"use strict\";\n(() => {\n" + graphJS + viewJS + pageJS + "})();\n"

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"show": printable,
	"ends": ends,
	"name": func(s string) string { return printable(clip(s)) },
	"label": func(f contract.Finding) string {
		return map[bool]string{true: "note", false: f.Verdict.String()}[f.Kind.Outside()]
	},
}).Parse(pageHTML))

// trusted marks markup that this package made, with all text in it escaped.
func trusted(s string) template.HTML { return template.HTML(s) }

// Write writes the page. Nothing in it depends on the time, the machine or
// where files lie, but for the times of [Options.Bench].
func Write(w io.Writer, o Options) error {
	models := []Model{o.Model}
	labels := []string{""}
	if o.Old != nil {
		models, labels = []Model{*o.Old, o.Model}, []string{"old", "new"}
	}
	d := &document{Title: printable(o.Model.Name), Verdict: o.Verdict, CSS: template.CSS(looks.Palette + graphCSS + looks.Base + pageCSS), Script: template.JS(script), Defs: trusted(arrowHead + hatching), Families: families, Compare: o.Old != nil}
	for i, m := range models {
		s, err := newSheet(m, labels[i], o.Old == nil)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		d.Sheets = append(d.Sheets, s)
	}
	if o.Old != nil {
		d.Title = printable(o.Old.Name) + " → " + d.Title
		d.compare()
	}
	sum := sha256.Sum256([]byte(d.Script))
	d.Policy = template.HTMLAttr(fmt.Sprintf(`content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'"`, base64.StdEncoding.EncodeToString(sum[:])))
	last := d.Sheets[len(d.Sheets)-1]
	if o.Bench != nil {
		if last.plan == nil {
			return fmt.Errorf("%w: %s has no portable executable", ErrProfile, o.Model.Name)
		}
		var err error
		if d.Times, err = timesOf(o.Bench, last.plan, last.shown, nodesOf(last.shown)); err != nil {
			return fmt.Errorf("%s: %w", o.Model.Name, err)
		}
	}
	data := []*viewData{}
	for k, s := range d.Sheets {
		for i, v := range s.Views {
			if err := v.lay(); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			g := v.drawings[0]
			body, width, height := g.body(false)
			v.ID, v.Boxes = viewID(k, i), len(g.boxes)-1
			v.SVG = trusted(fmt.Sprintf("<svg class=\"graph\" viewBox=\"0 0 %s %s\" width=\"%s\" height=\"%s\"><g class=\"world\">\n%s</g></svg>", px(width), px(height), px(width), px(height), body))
			told := g.data(v.ID)
			if len(v.drawings) > 1 {
				var err error
				if told.Vary, err = v.differing(); err != nil {
					return fmt.Errorf("%s: %w", s.Name, err)
				}
			}
			data = append(data, told)
		}
		s.tabs(k)
		if s.plan != nil {
			s.Charts = programCharts(s.charted, s.shown.exe, s.charts)
		}
	}
	d.Data = data
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, d); err != nil {
		return fmt.Errorf("writing the page of %s: %w", o.Model.Name, err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// newSheet gathers what a page shows of a model; both says whether the graph
// is shown before and after the passes.
func newSheet(m Model, label string, both bool) (*sheet, error) {
	md := &m.Model.Metadata
	c := contract.Of(m.Model)
	if c.Refused != nil {
		return nil, c.Refused
	}
	callers := c.Callers()
	s := &sheet{Label: label, Name: printable(m.Name), Contract: callers.Hash(), Kind: "training", family: c.Family, callers: callers}
	if md.IsInference {
		s.Kind = "inference"
	}
	blob, err := m.Model.Executable()
	if err != nil {
		return nil, err
	}
	format := ipu.Identify(blob)
	s.Format = format.String()
	var exe *graph.Executable
	if format == ipu.FormatPortable {
		if exe, err = encoding.Decode(blob); err != nil {
			return nil, fmt.Errorf("executable %q: %w", md.Executable, err)
		}
		if err := s.graph(exe, m.Before, Anchors(m.Model), both); err != nil {
			return nil, fmt.Errorf("executable %q: %w", md.Executable, err)
		}
	}
	s.Facts = facts(md)
	s.flow(m.Model, exe)
	s.anchors(m.Model)
	all, err := weightsOf(m.Model, exe)
	if err != nil {
		return nil, err
	}
	var total int64
	for i := range all {
		total += all[i].Bytes
	}
	s.WeightTotal = fmt.Sprintf("%d weights, %s", len(all), bytesText(total))
	s.Weights = all
	if s.shown != nil {
		exe = s.shown.exe
	}
	s.properties(m, exe)
	return s, nil
}

// graph draws the executable that is stored, and the other one of the two
// that passes lie between.
func (s *sheet) graph(exe, before *graph.Executable, anchors map[string]string, both bool) error {
	var err error
	if s.plan, err = cpu.PlanOf(exe, 1); err != nil {
		return err
	}
	s.Memory = [][2]string{{"arena, at its peak", bytesText(s.plan.ArenaBytes)}, {"persistent tensors, at most", bytesText(s.plan.PersistentBytes)},
		{"packed weights", bytesText(s.plan.PackedBytes)}, {"constants, in place", bytesText(s.plan.ConstantBytes)}}
	for _, p := range exe.Passes {
		s.Passes = append(s.Passes, passReport{p.Name, p.String(), p.Before, p.After, p.Before != p.After || len(p.Rewrites) > 0})
	}
	add := func(title string, e *graph.Executable, member int) (*drawing, error) {
		if err := drawable(e); err != nil {
			return nil, err
		}
		g := newDrawing(e, anchors)
		title = fmt.Sprintf("%s (%d)", title, running(e))
		if member >= 0 {
			for _, v := range s.Views {
				if alike(v.drawings[0], g) {
					v.drawings, v.titles, v.members = append(v.drawings, g), append(v.titles, title), append(v.members, member)
					return g, nil
				}
			}
		}
		s.Views = append(s.Views, &view{Title: title, Hidden: len(s.Views) > 0, drawings: []*drawing{g}, titles: []string{title}, members: []int{member}})
		return g, nil
	}
	changed := slices.ContainsFunc(s.Passes, func(p passReport) bool { return p.Changed })
	if s.family != nil {
		drawn, others := membersOf(s.family, exe, both) // two models are compared by their first sizes
		s.sizes(exe)
		s.plan = withoutPrograms(s.plan, others)
		for _, one := range drawn {
			g, err := add(one.name, one.exe, one.at)
			if err != nil {
				return err
			}
			if s.shown == nil {
				s.shown = g
			}
		}
		s.chartLargest(drawn)
		if both && before != nil && changed {
			_, err = add(drawn[0].name+" before the passes", onlyMember(s.family, before, 0), -1)
		}
		return err
	}
	if !both || before == nil || !changed {
		s.shown, err = add("the graph", exe, -1)
	} else if s.shown, err = add("after the passes", exe, -1); err == nil {
		_, err = add("before the passes", before, -1)
	}
	if err == nil {
		s.charted, s.charts = s.plan, nodesOf(s.shown)
	}
	return err
}

func (d *document) compare() {
	old, new := d.Sheets[0], d.Sheets[1]
	var parts []string
	if old.shown != nil && new.shown != nil {
		o := compare(old.shown, new.shown)
		parts = append(parts, plural(o.changed, "operator or anchor differs", "operators and anchors differ"))
		if o.follow > 0 {
			parts = append(parts, plural(o.follow, "more has other shapes because of that", "more have other shapes because of that"))
		}
		if o.renamed > 0 {
			parts = append(parts, plural(o.renamed, "has another name only", "have other names only"))
		}
	}
	parts = append(parts, plural(compareWeights(old.Weights, new.Weights), "weight differs", "weights differ"))
	d.Changes = strings.Join(parts, ", ")
	for _, s := range d.Sheets {
		for i := range s.Anchors {
			for _, f := range d.findings() {
				if f.Anchor == s.Anchors[i].Name && !f.Kind.Outside() {
					s.Anchors[i].Mark = "changed"
				}
			}
		}
	}
}

// HasSizes reports whether a model of the page has several sizes.
func (d *document) HasSizes() bool {
	return slices.ContainsFunc(d.Sheets, func(s *sheet) bool { return len(s.Sizes) > 0 })
}

func (d *document) findings() []contract.Finding {
	if d.Verdict == nil {
		return nil
	}
	return d.Verdict.Findings
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Idle names the passes that changed nothing.
func (s *sheet) Idle() string {
	var idle []string
	for _, p := range s.Passes {
		if !p.Changed {
			idle = append(idle, p.Name)
		}
	}
	switch len(idle) {
	case 0:
		return "all of them changed something"
	case len(s.Passes):
		return "none of " + strings.Join(idle, ", ") + " changed anything"
	}
	return "nothing by " + strings.Join(idle, ", ")
}

// Shown are the weights that are listed one by one.
func (s *sheet) Shown() []weight { return s.Weights[:min(len(s.Weights), maxWeights)] }

// Rest says how many weights are not listed.
func (s *sheet) Rest() string {
	n := len(s.Weights) - maxWeights
	if n <= 0 {
		return ""
	}
	var bytes int64
	for i := range s.Weights[maxWeights:] {
		bytes += s.Weights[maxWeights+i].Bytes
	}
	return fmt.Sprintf("%s, %s together", plural(n, "smaller weight", "smaller weights"), bytesText(bytes))
}
