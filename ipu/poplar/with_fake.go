//go:build poplar && poplarfake && linux && cgo

package poplar

import (
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	_ "github.com/popefgen/popefgen/ipu/poplar/internal/fakesdk/poplar" // is linked in place of libpoplar
)

// runsPortable: the fake runs portable executables.
const runsPortable = true

// untried is what a device's description ends with.
const untried = ", a fake for tests"

// describe returns the streams and programs of an executable. A portable one tells them itself.
func describe(c ipu.EngineConfig) ([]ipu.StreamInfo, []ipu.ProgramInfo, error) {
	if ipu.Identify(c.Executable) != ipu.FormatPortable {
		return c.Streams, c.Programs, nil
	}
	e, err := cpu.New(ipu.EngineConfig{Name: c.Name, Executable: c.Executable, Context: c.Context})
	if err != nil {
		return nil, nil, err
	}
	return e.Streams(), e.Programs(), e.Close()
}
