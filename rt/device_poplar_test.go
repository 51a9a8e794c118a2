//go:build poplar && poplarfake && linux && cgo

package rt_test

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/poplar"
)

// portable is the back end that tests ask for to run portable executables.
const portable = poplar.Name

// through returns a back end whose engines are those of Poplar on its fake, and
// compute there as b's do.
func through(b ipu.Backend) ipu.Backend { return poplar.Through(b) }

// start gives the fake enough devices, and leaves out the tests that it can't run.
func start() {
	if err := os.Setenv("FAKE_POPLAR_IPUS", "16"); err != nil {
		panic(err)
	}
	flag.Parse()
	skip := flag.Lookup("test.skip")
	all := "^(" + strings.Join(slices.Sorted(maps.Keys(notOnPoplar)), "|") + ")$"
	if given := skip.Value.String(); given != "" {
		all = given + "|" + all
	}
	if err := skip.Value.Set(all); err != nil {
		panic(err)
	}
}
