package main

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/bench/peer/onnxruntime"
	"github.com/popefgen/popefgen/bench/peer/popefgen"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
)

var (
	draws    = flag.Int("draws", 20, "random models of each operator that TestRandomOperators compares with ONNX Runtime's answers")
	drawSeed = flag.Uint64("draw-seed", 1, "of the first of them")
)

func sortedKeys(a attrs) []string { return slices.Sorted(maps.Keys(a)) }

func attrString(a attrs) string {
	var b strings.Builder
	for _, k := range sortedKeys(a) {
		fmt.Fprintf(&b, " %s=%v", k, a[k])
	}
	return b.String()
}

// TestRandomOperators runs models of one operator, with random attributes, sizes and
// numbers, and compares with ONNX Runtime.
func TestRandomOperators(t *testing.T) {
	needLibrary(t)
	for _, name := range slices.Sorted(maps.Keys(sketches)) {
		t.Run(name, func(t *testing.T) {
			tally := map[string]int{}
			for i := range *draws {
				s := &sketch{Rand: rand.New(rand.NewPCG(*drawSeed+uint64(i), 7)), opset: 17}
				sketches[name](s)
				verdict, err := differ(s)
				tally[verdict]++
				if err != nil {
					t.Errorf("-draw-seed %d: opset %d%s\n%v", *drawSeed+uint64(i), s.opset, s.log, err)
				}
			}
			t.Log(tally)
		})
	}
}

// differ says what came of a model in both engines, and how they differ.
func differ(s *sketch) (verdict string, _ error) {
	c := &peer.Case{Name: "random", ONNX: s.bytes(), Inputs: s.inputs}
	for i, name := range s.outputs {
		c.Outputs = append(c.Outputs, peer.Tensor{Name: name, Elem: peer.Elem(s.elems[i])})
	}
	want, theirs := onnxruntime.Answer(c)
	model, err := onnx.Decode(c.ONNX, "")
	if err != nil {
		return "", err
	}
	result, ours := compile.Compile(model, compile.Options{})
	switch {
	case theirs != nil && ours != nil:
		return "refused by both", nil
	case theirs != nil:
		return "refused by ONNX Runtime", nil // it has limits that ONNX has not
	case ours != nil:
		return "refused", fmt.Errorf("only popefgen refuses it: %w", ours)
	}
	if result.Family != nil {
		return differSizes(c, result, want)
	}
	c.Outputs = nil
	if err := complete(c, result); err != nil {
		return "", err
	}
	for i, o := range c.Outputs {
		if !slices.Equal(o.Dims, want[i].Dims) {
			return "shape", fmt.Errorf("output %q has the shape %v, want %v", o.Name, o.Dims, want[i].Dims)
		}
	}
	own, err := popefgen.Engine{}.Open(c, 1)
	if err != nil {
		return "", err
	}
	defer own.Close()
	if err := own.Run(); err != nil {
		return "", err
	}
	got, err := own.Outputs()
	if err != nil {
		return "", err
	}
	for i, o := range c.Outputs {
		t := graph.TensorType{DType: onnx.ElemType(o.Elem).DType(), Shape: o.Dims}
		d, err := verify.Compare(t, got[i], want[i].Data, verify.Tolerance{Rel: 1e-3, Abs: 2e-4 + 1.001*s.step})
		if err != nil {
			return "", fmt.Errorf("output %q: %w", o.Name, err)
		}
		if d.Bad > 0 {
			return "differs", fmt.Errorf("output %q: %s", o.Name, d)
		}
	}
	return "equal", nil
}

// sketches are the operators that are compared.
var sketches = joined(windowSketches, imageSketches, movementSketches, indexSketches, reduceSketches,
	elementwiseSketches, matrixSketches, byteSketches, networkSketches, controlSketches, sizeSketches)

// joined returns the sketches of several families, of which no two have the same name.
func joined(families ...map[string]func(*sketch)) map[string]func(*sketch) {
	all := map[string]func(*sketch){}
	for _, family := range families {
		for name, draw := range family {
			if all[name] != nil {
				panic("two sketches are called " + name)
			}
			all[name] = draw
		}
	}
	return all
}
