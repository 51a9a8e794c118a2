package session

import (
	"context"

	"github.com/popefgen/popefgen/internal/budget"
)

// OnBudget returns ctx with the budget that all memory of the model counts on,
// unless it has one: its limit is that of the engine option "memory". Back ends
// refuse a value that is no size.
func (o *Options) OnBudget(ctx context.Context) context.Context {
	limit := int64(0)
	for _, e := range o.EngineOptions {
		if n, err := budget.Parse(e.Value); e.Name == "memory" && err == nil {
			limit = n
		}
	}
	return budget.Into(ctx, budget.From(ctx).Part(limit))
}
