package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
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
}

type onnxValue struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// inspectONNX describes an ONNX file, and what it is once it is compiled with
// the flags in modelFlags. A file whose dimensions are open is described all
// the same; open says what is to be given for more.
func inspectONNX(c *cli.Context, paths []string) (in *inspection, open error, err error) {
	if len(paths) > 1 {
		return nil, nil, fmt.Errorf("found %d files, want one ONNX model, or PopEF files", len(paths))
	}
	m, err := onnx.ReadFileContext(c.Context, paths[0])
	if err != nil {
		return nil, nil, notONNX(paths[0], err)
	}
	in = &inspection{ONNX: describeONNX(paths[0], m), Models: []modelInfo{}, Blobs: []blobInfo{}}
	r, err := compileONNX(c, paths[0])
	var dims *onnx.DimError
	if errors.As(err, &dims) {
		return in, err, nil
	}
	if err != nil {
		return in, nil, err
	}
	data, err := r.Bytes()
	if err != nil {
		return in, nil, err
	}
	reader := popef.NewReader()
	defer reader.Close()
	base := filepath.Base(paths[0])
	if err := reader.AddBytes(strings.TrimSuffix(base, filepath.Ext(base))+".popef", data); err != nil {
		return in, nil, err
	}
	return in, nil, in.add(c, reader)
}

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
	fmt.Fprintf(w, "operators          %d: %s\n\n", i.Nodes, printable.Line(strings.Join(names, ", ")))
	t := newTable("", "NAME", "TYPE")
	for _, v := range i.Inputs {
		t.row("input", v.Name, v.Type)
	}
	for _, v := range i.Outputs {
		t.row("output", v.Name, v.Type)
	}
	return t.print(w)
}
