package popart

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/ipu/cpu"
)

// TensorMapVariable is the environment variable that names a file to which PrepareDevice writes where tensors lie, unless Options.TensorMap does.
const TensorMapVariable = "POPART_TENSOR_TILE_MAP"

// MemoryMap is where a prepared session's tensors lie, as they are in the file of Options.TensorMap. A CPU has no tiles: memory of a program's tensors is an arena, in which those that are not in
// use at the same time lie over each other.
type MemoryMap struct {
	Name            string           `json:"name"`    // of the executable
	Threads         int              `json:"threads"` // that compute
	ArenaBytes      int64            `json:"arena_bytes"`
	PersistentBytes int64            `json:"persistent_bytes"`
	PackedBytes     int64            `json:"packed_bytes"`   // copies of weights in the layouts of kernels
	ConstantBytes   int64            `json:"constant_bytes"` // in the executable
	Persistent      []MappedWeight   `json:"persistent"`
	Packed          []MappedCopy     `json:"packed"`
	Programs        []ProgramTensors `json:"programs"`
}

// MappedWeight is a tensor that keeps its value between programs.
type MappedWeight struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Bytes int64  `json:"bytes"`
	// Stored is false where packed copies alone are kept.
	Stored bool `json:"stored"`
}

// MappedCopy is a copy of a weight or constant for kernels.
type MappedCopy struct {
	Tensor  int   `json:"tensor"` // number in the executable
	Bytes   int64 `json:"bytes"`
	Readers int   `json:"readers"` // operands that it is kept for
}

// ProgramTensors are the tensors of a program.
type ProgramTensors struct {
	Index      int            `json:"index"`
	Name       string         `json:"name"`
	Steps      int            `json:"steps"`
	ArenaBytes int64          `json:"arena_bytes"`
	Tensors    []MappedTensor `json:"tensors"`
}

// MappedTensor is where a tensor lies from one step to another of a program, both included.
type MappedTensor struct {
	Name   string `json:"name"`
	Offset int64  `json:"offset"` // into the arena
	Bytes  int64  `json:"bytes"`
	First  int    `json:"first_step"`
	Last   int    `json:"last_step"`
}

// memoryMap returns where the tensors of a plan lie.
func memoryMap(p *cpu.Plan) MemoryMap {
	m := MemoryMap{Name: p.Name, Threads: p.Threads, ArenaBytes: p.ArenaBytes, PersistentBytes: p.PersistentBytes, PackedBytes: p.PackedBytes, ConstantBytes: p.ConstantBytes,
		Persistent: []MappedWeight{}, Packed: []MappedCopy{}, Programs: []ProgramTensors{}}
	for _, t := range p.Persistent {
		m.Persistent = append(m.Persistent, MappedWeight{t.Name, t.Type, t.Bytes, t.Stored})
	}
	for _, c := range p.Packed {
		m.Packed = append(m.Packed, MappedCopy{int(c.Tensor), c.Bytes, len(c.Readers)})
	}
	tensors := p.Memory().Tensors
	for i := range p.Programs {
		g := &p.Programs[i]
		of := ProgramTensors{Index: g.Index, Name: g.Name, Steps: len(g.Steps), ArenaBytes: g.ArenaBytes, Tensors: []MappedTensor{}}
		for _, t := range tensors {
			if t.Program == g.Index {
				of.Tensors = append(of.Tensors, MappedTensor{t.Name, t.Offset, t.Bytes, t.First, t.Last})
			}
		}
		m.Programs = append(m.Programs, of)
	}
	return m
}

// mapMemory writes the memory map that options or environment ask for.
func (s *session) mapMemory(e *cpu.Engine) error {
	path := s.options.TensorMap
	if path == "" {
		path = os.Getenv(TensorMapVariable)
	}
	if path == "" {
		return nil
	}
	if e == nil {
		return wrong(ErrOption, "tensor map %q: the back end %q does not tell where its tensors lie, the CPU does", path, s.device.Info().Backend)
	}
	text, err := json.MarshalIndent(memoryMap(e.Plan()), "", " ")
	if err != nil {
		return err
	}
	if err := atomicfile.WriteBytes(path, append(text, '\n')); err != nil {
		return fmt.Errorf("tensor map: %w", err)
	}
	return nil
}
