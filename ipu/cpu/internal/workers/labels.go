package workers

import (
	"context"
	"runtime/pprof"
)

// Labels are the labels of a CPU profile that goroutines have while they compute a
// step: those of Ctx.
type Labels struct{ Ctx context.Context }

// label labels a goroutine that belongs to an engine; nil takes the labels off.
func label(l *Labels) {
	ctx := context.Background()
	if l != nil {
		ctx = l.Ctx
	}
	pprof.SetGoroutineLabels(ctx)
}
