package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/peer/onnxruntime"
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/bench/report"
	"github.com/popefgen/popefgen/internal/measure"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/tensorfile"
	"github.com/popefgen/popefgen/onnx/verify"
)

// detector is a public model with its suppression behind it, as exporters write detectors that need
// nothing more: what it finds is as much as is in the picture.
type detector struct {
	name  string
	found int64 // boxes in the picture that is measured
	runs  [2][2]*measure.Series
}

// heads are what is put behind the public detectors, by the names of their folders. The least scores
// are low, since the pictures of their data sets are noise: much is to be found in them.
var heads = []struct {
	model string
	put   func(h *head)
}{
	{"ultraface_slim_320", (*head).ultraface},
	{"blazeface_front_128", (*head).blazeface},
	{"fastestdet_352", (*head).fastestdet},
}

// measureDetectors measures the detectors with their suppression inside.
func measureDetectors(cfg measure.Config, dir, only string, most int) ([]*detector, error) {
	var all []*detector
	for _, h := range heads {
		if only != "" && only != h.model {
			continue
		}
		progress(h.model + ", suppression inside")
		d, c, err := newDetector(filepath.Join(dir, h.model), h.put)
		for i := 0; err == nil && i < most; i++ {
			d.runs[i], err = sequences(cfg, i+1, c.ONNX, c.PopEF, []peer.Case{*c}, compareRows)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, suppression inside: %w", h.model, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// newDetector joins a public model and a head, and compiles what that makes for the picture of its first
// data set. ONNX Runtime says how much is in it.
func newDetector(dir string, put func(*head)) (*detector, *peer.Case, error) {
	d, c := &detector{name: filepath.Base(dir)}, &peer.Case{Name: filepath.Base(dir)}
	m, err := onnx.ReadFile(filepath.Join(dir, "model.onnx"))
	if err != nil {
		return nil, nil, err
	}
	h := &head{model: m}
	h.raise()
	put(h)
	if c.ONNX, err = onnx.Encode(m); err != nil {
		return nil, nil, err
	}
	sets, err := tensorfile.FindDataSets(dir)
	if err != nil {
		return nil, nil, err
	}
	if len(sets) == 0 {
		return nil, nil, fmt.Errorf("%s: %w: a data set", dir, os.ErrNotExist)
	}
	picture, err := tensorfile.ReadONNX(filepath.Join(sets[0], "input_0.pb"))
	if err != nil {
		return nil, nil, err
	}
	in := onnx.ValueInfo{}
	for _, v := range m.Graph.Inputs {
		if !h.weight(v.Name) {
			in = v
		}
	}
	c.Inputs = []peer.Tensor{{Name: in.Name, Elem: peer.Elem(in.Elem), Dims: picture.Dims, Size: len(picture.Data), Data: picture.Data}}
	for _, o := range m.Graph.Outputs {
		c.Outputs = append(c.Outputs, peer.Tensor{Name: o.Name, Elem: peer.Elem(o.Elem)})
	}
	if c.Outputs, err = onnxruntime.Answer(c); err != nil {
		return nil, nil, err
	}
	d.found = c.Outputs[0].Dims[0]
	if d.found == 0 {
		return nil, nil, fmt.Errorf("%s: it finds nothing in %s", dir, sets[0])
	}
	for i := range c.Outputs {
		c.Outputs[i].Data = nil
	}
	r, err := compile.Compile(m, compile.Options{})
	if err != nil {
		return nil, nil, err
	}
	c.PopEF, err = r.Bytes()
	return d, c, err
}

// sequences measures requests of popefgen's beside ONNX Runtime, both with outputs of their own for each,
// after compare has found those of the last request equal.
func sequences(cfg measure.Config, threads int, model, popef []byte, requests []peer.Case, compare comparison) (out [2]*measure.Series, err error) {
	var sessions [2]peer.Session
	if sessions[ours], err = popefgen.OpenSequence(popef, requests, threads); err != nil {
		return out, err
	}
	defer sessions[ours].Close()
	if sessions[ort], err = onnxruntime.OpenSequence(model, requests, threads); err != nil {
		return out, err
	}
	defer sessions[ort].Close()
	for _, s := range sessions {
		if err := s.Run(); err != nil {
			return out, err
		}
	}
	if err := compare(&requests[len(requests)-1], sessions[ours], sessions[ort]); err != nil {
		return out, fmt.Errorf("the outputs of the last request are not those of ONNX Runtime: %w", err)
	}
	cfg.Pause = rest(threads)
	series, err := measure.Interleave(cfg, measure.Runner{Run: sessions[ours].Run}, measure.Runner{Run: sessions[ort].Run})
	if err != nil {
		return out, err
	}
	return [2]*measure.Series{&series[0], &series[1]}, nil
}

// comparison returns why the outputs of two sessions, which have run, differ.
type comparison func(c *peer.Case, got, want peer.Session) error

// compareRows compares rows of floats, whatever their order is: rounding may exchange boxes whose scores are
// almost equal, and one of them may then suppress another one. One of ten may be found by one engine alone.
func compareRows(c *peer.Case, got, want peer.Session) error {
	g, err := got.Outputs()
	if err != nil {
		return err
	}
	w, err := want.Outputs()
	if err != nil {
		return err
	}
	for i, o := range c.Outputs {
		ours, theirs := rowsOf(g[i], o.Dims[1]), rowsOf(w[i], o.Dims[1])
		equal := 0
		for _, r := range ours {
			at := slices.IndexFunc(theirs, func(q []byte) bool {
				d, err := verify.Compare(graph.TensorType{DType: graph.F32, Shape: o.Dims[1:]}, r, q, rounding)
				return err == nil && d.Bad == 0
			})
			if at >= 0 {
				theirs = slices.Delete(theirs, at, at+1)
				equal++
			}
		}
		if all := max(len(ours), equal+len(theirs)); 10*equal < 9*all {
			return fmt.Errorf("output %q: %d of %d rows are those of the other engine", o.Name, equal, all)
		}
	}
	return nil
}

// rowsOf divides float32s in rows of so many.
func rowsOf(data []byte, columns int64) (rows [][]byte) {
	return slices.Collect(slices.Chunk(data, int(4*columns)))
}

// ratio returns our time by that of ONNX Runtime, NaN if it was not measured.
func (d *detector) ratio(threads int) float64 {
	r := d.runs[threads-1]
	if r[ours] == nil {
		return math.NaN()
	}
	return r[ours].Median() / r[ort].Median()
}

// detectorTable is the table of all detectors.
func detectorTable(all []*detector) string {
	t := report.NewTable("model", "boxes", "threads", "popefgen", "ONNX Runtime", "ratio")
	for _, d := range all {
		for i, r := range d.runs {
			if r[ours] != nil {
				t.Row(d.name, fmt.Sprint(d.found), fmt.Sprint(i+1), report.Time(r[ours].Median()), report.Time(r[ort].Median()), report.Ratio(d.ratio(i+1)))
			}
		}
	}
	return t.String()
}

// head puts nodes behind a model.
type head struct {
	model *onnx.Model
	names int
}

func (h *head) name() string {
	h.names++
	return fmt.Sprintf("head%d", h.names)
}

// weight reports whether the model has an initialiser of that name.
func (h *head) weight(name string) bool {
	for _, t := range h.model.Graph.Initializers {
		if t.Name == name {
			return true
		}
	}
	return false
}

// raise makes a model of operator set 9 one of 10, the first that suppresses: Slice has
// operands in place of attributes there.
func (h *head) raise() {
	for i := range h.model.Opsets {
		if o := &h.model.Opsets[i]; o.Domain != "" || o.Version >= 10 {
			continue
		}
		h.model.Opsets[i].Version = 10
		for _, n := range h.model.Graph.Nodes {
			if n.OpType == "Slice" {
				for _, name := range []string{"starts", "ends", "axes"} {
					for _, a := range n.Attributes {
						if a.Name == name {
							n.Inputs = append(n.Inputs, h.ints(a.Ints...))
						}
					}
				}
				n.Attributes = nil
			}
		}
	}
}

// node adds a node of one result and returns the name of that.
func (h *head) node(op string, in []string, attributes ...*onnx.Attribute) string {
	out := h.name()
	h.model.Graph.Nodes = append(h.model.Graph.Nodes, &onnx.Node{OpType: op, Name: op + " " + out, Inputs: in, Outputs: []string{out}, Attributes: attributes})
	return out
}

func whole(name string, v int64) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrInt, Int: v}
}

func (h *head) constant(t *onnx.Tensor) string {
	t.Name = h.name()
	h.model.Graph.Initializers = append(h.model.Graph.Initializers, t)
	return t.Name
}

func (h *head) ints(v ...int64) string {
	t := &onnx.Tensor{Elem: onnx.Int64, Dims: []int64{int64(len(v))}}
	for _, x := range v {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(x))
	}
	return h.constant(t)
}

