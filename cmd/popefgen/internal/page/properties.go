package page

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// property is what a page says of a model first.
type property struct{ Name, Value, More string }

// interfaceEnd is an input or an output.
type interfaceEnd struct{ Name, Type string }

// maxEnds inputs and outputs are named at the top of the page.
const maxEnds = 8

// properties says how large a model is and where it comes from.
func (s *sheet) properties(m Model, exe *graph.Executable) {
	add := func(name, value, more string) {
		if value != "" {
			s.Properties = append(s.Properties, property{name, value, more})
		}
	}
	of := "a request"
	if s.family != nil {
		number, list := sizesText(s.family)
		add("sizes", number, list)
		if of = "a request of the smallest size"; len(s.family.Members) == 1 {
			of = "a request"
		}
	}
	if exe != nil {
		n, more := running(exe), ""
		if m.Before != nil {
			more = fmt.Sprintf("%d before the passes", running(m.Before))
		}
		if rest := operators(exe) - n; rest > 0 && s.family == nil {
			more = strings.TrimPrefix(more+fmt.Sprintf("; %d prepare weights", rest), "; ")
		}
		add("operators", fmt.Sprint(n), more)
	}
	var parameters, bytes int64
	for i := range s.Weights {
		parameters += max(0, s.Weights[i].tensor.Elements())
		bytes += s.Weights[i].Bytes
	}
	add("parameters", amount(float64(parameters)), bytesText(bytes))
	if exe != nil {
		add("FLOPs", amount(work(exe)), of)
		add("memory", bytesText(s.plan.ArenaBytes), "besides weights")
	}
	add("file", bytesText(cmp.Or(m.Bytes, fileBytes(m.Model))), "")
	switch src, ok, err := compile.ReadSource(m.Model); {
	case err != nil: // the page is of use all the same
		add("producer", "unreadable", printable(clip(err.Error())))
	case ok:
		var sets []string
		for _, o := range src.Opsets {
			name := fmt.Sprint(o.Version)
			if o.Domain != "ai.onnx" {
				name = printable(o.Domain) + " " + name
			}
			sets = append(sets, name)
		}
		ir := ""
		if src.IR > 0 {
			ir = fmt.Sprintf("ONNX IR %d", src.IR)
		}
		add("opset", strings.Join(sets, ", "), ir)
		add("producer", printable(src.Producer), "")
	case exe != nil:
		add("producer", printable(clip(exe.Producer)), "")
	}
	for _, a := range s.Anchors {
		end := interfaceEnd{printable(clip(a.Name)), fmt.Sprintf("%s %s", strings.ToLower(a.Type), a.Shape)}
		switch a.Role {
		case contract.RunInput.String():
			s.Inputs = append(s.Inputs, end)
		case contract.RunOutput.String():
			s.Outputs = append(s.Outputs, end)
		}
	}
}

// ends shortens a list of inputs or outputs.
func ends(all []interfaceEnd) []interfaceEnd {
	if len(all) <= maxEnds {
		return all
	}
	return append(all[:maxEnds:maxEnds], interfaceEnd{fmt.Sprintf("and %d more", len(all)-maxEnds), ""})
}

// amount rounds a number to three digits.
func amount(v float64) string {
	units := []string{"", " k", " M", " G", " T", " P"}
	u := 0
	for v >= 999.5 && u < len(units)-1 {
		v /= 1000
		u++
	}
	return fmt.Sprintf("%.3g%s", v, units[u])
}

// running is how many operators the programs have that are shown.
func running(e *graph.Executable) (n int) {
	graphs := map[graph.GraphID]bool{}
	for _, p := range mainPrograms(e) {
		visit(e, p.Steps, graphs, func(graph.TensorID) {})
	}
	for id := range graphs {
		n += len(e.Graphs[id].Nodes)
	}
	return n
}

// work is how many additions and multiplications of products and convolutions
// one run of the programs takes that are shown: of branches the longer one, of
// loops whose length is not known one turn.
func work(e *graph.Executable) (total float64) {
	known := map[graph.GraphID]float64{}
	var of func(graph.GraphID) float64
	of = func(id graph.GraphID) float64 {
		if v, ok := known[id]; ok {
			return v
		}
		sum := 0.0
		for i := range e.Graphs[id].Nodes {
			n := &e.Graphs[id].Nodes[i]
			switch op := n.Op.(type) {
			case *graph.If:
				sum += max(of(op.Then), of(op.Else))
			case *graph.Loop:
				sum += float64(max(1, op.Count)) * of(op.Body)
			default:
				sum += cpu.FLOPs(op, typesOf(e, n.Inputs), typesOf(e, n.Outputs))
			}
		}
		known[id] = sum
		return sum
	}
	var run func([]graph.Step, float64)
	run = func(steps []graph.Step, times float64) {
		for i := range steps {
			switch s := &steps[i]; s.Kind {
			case graph.Call:
				total += times * of(s.Graph)
			case graph.Repeat:
				run(s.Body, times*float64(s.Count))
			}
		}
	}
	for _, p := range mainPrograms(e) {
		run(p.Steps, 1)
	}
	return total
}

// fileBytes is how many bytes of its files a model takes.
func fileBytes(m *popef.Model) (n int64) {
	blobs := append([]*popef.Blob{m.MetadataBlob(), m.ExecutableBlob()}, m.Tensors()...)
	for _, f := range m.Feeds() {
		blobs = append(blobs, f.Blob)
	}
	for _, b := range append(blobs, m.Opaques()...) {
		if b != nil {
			n += b.Size
		}
	}
	return n
}
