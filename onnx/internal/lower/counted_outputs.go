package lower

import (
	"fmt"
	"maps"
	"slices"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// countedOutput makes the port of an output with counted axes, and those of its counts that
// no output before had.
func (l *lowerer) countedOutput(env *environment, name string, v *Value, outs []onnx.ValueInfo) onnx.Port {
	c := &Call{l: l, env: env, node: &onnx.Node{OpType: "output", Name: name, Outputs: []string{name}}}
	var port onnx.Port
	err := caught(func() {
		v = c.Clean(v)
		port = onnx.Port{Name: name, Elem: onnx.ElemTypeOf(v.Type.DType), Tensor: l.materialise(v), Counts: make([]string, v.Rank())}
		several := 0
		for _, n := range v.counts {
			if n != nil {
				several++
			}
		}
		for axis, n := range v.counts {
			if n == nil {
				continue
			}
			id := l.materialise(n)
			at := slices.IndexFunc(l.counts, func(p onnx.Port) bool { return p.Tensor == id })
			if at < 0 {
				at = len(l.counts)
				own := name + "_count"
				if several > 1 {
					own = fmt.Sprintf("%s_count%d", name, axis)
				}
				l.counts = append(l.counts, onnx.Port{Name: l.unlike(own, outs), Elem: onnx.Int64, Tensor: id})
			}
			port.Counts[axis] = l.counts[at].Name
		}
	})
	if err != errPoisoned {
		l.report(fmt.Sprintf("output %q", name), err)
	}
	return port
}

// unlike returns a name that no input, output or count has.
func (l *lowerer) unlike(name string, outs []onnx.ValueInfo) string {
	taken := func(s string) bool {
		same := func(p onnx.Port) bool { return p.Name == s }
		return slices.ContainsFunc(outs, func(o onnx.ValueInfo) bool { return o.Name == s }) || slices.ContainsFunc(l.ports, same) || slices.ContainsFunc(l.counts, same) || l.used[s]
	}
	for taken(name) {
		name += "_"
	}
	return name
}

// checkMax reports bounds that are none, and names that bounded nothing.
func (l *lowerer) checkMax() {
	for _, name := range slices.Sorted(maps.Keys(l.opts.Max)) {
		switch most := l.opts.Max[name]; {
		case most < 1 || most >= graph.MaxTensorBytes:
			l.fail(fmt.Errorf("--max %s=%d: want a number from 1 to 2^40", printable.Line(name), most))
		case !l.usedMax[name]:
			l.fail(fmt.Errorf("--max %s=%d: no axis of a value of this name, and none with this symbol, has a size that data decides; want the name of a result of NonZero, NonMaxSuppression, Range and the like", printable.Line(name), most))
		}
	}
}