// floats makes rows of as many numbers.
func (h *head) floats(columns int, v ...float64) string {
	t := &onnx.Tensor{Elem: onnx.Float, Dims: []int64{int64(len(v) / columns), int64(columns)}}
	if columns == 1 {
		t.Dims = t.Dims[:1]
	}
	for _, x := range v {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(float32(x)))
	}
	return h.constant(t)
}

// part is what lies from one place to another along an axis.
func (h *head) part(x string, axis, from, to int64) string {
	return h.node("Slice", []string{x, h.ints(from), h.ints(to), h.ints(axis)})
}

func (h *head) reshape(x string, shape ...int64) string {
	return h.node("Reshape", []string{x, h.ints(shape...)})
}

// suppress picks of boxes, [1,n,4], by scores, [1,1,n], and makes what columns, [n,k], say of those
// picked the model's output.
func (h *head) suppress(boxes, scores string, least float64, columns string, centred bool) {
	center := int64(0)
	if centred {
		center = 1
	}
	picked := h.node("NonMaxSuppression", []string{boxes, scores, h.ints(100), h.floats(1, 0.3), h.floats(1, least)}, whole("center_point_box", center))
	rows := h.reshape(h.part(picked, 1, 2, 3), -1)
	found := h.node("Gather", []string{columns, rows}, whole("axis", 0))
	h.model.Graph.Outputs = []onnx.ValueInfo{{Name: found, Elem: onnx.Float}}
}

