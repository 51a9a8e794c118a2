//go:build poplar && !poplarfake && linux && cgo

package poplar

import "github.com/popefgen/popefgen/ipu"

// runsPortable: Poplar runs what it compiled, and nothing else.
const runsPortable = false

// untried is what a device's description ends with.
const untried = "; this back end was tested against a fake, and never run on an IPU"

// describe returns the streams and programs of an executable, which does not tell them itself.
func describe(c ipu.EngineConfig) ([]ipu.StreamInfo, []ipu.ProgramInfo, error) {
	return c.Streams, c.Programs, nil
}
