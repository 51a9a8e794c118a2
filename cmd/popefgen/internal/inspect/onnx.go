package inspect

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/table"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/onnx"
)

// onnxInfo is what inspect says of an ONNX file as it is.
type onnxInfo struct {
	File           string         `json:"file"`
	Producer       string         `json:"producer"`
	IRVersion      int64          `json:"ir_version"`
	OperatorSets   []string       `json:"operator_sets"`
	Inputs         []onnxValue    `json:"inputs"`
	Outputs        []onnxValue    `json:"outputs"`
	Parameters     int64          `json:"parameters"`
	ParameterBytes int64          `json:"parameter_bytes"`
	Nodes          int            `json:"nodes"`
	Operators      map[string]int `json:"operators"`
	// Placement counts nodes by attributes that other compilers read, such as __ipu_number, and by their values.
	Placement map[string]map[int64]int `json:"placement,omitempty"`
}

type onnxValue struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// DescribeONNX makes the inspection one of an ONNX file as well.
func (in *Inspection) DescribeONNX(path string, m *onnx.Model) { in.ONNX = describeONNX(path, m) }

func describeONNX(path string, m *onnx.Model) *onnxInfo {
	i := &onnxInfo{File: path, Producer: strings.TrimSpace(m.ProducerName + " " + m.ProducerVersion), IRVersion: m.IRVersion,
		OperatorSets: []string{}, Inputs: []onnxValue{}, Outputs: []onnxValue{}, Operators: map[string]int{}}
	for _, o := range m.Opsets {
		i.OperatorSets = append(i.OperatorSets, fmt.Sprintf("%s %d", cmp.Or(o.Domain, "ai.onnx"), o.Version))
	}
	if m.Graph == nil {
		return i
	}
	parameter := func(t *onnx.Tensor) {
		n := int64(1)
		for _, d := range t.Dims {
			n *= d // as many as there are data for: the reader has checked
		}
		i.Parameters += n
		i.ParameterBytes += int64(len(t.Data))
	}
	initialised := map[string]bool{}
	for _, t := range m.Graph.Initializers {
		initialised[t.Name] = true
		parameter(t)
	}
	for _, n := range m.Graph.Nodes {
		i.Nodes++
		name := n.OpType
		if n.Domain != "" && n.Domain != "ai.onnx" {
			name = n.Domain + "." + name
		}
		i.Operators[name]++
		for _, a := range n.Attributes {
			if strings.HasPrefix(a.Name, "__") && a.Type == onnx.AttrInt {
				i.place(a.Name, a.Int)
			}
			if n.OpType == "Constant" && a.Tensor != nil { // where Paddle's exporter has the weights
				parameter(a.Tensor)
			}
		}
	}
	for _, v := range m.Graph.Inputs {
		if !initialised[v.Name] {
			i.Inputs = append(i.Inputs, onnxValue{v.Name, v.String()})
		}
	}
	for _, v := range m.Graph.Outputs {
		i.Outputs = append(i.Outputs, onnxValue{v.Name, v.String()})
	}
	return i
}

// place counts a node with an attribute for other compilers.
func (i *onnxInfo) place(attribute string, value int64) {
	if i.Placement == nil {
		i.Placement = map[string]map[int64]int{}
	}
	if i.Placement[attribute] == nil {
		i.Placement[attribute] = map[int64]int{}
	}
	i.Placement[attribute][value]++
}

func (i *onnxInfo) print(w io.Writer) error {
	fmt.Fprintf(w, "ONNX %s\n", printable.Line(i.File))
	fmt.Fprintf(w, "producer           %s, IR version %d\n", printable.Line(cmp.Or(i.Producer, "unknown")), i.IRVersion)
	fmt.Fprintf(w, "operator sets      %s\n", printable.Line(strings.Join(i.OperatorSets, ", ")))
	fmt.Fprintf(w, "parameters         %s (%s)\n", humanize.Comma(i.Parameters), humanize.IBytes(uint64(i.ParameterBytes)))
	names := slices.SortedFunc(maps.Keys(i.Operators), func(a, b string) int {
		return cmp.Or(cmp.Compare(i.Operators[b], i.Operators[a]), cmp.Compare(a, b))
	})
	for k, n := range names {
		names[k] = fmt.Sprintf("%s %d", n, i.Operators[n])
	}
	fmt.Fprintf(w, "operators          %d: %s\n", i.Nodes, printable.Line(strings.Join(names, ", ")))
	for _, attribute := range slices.Sorted(maps.Keys(i.Placement)) {
		var counts []string
		for _, value := range slices.Sorted(maps.Keys(i.Placement[attribute])) {
			counts = append(counts, fmt.Sprintf("%d on %d", i.Placement[attribute][value], value))
		}
		fmt.Fprintf(w, "placement          %s: %s\n", printable.Line(attribute), strings.Join(counts, ", "))
	}
	fmt.Fprintln(w)
	t := table.New("", "NAME", "TYPE")
	for _, v := range i.Inputs {
		t.Row("input", v.Name, v.Type)
	}
	for _, v := range i.Outputs {
		t.Row("output", v.Name, v.Type)
	}
	return t.Print(w)
}
