package dynamic

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// How many operations, about multiplications, a run may take beside what files
// and inputs hold.
const (
	freeWork   = 1 << 31 // of any model: some seconds
	workFactor = 2       // for each byte of the files with each byte of files and inputs
	mostWork   = 1 << 50
)

// workFor bounds the operations of a run of a model whose files have size bytes,
// with inputs of so many bytes. A weight goes with an element of an input or of
// something computed, of which there are about as many, once; so real models,
// whose layers each have weights, stay far below the product of weights and
// inputs. What exceeds it is a few hundred bytes that ask for hours.
func workFor(size, inputs int64) int64 {
	return min(mostWork, budget.Add(freeWork, budget.Mul(workFactor, size, budget.Add(size, inputs))))
}

// BoundWork returns the option of the back end that bounds the work of a model
// whose files have size bytes. Options given by the user come behind it, and win.
func BoundWork(backend string, m *popef.Model, size int64) []ipu.Option {
	if backend != cpu.Name {
		return nil
	}
	c := contract.Of(m)
	inputs := int64(0)
	for _, a := range UserInputs(c) {
		if n, err := a.Info.SizeInBytes(); err == nil {
			inputs = budget.Add(inputs, n)
		}
	}
	times := int64(max(1, c.DeviceIterations()))
	return []ipu.Option{{Name: "work", Value: strconv.FormatInt(min(mostWork, budget.Mul(times, workFor(size, inputs))), 10)}}
}

// SizeOf returns the bytes of files, and of the files in folders at any depth;
// what can't be looked at counts as nothing.
func SizeOf(paths ...string) int64 {
	total := int64(0)
	for _, p := range paths {
		filepath.WalkDir(p, func(name string, _ fs.DirEntry, _ error) error { //nolint:errcheck // see above
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() { // models are links to files at times
				total += info.Size()
			}
			return nil
		})
	}
	return total
}
