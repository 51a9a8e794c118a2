package workers

import (
	"context"
	"runtime/pprof"
)

// StepLabels are what goroutines wear while they compute a step.
type StepLabels struct{ Ctx context.Context }

// label labels a goroutine that belongs to an engine; nil takes the labels off.
func label(l *StepLabels) {
	ctx := context.Background()
	if l != nil {
		ctx = l.Ctx
	}
	pprof.SetGoroutineLabels(ctx)
}
