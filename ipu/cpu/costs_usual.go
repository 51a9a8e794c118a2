package cpu

import (
	"embed"
	"fmt"
	"path"
	"sync"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
)

// measured holds a record for each path on which anything is estimated, from
// the machine that it names: make calibrate.
//
//go:embed costs/*.json
var measured embed.FS

// UsualCosts returns the costs that the engine takes where the option "costs"
// gives no others: those of one machine for each path of the kernels, zero where
// kernels are in plain Go.
func UsualCosts() Costs { return usualCosts()[kernel.CostPath()] }

var usualCosts = sync.OnceValue(func() map[string]Costs {
	all := map[string]Costs{}
	for _, name := range kernel.CostPaths() {
		data, err := measured.ReadFile(path.Join("costs", name+".json"))
		if err == nil {
			all[name], err = ParseCosts(data)
		}
		if err != nil {
			panic(fmt.Sprintf("costs of %s, which are built in: %v", name, err))
		}
	}
	return all
})
