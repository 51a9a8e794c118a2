package popart

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
)

// DotChecksVariable is the environment variable that names stages of which DOT files are written, as in "FWD0:FINAL", besides those of Options.DotChecks.
const DotChecksVariable = "POPART_DOT_CHECKS"

// The stages of a compilation that DOT files show, with PopART's names.
const (
	stageForward0 = "FWD0"     // the ONNX graph as operators of the portable executable
	stageForward1 = "FWD1"     // of training with the loss, before the gradients; of inference after the passes that simplify
	stageBackward = "BWD0"     // of training: with the gradients
	stagePrealias = "PREALIAS" // with programs, after all passes
	stageFinal    = "FINAL"    // the same with where the CPU keeps each tensor: those of equal places share memory
)

var stages = []string{stageForward0, stageForward1, stageBackward, stagePrealias, stageFinal}

// lastSimplifying is the pass after which the stage FWD1 of inference is: those behind it join operators.
const lastSimplifying = "strength"

// dotChecks returns the stages that options and environment name together.
func dotChecks(o *Options) (all []string, err error) {
	asked := slices.Clone(o.DotChecks)
	if v := os.Getenv(DotChecksVariable); v != "" {
		asked = append(asked, strings.Split(v, ":")...)
	}
	for _, name := range asked {
		switch upper := strings.ToUpper(strings.TrimSpace(name)); {
		case upper == "ALL":
			all = append(all, stages...)
		case slices.Contains(stages, upper):
			all = append(all, upper)
		default:
			return nil, wrong(ErrOption, "there is no stage %q to draw, want one of %s or ALL", name, strings.Join(stages, ", "))
		}
	}
	return all, nil
}

// writeDOT writes the DOT file of a stage, "training_fwd0.dot" and the like.
func writeDOT(folder, kind, stage string, e *graph.Executable, places map[graph.TensorID]string) error {
	path := filepath.Join(folder, kind+"_"+strings.ToLower(stage)+".dot")
	return atomicfile.Write(path, func(w io.Writer) error { return dump.WriteDOT(w, e, places) })
}

// placesOf returns where the tensors of a plan lie, of the main program if it is one of its own.
func placesOf(e *graph.Executable, p *cpu.Plan, main int) map[graph.TensorID]string {
	all := map[graph.TensorID]string{}
	say := func(t graph.TensorID, name, where string) {
		// The engine may keep activations in another layout: such tensors are not those of the executable.
		if int(t) < len(e.Tensors) && e.Tensors[t].Name == name {
			all[t] = where
		}
	}
	for _, t := range p.Persistent {
		say(t.Tensor, t.Name, "kept")
	}
	for _, t := range p.Memory().Tensors {
		if t.Program == main {
			say(t.Tensor, t.Name, "arena "+span(t.Offset, t.Bytes))
		}
	}
	return all
}
