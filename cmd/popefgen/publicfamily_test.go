package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/verify"
	"github.com/popefgen/popefgen/popef/family"
)

// TestPublicFamily takes a public model as a family through a generated package: a data
// set of 1×64 by the member of that size, and one of 2×23 filled up to 4×32.
func TestPublicFamily(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a package")
	}
	dir, module := filepath.Join(publicModels(t), "synth_bert_tiny"), t.TempDir()
	m, err := onnx.ReadFile(filepath.Join(dir, "model.onnx"))
	require.NoError(t, err)
	o := compile.Options{Pads: map[string][]family.Pad{}}
	for _, in := range m.Graph.Inputs {
		o.Pads["sequence"] = append(o.Pads["sequence"], family.Pad{Input: in.Name, Value: "0"})
	}
	for _, s := range [][2]int64{{1, 8}, {1, 16}, {1, 64}, {4, 16}, {4, 32}} {
		o.Members = append(o.Members, compile.Sizes{Dims: map[string]int64{"batch": s[0], "sequence": s[1]}})
	}
	r, err := compile.Compile(m, o)
	require.NoError(t, err)
	all := publicSet{name: "bertfamily", popef: filepath.Join(module, "bertfamily.popef")}
	require.NoError(t, r.WriteFile(all.popef, false))
	all.plan = generatePublic(t, all, filepath.Join(module, all.name))
	var body strings.Builder
	fmt.Fprintf(&body, "\tr, err := bertfamily.Open(ctx, %q)\n\tcheck(err)\n\tdefer r.Close()\n\tout := bertfamily.NewOutputs()\n", all.popef)
	sizes := []string{"1, 64", "2, 23"}
	var sets []publicSet
	for i, size := range sizes {
		s := publicSet{name: fmt.Sprintf("set%d", i)}
		s.Compiled, err = verify.Compile(m, filepath.Join(dir, fmt.Sprintf("test_data_set_%d", i)), compile.Options{})
		require.NoError(t, err)
		fmt.Fprintf(&body, "\t{\n\t\tin := bertfamily.NewInputs(%s)\n", size)
		for _, f := range all.plan.Inputs {
			path := tensorPath(module, s, all.plan.Anchors[f.Anchor].Name)
			require.NoError(t, os.WriteFile(path, s.Fed[all.plan.Anchors[f.Anchor].Name], 0o666))
			fmt.Fprintf(&body, "\t\tread(%q, in.%s.Flat())\n", path, f.Name)
		}
		body.WriteString("\t\tcheck(r.Run(ctx, in, out))\n")
		for _, f := range all.plan.Outputs {
			fmt.Fprintf(&body, "\t\twrite(%q, out.%s.Flat())\n", tensorPath(module, s, all.plan.Anchors[f.Anchor].Name), f.Name)
		}
		body.WriteString("\t}\n")
		sets = append(sets, s)
	}
	runProgram(t, module, "\t\"publicmodels/bertfamily\"\n", body.String())
	for _, s := range sets {
		for i, p := range s.Outputs {
			got, err := os.ReadFile(tensorPath(module, s, p.Name))
			require.NoError(t, err)
			d, err := verify.Compare(p.Type, got, s.Wants[i].Data, publicTolerance("synth_bert_tiny"))
			require.NoError(t, err, "%s: %s", s.name, p.Name)
			require.Zero(t, d.Bad, "%s: output %q: %v", s.name, p.Name, d)
		}
	}
}
