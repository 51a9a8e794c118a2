package cpu

import (
	"context"
	"runtime/pprof"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
)

// The labels of CPU profiles with the option "labels".
const (
	labelModel    = "model"    // name of the engine
	labelOperator = "operator" // kind of the operator, with the function if that does not say it: "Unary exp"
	labelNode     = "node"     // name of the node
)

// labelSteps makes the labels of all steps that compute, so that runs allocate
// none. Copies have none: streams are the caller's code.
func (e *Engine) labelSteps() {
	for i := range e.programs {
		p := &e.programs[i]
		p.labels = make([]*workers.Labels, len(p.plan.Steps))
		for k := range p.plan.Steps {
			s := &p.plan.Steps[k]
			switch s.Kind {
			case plan.Compute, plan.Move, plan.Keep, plan.Collect:
			default:
				continue
			}
			op := s.Op
			if s.Kind == plan.Compute {
				if f := function(e.exe.Graphs[s.Graph].Nodes[s.Node].Op); f != "" {
					op += " " + f
				}
			}
			p.labels[k] = &workers.Labels{Ctx: pprof.WithLabels(context.Background(), pprof.Labels(
				labelModel, printable.String(e.name), labelOperator, op, labelNode, printable.String(s.Name)))}
		}
	}
}

// wear labels the goroutine that drives the engine, and workers that take part
// in what follows. Without labels, it has those of the run's context again.
func (e *Engine) wear(ctx context.Context, l *workers.Labels) {
	if l == e.worn {
		return
	}
	e.worn, e.pool.Labels = l, l
	if l != nil {
		ctx = l.Ctx
	}
	pprof.SetGoroutineLabels(ctx)
}
