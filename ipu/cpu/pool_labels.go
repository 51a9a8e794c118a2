package cpu

import (
	"context"
	"runtime/pprof"
)

// stepLabels are what goroutines wear while they compute a step.
type stepLabels struct{ ctx context.Context }

// label labels a goroutine that belongs to an engine; nil takes the labels off.
func label(l *stepLabels) {
	ctx := context.Background()
	if l != nil {
		ctx = l.ctx
	}
	pprof.SetGoroutineLabels(ctx)
}
