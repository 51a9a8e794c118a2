package cpu

import "github.com/popefgen/popefgen/ipu/cpu/internal/costs"

// Costs is a record of what steps of a plan take on one machine, from which the engine
// estimates which layout activations get and where operators are fused tile by
// tile. No result depends on it. [github.com/popefgen/popefgen/ipu/cpu/calibrate]
// measures it, and the engine option "costs" takes its JSON form.
type Costs = costs.Record

// ErrCosts is what errors about records of costs wrap.
var ErrCosts = costs.ErrRecord

// ParseCosts reads a record of costs from its JSON form and checks it. Errors
// wrap [ErrCosts].
func ParseCosts(data []byte) (Costs, error) { return costs.Parse(data) }

// UsualCosts returns the costs that the engine takes where the option "costs"
// gives no others: those of one machine for each path of the kernels, zero where
// kernels are in plain Go.
func UsualCosts() Costs { return costs.Usual() }
