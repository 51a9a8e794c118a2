package costs

import (
	"embed"
	"fmt"
	"sync"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
)

// measured holds a record for each path on which anything is estimated, from
// the machine that it names: make calibrate.
//
//go:embed *.json
var measured embed.FS

// Usual returns the costs that the engine takes where the option "costs"
// gives no others: those of one machine for each path of the kernels, zero where
// kernels are in plain Go.
func Usual() Record { return usualCosts()[kernel.CostPath()] }

var usualCosts = sync.OnceValue(func() map[string]Record {
	all := map[string]Record{}
	for _, name := range kernel.CostPaths() {
		data, err := measured.ReadFile(name + ".json")
		if err == nil {
			all[name], err = Parse(data)
		}
		if err != nil {
			panic(fmt.Sprintf("costs of %s, which are built in: %v", name, err))
		}
	}
	return all
})