// ultraface has corners of boxes and the scores of two classes, of which the second is a face.
func (h *head) ultraface() {
	face := h.part("scores", 2, 1, 2)
	scores := h.node("Transpose", []string{face}, &onnx.Attribute{Name: "perm", Type: onnx.AttrInts, Ints: []int64{0, 2, 1}})
	rows := h.node("Concat", []string{h.reshape("boxes", -1, 4), h.reshape(face, -1, 1)}, whole("axis", 1))
	h.suppress("boxes", scores, 0.1, rows, false)
}

// blazeface says where boxes and six points of faces are from the middles of the fields of two grids, of
// two and of six boxes a field.
func (h *head) blazeface() {
	const side = 128
	var middles []float64
	for _, g := range []struct{ fields, each int }{{16, 2}, {8, 6}} {
		for i := range g.fields * g.fields * g.each {
			field := i / g.each
			x, y := (float64(field%g.fields)+0.5)/float64(g.fields), (float64(field/g.fields)+0.5)/float64(g.fields)
			middles = append(middles, x, y, 0, 0)
			for range 6 {
				middles = append(middles, x, y)
			}
		}
	}
	logits := h.node("Concat", []string{"Identity:0", "Identity_1:0"}, whole("axis", 1))
	score := h.node("Sigmoid", []string{logits})
	places := h.reshape(h.node("Concat", []string{"Identity_2:0", "Identity_3:0"}, whole("axis", 1)), -1, 16)
	rows := h.node("Add", []string{h.node("Mul", []string{places, h.floats(1, 1.0/side)}), h.floats(16, middles...)})
	all := h.node("Concat", []string{rows, h.reshape(score, -1, 1)}, whole("axis", 1))
	h.suppress(h.reshape(h.part(rows, 1, 0, 4), 1, -1, 4), h.reshape(score, 1, 1, -1), 0.05, all, true)
}

// fastestdet has, for each field of a grid, whether there is something, where, and the
// scores of 80 classes.
func (h *head) fastestdet() {
	const side = 22
	var fields []float64
	for i := range side * side {
		fields = append(fields, float64(i%side), float64(i/side))
	}
	rows := h.node("Transpose", []string{h.reshape("758", 85, -1)}, &onnx.Attribute{Name: "perm", Type: onnx.AttrInts, Ints: []int64{1, 0}})
	classes := h.part(rows, 1, 5, 85)
	best := h.node("ReduceMax", []string{classes}, &onnx.Attribute{Name: "axes", Type: onnx.AttrInts, Ints: []int64{1}})
	class := h.node("Cast", []string{h.node("ArgMax", []string{classes}, whole("axis", 1))}, whole("to", int64(onnx.Float)))
	power := func(x string, e float64) string { return h.node("Pow", []string{x, h.floats(1, e)}) }
	score := h.node("Mul", []string{power(h.part(rows, 1, 0, 1), 0.6), power(best, 0.4)})
	middle := h.node("Add", []string{h.node("Tanh", []string{h.part(rows, 1, 1, 3)}), h.floats(2, fields...)})
	middle = h.node("Mul", []string{middle, h.floats(1, 1.0/side)})
	boxes := h.node("Concat", []string{middle, h.node("Sigmoid", []string{h.part(rows, 1, 3, 5)})}, whole("axis", 1))
	all := h.node("Concat", []string{boxes, score, class}, whole("axis", 1))
	h.suppress(h.reshape(boxes, 1, -1, 4), h.reshape(score, 1, 1, -1), 0.05, all, true)
}
