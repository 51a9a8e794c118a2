//go:build !(poplar && poplarfake && linux && cgo)

package rt_test

import "github.com/popefgen/popefgen/ipu"

// portable is the back end that tests ask for to run portable executables.
const portable = "cpu"

// through returns the back end that tests ask for, as it is.
func through(b ipu.Backend) ipu.Backend { return b }

// start is called before the tests.
func start() {}
